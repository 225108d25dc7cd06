//! The control plane's list of revoked daemons and users: fetched regularly, and enforced.
//!
//! A token is valid even if its daemon or user was revoked after signing, and an open connection
//! outlives its token. So connections of those listed are closed and new ones are refused. While the
//! list cannot be fetched, the last one applies. A control plane that publishes no list is asked
//! rarely.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bowline_net::outbound::FetchError;
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::revocation::{BadList, PATH, Revoked};
use bowline_sbrp::token::Admission;

use super::config::RelayConfig;
use super::daemon_slot::DaemonSlot;
use super::daemon_table::DaemonTable;
use super::issuer::Issuer;
use super::keys::FIRST_RETRY;
use super::meters::Meters;

/// The largest list, in bytes: enough for twenty thousand daemons and ten thousand users.
const LONGEST: usize = 2 << 20;
/// The longest interval at which a control plane in the same process is asked.
const NEXT_DOOR: Duration = Duration::from_secs(1);
/// The shortest interval, even if the settings have a shorter one.
const SHORTEST: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Revocations {
    issuer: Issuer,
    every: Duration,
    rarely: Duration,
    /// The relay's own name.
    name: Option<String>,
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
    pub(crate) fn new(config: &RelayConfig, issuer: Issuer) -> Self {
        let rules = &config.keys;
        let every = match issuer {
            Issuer::Local(_) => rules.revoked_every.min(NEXT_DOOR),
            Issuer::Remote { .. } => rules.revoked_every,
        };
        let every = every.max(SHORTEST);
        let rarely = rules.max_age.max(every);
        Self { issuer, every, rarely, name: config.name.clone(), list: RwLock::default() }
    }

    /// Whether this daemon was revoked.
    pub(crate) fn contains(&self, daemon: &DaemonId) -> bool {
        self.list().contains(daemon)
    }

    /// Whether this token is no longer good, although nothing is wrong with it. A client of a revoked
    /// daemon is told so by the pair table instead.
    pub(crate) fn refuse(&self, admission: &Admission) -> bool {
        let list = self.list();
        match admission {
            Admission::Client(pass) => list.ends_token(&pass.user, pass.issued_at),
            Admission::Daemon(pass) => {
                let owner = pass.owner.as_deref();
                list.contains(&pass.daemon)
                    || owner.is_some_and(|owner| list.ends_token(owner, pass.issued_at))
            }
        }
    }

    /// Whether this relay hands its daemons over to others.
    pub(crate) fn is_draining(&self) -> bool {
        self.name.as_deref().is_some_and(|name| self.list().is_draining(name))
    }

    /// Ends what the list ends in this slot.
    pub(crate) fn apply_to(&self, slot: &DaemonSlot, meters: &Meters) {
        let list = self.list();
        match list.contains(slot.daemon()) {
            true => slot.revoked(meters),
            false if list.is_empty() => {}
            false => slot.end_revoked(&list, meters),
        }
    }

    /// Keeps the list up to date and closes the connections of those on it. Never returns.
    pub(crate) async fn watch(self: Arc<Self>, daemons: Arc<DaemonTable>, meters: Arc<Meters>) {
        let (mut failing, mut had) = (false, false);
        loop {
            let (pause, failed) = match self.fetch().await {
                Ok(list) => {
                    if self.replace(list) {
                        daemons.close_revoked(&self.list(), &meters);
                    }
                    had = true;
                    (self.every, None)
                }
                Err(Untaken::Issuer(FetchError::Status(404))) => (self.rarely, None),
                // As with keys: without a first list nobody is known to be revoked.
                Err(error) if !had => (self.every.min(FIRST_RETRY), Some(error)),
                Err(error) => (self.every, Some(error)),
            };
            // Logged once per outage, not once per fetch.
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

    /// Replaces the list; returns whether the new one ends more.
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
