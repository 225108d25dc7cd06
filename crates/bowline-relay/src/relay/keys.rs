//! The control plane's keys: fetched, cached, and fetched again when a token names a new one.
//!
//! The rules are in [`cache`]; this module adds the clock and the network. One fetch runs at a
//! time; concurrent callers wait for it and use its result.

mod cache;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use bowline_net::outbound::FetchError;
use bowline_sbrp::token::{Admission, KeySet, KeySetError, Relay, TokenError};
use tokio::sync::Mutex;

use super::config::KeyConfig;
use super::issuer::Issuer;
use crate::issuer_name;
use cache::{Cache, Standing};

pub(crate) use cache::FIRST_RETRY;

const JWKS: &str = "/.well-known/jwks.json";

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmitError {
    Token(TokenError),
    /// There are no keys to verify it with; a later retry may succeed.
    NoKeys,
}

#[derive(Debug, thiserror::Error)]
enum KeysError {
    #[error(transparent)]
    Issuer(#[from] FetchError),
    #[error(transparent)]
    Unfit(#[from] KeySetError),
}

/// Verifies tokens with keys that are kept up to date.
#[derive(Debug)]
pub(crate) struct Keyring {
    relay: Relay,
    issuer: Issuer,
    body: usize,
    cache: RwLock<Cache>,
    fetching: Mutex<()>,
    /// How many fetches have ended.
    fetches: AtomicU64,
    /// Whether the last fetch failed; an outage is logged once, not once per fetch.
    failing: AtomicBool,
}

impl Keyring {
    /// Verifies tokens of the issuer called `name`, with the keys that it publishes.
    pub(crate) fn new(
        name: &str,
        region: Option<String>,
        rules: &KeyConfig,
        issuer: Issuer,
    ) -> Self {
        let relay = Relay { issuer: issuer_name::normal(name), region };
        let cache = RwLock::new(Cache::new(rules));
        Self {
            relay,
            issuer,
            body: rules.body,
            cache,
            fetching: Mutex::new(()),
            fetches: AtomicU64::new(0),
            failing: AtomicBool::new(false),
        }
    }

    /// Verifies a token; `wall` is in seconds since 1970. If the cached keys are too old, or the
    /// token names an unknown key, the key set is fetched first.
    pub(crate) async fn admit(&self, token: &str, wall: u64) -> Result<Admission, AdmitError> {
        let seen = self.fetches.load(Ordering::Acquire);
        let judge = |keys: &KeySet| self.relay.admit(token, keys, wall).map_err(AdmitError::Token);
        if let Standing::Good(keys) = self.standing() {
            match judge(&keys) {
                Err(AdmitError::Token(TokenError::UnknownKey)) => {}
                judged => return judged,
            }
        }
        self.refresh(seen).await;
        match self.standing() {
            Standing::Good(keys) | Standing::Doubtful(keys) => judge(&keys),
            Standing::Nothing => {
                // A token that is invalid under any key gets its own error, not `NoKeys`.
                match judge(&KeySet::default()) {
                    Err(AdmitError::Token(TokenError::UnknownKey)) => Err(AdmitError::NoKeys),
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
            self.refresh(self.fetches.load(Ordering::Acquire)).await;
        }
    }

    fn standing(&self) -> Standing {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).standing(Instant::now())
    }

    /// Fetches the keys, if a fetch is allowed now. Concurrent callers wait for the same fetch and
    /// share its result: `seen` is the number of ended fetches when the caller looked at the keys.
    async fn refresh(&self, seen: u64) {
        let _one_at_a_time = self.fetching.lock().await;
        if self.fetches.load(Ordering::Acquire) != seen {
            return;
        }
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
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the issuer's keys were fetched");
                }
            }
            Err(error) => {
                self.cache.write().unwrap_or_else(PoisonError::into_inner).failed();
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the issuer's keys could not be fetched; trying again");
                }
            }
        }
        self.fetches.fetch_add(1, Ordering::Release);
    }

    async fn fetch(&self) -> Result<KeySet, KeysError> {
        Ok(KeySet::from_jwks(&self.issuer.fetch(JWKS, self.body).await?)?)
    }
}
