//! Requests to other servers.
//!
//! Redirects are not followed: they would leak the key. A server on loopback is called without the
//! proxy of the environment, which would see the key and resolve loopback to its own host.

use bytes::Bytes;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use url::Url;

use crate::loopback::is_loopback_url;

/// Whether a key or token sent there cannot be read by others: over TLS, or on loopback.
pub fn is_private(url: &Url) -> bool {
    match url.scheme() {
        "https" | "wss" => url.has_host(),
        // `*.localhost` is loopback by convention only: some resolvers query the network.
        "http" | "ws" => {
            is_loopback_url(url) && url.domain().is_none_or(|name| name == "localhost")
        }
        _ => false,
    }
}

/// A client for the server at `url`. Timeouts are set by the caller.
pub fn client(url: &Url) -> ClientBuilder {
    let client = Client::builder().redirect(Policy::none());
    if is_loopback_url(url) { client.no_proxy() } else { client }
}

/// The innermost reason. Never the URL, which may hold a password.
pub fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Why a document could not be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("it cannot be reached")]
    Unreachable,
    #[error("it answered {0}")]
    Status(u16),
    #[error("its answer is too large")]
    TooLong,
}

/// The document at `url`, if it has at most `most` bytes.
pub async fn fetch(http: &Client, url: Url, most: usize) -> Result<Bytes, FetchError> {
    let mut answer = http.get(url).send().await.map_err(|_| FetchError::Unreachable)?;
    if !answer.status().is_success() {
        return Err(FetchError::Status(answer.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|_| FetchError::Unreachable)? {
        if body.len() + chunk.len() > most {
            return Err(FetchError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_travel_sealed_or_stay_on_this_machine() {
        for (url, private) in [
            ("https://example.org", true),
            ("wss://example.org/relay", true),
            ("http://127.0.0.1:8080", true),
            ("ws://127.9.9.9:1/relay", true),
            ("ws://[::1]:1/relay", true),
            ("http://localhost:8080", true),
            ("http://example.org", false),
            ("ws://10.0.0.1/relay", false),
            ("http://localhost.example.org", false),
            ("http://x.localhost:8080", false),
            ("ftp://127.0.0.1", false),
            ("unix:/tmp/socket", false),
        ] {
            assert_eq!(is_private(&url.parse().unwrap()), private, "{url}");
        }
    }
}
