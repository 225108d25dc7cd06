//! The suite's own control plane, as far as a relay sees it: it publishes keys, and signs tokens.
//!
//! The keys are made anew for each run and never leave the process: a relay that stays pointed at this
//! address afterwards lets nobody in. Their ids are new, too, so that a relay which remembers the keys of
//! an earlier run asks for these.
//!
//! Tokens are put together by hand, because most of them have to be wrong in one place.

mod http;
mod key;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) use key::{Key, joined, now};

/// A running issuer.
#[derive(Debug)]
pub struct Issuer {
    url: String,
    published: Arc<Published>,
    server: JoinHandle<()>,
}

/// What the relay can fetch.
#[derive(Debug, Default)]
struct Published {
    keys: Mutex<Vec<Arc<Key>>>,
    fetches: AtomicUsize,
}

impl Issuer {
    /// Starts at this address. `url` is how the relay names it, if that is another address.
    pub async fn start(listen: SocketAddr, url: Option<&str>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let own = format!("http://{}", listener.local_addr()?);
        let url = url.map_or(own, |url| url.trim_end_matches('/').to_owned());
        let published = Arc::new(Published::default());
        for _ in 0..2 {
            published.keys().push(Arc::new(Key::fresh()?));
        }
        let server = tokio::spawn(http::serve(listener, Arc::clone(&published)));
        Ok(Self { url, published, server })
    }

    /// The issuer as it stands in tokens. The key set is below it, at `/.well-known/jwks.json`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The published keys, the oldest first.
    pub(crate) fn keys(&self) -> Vec<Arc<Key>> {
        self.published.keys().clone()
    }

    /// One more key, which a relay does not know yet.
    pub(crate) fn add_key(&self) -> std::io::Result<Arc<Key>> {
        let key = Arc::new(Key::fresh()?);
        self.published.keys().push(Arc::clone(&key));
        Ok(key)
    }

    /// How often the keys were fetched so far.
    pub(crate) fn fetches(&self) -> usize {
        self.published.fetches.load(Ordering::Relaxed)
    }

    /// The claims of a daemon's token, all good.
    pub(crate) fn daemon_claims(&self, daemon: &str) -> Value {
        json!({
            "iss": self.url, "aud": "sideband-relay", "sub": daemon, "role": "daemon",
            "did": daemon, "iat": now(), "exp": now() + 3600, "ver": 1,
            "scp": ["session:resume"],
        })
    }

    /// The claims of a client's token, all good.
    pub(crate) fn client_claims(&self, daemon: &str, session: &str) -> Value {
        json!({
            "iss": self.url, "aud": "sideband-relay", "sub": format!("user-of-{session}"),
            "role": "client", "did": daemon, "sid": session, "iat": now(), "exp": now() + 120,
            "ver": 1, "scp": ["session:create"],
        })
    }

    /// These claims, signed with the first key.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.first_key().token(claims)
    }

    /// The key that signs unless a check says otherwise.
    pub(crate) fn first_key(&self) -> Arc<Key> {
        let keys = self.published.keys();
        Arc::clone(keys.first().expect("two are made at the start, and none is taken away"))
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Published {
    fn keys(&self) -> MutexGuard<'_, Vec<Arc<Key>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key set, for one more fetch of it.
    fn fetched(&self) -> Value {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        json!({ "keys": self.keys().iter().map(|key| key.jwk()).collect::<Vec<_>>() })
    }
}
