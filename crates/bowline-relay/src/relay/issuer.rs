//! The control plane as a relay sees it: a source of published documents.
//!
//! They are fetched over the network, or from the same process. No redirect is followed, responses
//! are limited in size, and plain HTTP is used on this machine only.

use bowline_net::outbound::{self, FetchError};
use bytes::Bytes;
use reqwest::Client;
use url::Url;

use super::config::KeyConfig;
use super::local_control::LocalControl;

/// Why an issuer URL cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIssuer {
    #[error("the issuer is not a URL: {0}")]
    Url(String),
    #[error("the issuer's URL has to begin with https://, or http:// on this machine")]
    Scheme,
    #[error("the issuer's URL must carry no user, query or fragment")]
    Extras,
}

/// The source of the documents.
#[derive(Debug, Clone)]
pub(crate) enum Issuer {
    /// A control plane at this URL.
    Remote { url: Url, http: Client },
    /// A control plane in this process, which limits the size of its own responses.
    Local(LocalControl),
}

impl Issuer {
    pub(crate) fn new(issuer: &str, rules: &KeyConfig) -> Result<Self, BadIssuer> {
        let url = base(issuer)?;
        let http = outbound::client(&url).timeout(rules.timeout).pool_max_idle_per_host(0);
        let http = http.build().map_err(|error| BadIssuer::Url(error.to_string()))?;
        Ok(Self::Remote { url, http })
    }

    /// Fetches the document at this path below the issuer; fails if it exceeds `most` bytes.
    pub(crate) async fn fetch(&self, path: &str, most: usize) -> Result<Bytes, FetchError> {
        match self {
            Self::Local(local_control) => local_control.fetch(path).await,
            Self::Remote { url, http } => outbound::fetch(http, below(url, path), most).await,
        }
    }
}

fn base(issuer: &str) -> Result<Url, BadIssuer> {
    let url = Url::parse(issuer).map_err(|error| BadIssuer::Url(error.to_string()))?;
    let extras = !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some();
    if !matches!(url.scheme(), "http" | "https") || !outbound::is_private(&url) {
        return Err(BadIssuer::Scheme);
    }
    if extras { Err(BadIssuer::Extras) } else { Ok(url) }
}

fn below(issuer: &Url, path: &str) -> Url {
    let mut url = issuer.clone();
    url.set_path(&format!("{}{path}", issuer.path().trim_end_matches('/')));
    url
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
