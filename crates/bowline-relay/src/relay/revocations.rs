//! Whom the control plane has taken out of force, and seeing to it that they go.
//!
//! A token says what was so when it was signed, and an open connection outlives its token. So the
//! list is fetched again and again; whoever it names is sent away and not let in. While it cannot
//! be had, the last one counts. A control plane that publishes none is asked rarely.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bowline_net::outbound::FetchError;
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::revocation::{BadList, PATH, Revoked};

use super::config::Keys;
use super::harbour::Harbour;
use super::issuer::Issuer;
use super::meters::Meters;

/// The longest list, in bytes: more than twenty thousand daemons.
const LONGEST: usize = 1 << 20;
/// How often a control plane in the same process is asked, at least.
const NEXT_DOOR: Duration = Duration::from_secs(1);
/// The shortest pause, whatever the settings say.
const SHORTEST: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Revocations {
    issuer: Issuer,
    every: Duration,
    rarely: Duration,
    list: RwLock<Arc<Revoked>>,
}

#[derive(Debug, thiserror::Error)]
enum Untaken {
    #[error(transparent)]
    Issuer(#[from] FetchError),
    #[error(transparent)]
    List(#[from] BadList),
}

impl Revocations {
    pub(crate) fn new(rules: &Keys, issuer: Issuer) -> Self {
        let every = match issuer {
            Issuer::Beside(_) => rules.revoked_every.min(NEXT_DOOR),
            Issuer::Afar { .. } => rules.revoked_every,
        };
        let every = every.max(SHORTEST);
        let rarely = rules.max_age.max(every);
        Self { issuer, every, rarely, list: RwLock::default() }
    }

    /// Whether this daemon was taken out of force.
    pub(crate) fn contains(&self, daemon: &DaemonId) -> bool {
        self.list().contains(daemon)
    }

    /// Keeps the list up to date and has its daemons sent away. Never returns.
    pub(crate) async fn watch(self: Arc<Self>, harbour: Arc<Harbour>, meters: Arc<Meters>) {
        let mut failing = false;
        loop {
            let (pause, failed) = match self.fetch().await {
                Ok(list) => {
                    if self.replace(list) {
                        harbour.send_away(&self.list(), &meters);
                    }
                    (self.every, None)
                }
                Err(Untaken::Issuer(FetchError::Status(404))) => (self.rarely, None),
                Err(error) => (self.every, Some(error)),
            };
            // Told once an outage, not once a fetch.
            if let (false, Some(error)) = (failing, &failed) {
                tracing::warn!(%error, "the list of revoked daemons could not be fetched");
            }
            failing = failed.is_some();
            tokio::time::sleep(pause).await;
        }
    }

    async fn fetch(&self) -> Result<Revoked, Untaken> {
        Ok(Revoked::from_json(&self.issuer.fetch(PATH, LONGEST).await?)?)
    }

    /// Takes the list; whether it names somebody new. Who comes from here on is judged by it.
    fn replace(&self, list: Revoked) -> bool {
        let mut known = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let news = list.adds_to(&known);
        *known = Arc::new(list);
        news
    }

    fn list(&self) -> Arc<Revoked> {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner))
    }
}
