//! Requests to other servers.
//!
//! Redirects are not followed: they would leak the key. A server on this machine is called without
//! the proxy of the environment ([`crate::proxy`]).

use std::error::Error;
use std::io;
use std::net::IpAddr;

use bytes::Bytes;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder};
use rustls::CertificateError;
use url::Url;

use crate::proxy::{Proxy, is_here};
use crate::trust;

/// Whether a key or token sent there cannot be read by others: over TLS, or on this machine.
pub fn is_private(url: &Url) -> bool {
    match url.scheme() {
        "https" | "wss" => url.has_host(),
        // `*.localhost` is loopback by convention only: some resolvers query the network.
        "http" | "ws" => {
            let by_name = url.domain().is_some_and(|name| name.parse::<IpAddr>().is_err());
            is_here(url) && (!by_name || url.domain() == Some("localhost"))
        }
        _ => false,
    }
}

/// Whether what is sent there is encrypted.
pub fn is_encrypted(url: &Url) -> bool {
    matches!(url.scheme(), "https" | "wss")
}

/// What to say to a user whose URL is not private.
pub const PLAIN_HINT: &str = "use https:// or wss://, or go through a tunnel to this machine, such as \
     `ssh -L 8080:127.0.0.1:8080 HOST`";

/// A client for the server at `url`. Timeouts are set by the caller.
pub fn client(url: &Url) -> ClientBuilder {
    let added = trust::added();
    let added = added.iter().filter_map(|one| Certificate::from_der(one).ok());
    let client = Client::builder().redirect(Policy::none()).tls_certs_merge(added);
    match Proxy::of(url) {
        None => client.no_proxy(),
        // Left to reqwest, which chooses the same one.
        Some(_) => client,
    }
}

/// The innermost reason. Never the URL, which may hold a password.
pub fn reason(error: reqwest::Error) -> String {
    if let Some(why) = untrusted(&error) {
        return format!("its certificate is not trusted: {why}");
    }
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    match is_proxy_credential(&error) {
        true => PROXY_CREDENTIAL.to_owned(),
        false => cause.to_string(),
    }
}

/// What to say of [`is_proxy_credential`].
pub const PROXY_CREDENTIAL: &str = "the proxy refused (407): it wants a user and a password; write them \
     as HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT";

/// Whether the proxy of the environment refused a tunnel because it wants a user and a password.
pub fn is_proxy_credential(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        // The library's error has no public type.
        if error.to_string() == "tunnel error: proxy authorization required" {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether the connection was refused: nothing listens at that port.
pub fn is_closed_port(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Why a server's certificate is not trusted; `None` for any other error.
pub fn untrusted(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
            return Some(sentence(why));
        }
        // An I/O error does not show the error it wraps as its source.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}

/// What the user can do about a certificate that is not trusted.
pub const TRUST_HINT: &str = "certificates of this system's store are trusted, and those of a private \
     authority that --ca-file FILE names, in PEM";

fn sentence(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "it is self-signed, or signed by an issuer that this machine does not know".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; check this machine's clock".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name than the one in the address".into()
        }
        CertificateError::Revoked => "it was revoked".into(),
        // Found by its name, as one of two private authorities that are called the same.
        CertificateError::BadSignature => {
            "it was not signed by the authority that is trusted here, but by another one of the same name"
                .into()
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is marked as an authority (CA:TRUE), and no server may show that; make one with \
             basicConstraints=CA:FALSE"
                .into()
        }
        other => other.to_string(),
    }
}

/// Why a document could not be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("it cannot be reached")]
    Unreachable,
    #[error("its certificate is not trusted; --ca-file FILE names a private authority")]
    Untrusted,
    #[error("{PROXY_CREDENTIAL}")]
    ProxyCredential,
    #[error("it answered {0}")]
    Status(u16),
    #[error("its answer is too large")]
    TooLong,
}

/// The document at `url`, if it has at most `most` bytes.
pub async fn fetch(http: &Client, url: Url, most: usize) -> Result<Bytes, FetchError> {
    let mut answer = http.get(url).send().await.map_err(unfetched)?;
    if !answer.status().is_success() {
        return Err(FetchError::Status(answer.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unfetched)? {
        if body.len() + chunk.len() > most {
            return Err(FetchError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

fn unfetched(error: reqwest::Error) -> FetchError {
    if untrusted(&error).is_some() {
        FetchError::Untrusted
    } else if is_proxy_credential(&error) {
        FetchError::ProxyCredential
    } else {
        FetchError::Unreachable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untrusted_certificate_is_found_inside_other_errors() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls));
        assert!(untrusted(&wrapped).is_some_and(|why| why.starts_with("it is self-signed")));
        assert_eq!(untrusted(&io::Error::other("else")), None);
        assert_eq!(untrusted(&rustls::Error::DecryptError), None);
    }

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
        for own in crate::listen::from_elsewhere("0.0.0.0:1".parse().unwrap()) {
            for scheme in ["http", "ws"] {
                let url = format!("{scheme}://{own}/").parse().unwrap();
                assert!(is_private(&url), "{url} is this machine");
            }
        }
    }
}
