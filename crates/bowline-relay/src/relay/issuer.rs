//! The control plane as a relay sees it: a place where documents are published.
//!
//! Over the network, or next door in the same process. No redirect is followed, no answer may be
//! long, and nothing travels in the open beyond this machine.

use bytes::Bytes;
use reqwest::{Client, redirect};
use url::{Host, Url};

use super::annex::Annex;
use super::config::Keys;

/// Why an issuer cannot be asked for anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIssuer {
    #[error("the issuer is not a URL: {0}")]
    Url(String),
    #[error("the issuer's URL has to begin with https://, or http:// on this machine")]
    Scheme,
    #[error("the issuer's URL must carry no user, query or fragment")]
    Extras,
}

/// Why there is no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("it cannot be reached")]
    Unreachable,
    #[error("it answered {0}")]
    Status(u16),
    #[error("its answer is too long")]
    TooLong,
}

/// Where the documents are.
#[derive(Debug, Clone)]
pub(crate) enum Issuer {
    /// At that address.
    Afar { url: Url, http: Client },
    /// In this process, which keeps its own bound on what it answers.
    Beside(Annex),
}

impl Issuer {
    pub(crate) fn new(issuer: &str, rules: &Keys) -> Result<Self, BadIssuer> {
        let url = base(issuer)?;
        let mut http = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(rules.timeout)
            .pool_max_idle_per_host(0);
        if is_local(&url) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| BadIssuer::Url(error.to_string()))?;
        Ok(Self::Afar { url, http })
    }

    /// What is published at that path below the issuer, if it has at most so many bytes.
    pub(crate) async fn fetch(&self, path: &str, most: usize) -> Result<Bytes, Unanswered> {
        match self {
            Self::Beside(annex) => annex.fetch(path).await,
            Self::Afar { url, http } => get(http, below(url, path), most).await,
        }
    }
}

async fn get(http: &Client, url: Url, most: usize) -> Result<Bytes, Unanswered> {
    let mut answer = http.get(url).send().await.map_err(|_| Unanswered::Unreachable)?;
    if !answer.status().is_success() {
        return Err(Unanswered::Status(answer.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|_| Unanswered::Unreachable)? {
        if body.len() + chunk.len() > most {
            return Err(Unanswered::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

fn base(issuer: &str) -> Result<Url, BadIssuer> {
    let url = Url::parse(issuer).map_err(|error| BadIssuer::Url(error.to_string()))?;
    let extras = !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some();
    match url.scheme() {
        "https" => {}
        "http" if is_local(&url) => {}
        _ => return Err(BadIssuer::Scheme),
    }
    if extras { Err(BadIssuer::Extras) } else { Ok(url) }
}

fn below(issuer: &Url, path: &str) -> Url {
    let mut url = issuer.clone();
    url.set_path(&format!("{}{path}", issuer.path().trim_end_matches('/')));
    url
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_where_the_issuer_is() {
        for (issuer, expected) in [
            ("https://id.example", "https://id.example/.well-known/jwks.json"),
            ("https://id.example/", "https://id.example/.well-known/jwks.json"),
            ("https://id.example/a/b", "https://id.example/a/b/.well-known/jwks.json"),
            ("http://127.0.0.1:9", "http://127.0.0.1:9/.well-known/jwks.json"),
            ("http://[::1]:9", "http://[::1]:9/.well-known/jwks.json"),
            ("http://localhost:9/x", "http://localhost:9/x/.well-known/jwks.json"),
        ] {
            let issuer = base(issuer).unwrap();
            assert_eq!(below(&issuer, "/.well-known/jwks.json").as_str(), expected);
        }
    }

    #[test]
    fn keys_do_not_travel_in_the_open() {
        for issuer in ["http://id.example", "http://10.0.0.1", "ftp://localhost", "file:///etc"] {
            assert_eq!(base(issuer), Err(BadIssuer::Scheme), "{issuer}");
        }
        for issuer in ["https://me@id.example", "https://id.example?x", "https://id.example#x"] {
            assert_eq!(base(issuer), Err(BadIssuer::Extras), "{issuer}");
        }
        assert!(matches!(base("id.example"), Err(BadIssuer::Url(_))));
    }
}
