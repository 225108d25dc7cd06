//! The control plane's keys: fetched, kept, and asked for again when a token names a new one.
//!
//! The rules are in [`cache`]; here is what they need of the world. One fetch at a time, whoever
//! asks; those who wait for it take its result.

mod cache;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use bowline_sbrp::token::{Admission, KeySet, KeySetError, Relay, TokenError};
use reqwest::{Client, redirect};
use tokio::sync::Mutex;
use url::{Host, Url};

use super::annex::Annex;
use super::config::Keys;
use cache::{Cache, Standing};

/// Why an issuer cannot be asked for its keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIssuer {
    #[error("the issuer is not a URL: {0}")]
    Url(String),
    #[error("the issuer's URL has to begin with https://, or http:// on this machine")]
    Scheme,
    #[error("the issuer's URL must carry no user, query or fragment")]
    Extras,
}

/// Why nobody can be judged, or why not this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Token(TokenError),
    /// There are no keys to judge with; coming again later helps.
    NoKeys,
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("it cannot be reached")]
    Unreachable,
    #[error("it answered {0}")]
    Status(u16),
    #[error("its answer is too long")]
    TooLong,
    #[error(transparent)]
    Unfit(#[from] KeySetError),
}

/// Judges tokens with keys that are kept up to date.
#[derive(Debug)]
pub(crate) struct Keyring {
    relay: Relay,
    source: Source,
    cache: RwLock<Cache>,
    fetching: Mutex<()>,
}

/// Where the keys are published.
#[derive(Debug)]
enum Source {
    Issuer { url: Url, http: Client, body: usize },
    Annex(Annex),
}

impl Keyring {
    /// With the keys of a control plane in this process.
    pub(crate) fn beside(issuer: &str, region: Option<String>, rules: &Keys, annex: Annex) -> Self {
        let relay = Relay { issuer: issuer.to_owned(), region };
        Self::with(relay, Source::Annex(annex), rules)
    }

    fn with(relay: Relay, source: Source, rules: &Keys) -> Self {
        let cache = RwLock::new(Cache::new(rules));
        Self { relay, source, cache, fetching: Mutex::new(()) }
    }

    pub(crate) fn new(
        issuer: &str,
        region: Option<String>,
        rules: &Keys,
    ) -> Result<Self, BadIssuer> {
        let url = jwks_url(issuer)?;
        let mut http = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(rules.timeout)
            .pool_max_idle_per_host(0);
        if is_local(&url) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| BadIssuer::Url(error.to_string()))?;
        let relay = Relay { issuer: issuer.to_owned(), region };
        Ok(Self::with(relay, Source::Issuer { url, http, body: rules.body }, rules))
    }

    /// Judges a token; `wall` is in seconds since 1970. Keys that are too old, and a key that is
    /// not known, are asked for first.
    pub(crate) async fn admit(&self, token: &str, wall: u64) -> Result<Admission, Refused> {
        let judge = |keys: &KeySet| self.relay.admit(token, keys, wall).map_err(Refused::Token);
        if let Standing::Good(keys) = self.standing() {
            match judge(&keys) {
                Err(Refused::Token(TokenError::UnknownKey)) => {}
                judged => return judged,
            }
        }
        self.refresh().await;
        match self.standing() {
            Standing::Good(keys) | Standing::Doubtful(keys) => judge(&keys),
            Standing::Nothing => {
                // What no key could make good is refused for what it is.
                match judge(&KeySet::default()) {
                    Err(Refused::Token(TokenError::UnknownKey)) => Err(Refused::NoKeys),
                    judged => judged,
                }
            }
        }
    }

    /// Whether keys have ever been fetched.
    pub(crate) fn is_ready(&self) -> bool {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).is_ready()
    }

    /// Keeps the keys fresh, so that connecting does not have to wait for them. Never returns.
    pub(crate) async fn keep_fresh(self: Arc<Self>) {
        loop {
            let at = {
                let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
                cache.refresh_at(Instant::now())
            };
            tokio::time::sleep_until(at.into()).await;
            self.refresh().await;
        }
    }

    fn standing(&self) -> Standing {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).standing(Instant::now())
    }

    /// Asks, if that is allowed now. Who comes while somebody asks waits for that answer.
    async fn refresh(&self) {
        let _one_at_a_time = self.fetching.lock().await;
        {
            let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            if !cache.may_fetch(now) {
                return;
            }
            cache.trying(now);
        }
        match self.fetch().await {
            Ok(keys) => {
                let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
                cache.fetched(keys, Instant::now());
            }
            Err(error) => {
                self.cache.write().unwrap_or_else(PoisonError::into_inner).failed();
                tracing::warn!(%error, "the issuer's keys could not be fetched");
            }
        }
    }

    async fn fetch(&self) -> Result<KeySet, FetchError> {
        let (url, http, most) = match &self.source {
            Source::Issuer { url, http, body } => (url, http, *body),
            Source::Annex(annex) => {
                let keys = annex.key_set().await.ok_or(FetchError::Unreachable)?;
                return Ok(KeySet::from_jwks(&keys)?);
            }
        };
        let sent = http.get(url.clone()).send().await;
        let mut answer = sent.map_err(|_| FetchError::Unreachable)?;
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
        Ok(KeySet::from_jwks(&body)?)
    }
}

fn jwks_url(issuer: &str) -> Result<Url, BadIssuer> {
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
    if extras {
        return Err(BadIssuer::Extras);
    }
    let jwks = format!("{}/.well-known/jwks.json", url.as_str().trim_end_matches('/'));
    Url::parse(&jwks).map_err(|error| BadIssuer::Url(error.to_string()))
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
            assert_eq!(jwks_url(issuer).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn keys_do_not_travel_in_the_open() {
        for issuer in ["http://id.example", "http://10.0.0.1", "ftp://localhost", "file:///etc"] {
            assert_eq!(jwks_url(issuer), Err(BadIssuer::Scheme), "{issuer}");
        }
        for issuer in ["https://me@id.example", "https://id.example?x", "https://id.example#x"] {
            assert_eq!(jwks_url(issuer), Err(BadIssuer::Extras), "{issuer}");
        }
        assert!(matches!(jwks_url("id.example"), Err(BadIssuer::Url(_))));
    }
}
