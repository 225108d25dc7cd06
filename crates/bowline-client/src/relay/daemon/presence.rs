//! The daemon's presence token and its renewal (SBRP-DAEMON-07).
//!
//! A process that has just started has no sessions, but the relay may still hold some from before.
//! So its first token does not have the scope `session:resume`: the relay then ends those sessions
//! at once, where their clients would otherwise wait for the rest of the grace period
//! (SBRP-DAEMON-05, SBRP-RELAY-11). Once online, the daemon requests a token with that scope, for
//! the next connection.
//!
//! A process registers once: with that it takes the daemon's place from any other process. Afterwards
//! it renews, and learns by a refusal that another one has taken its place. A control plane that
//! counts no epochs does not tell processes apart; there, a registration is a renewal with another
//! scope.
//!
//! A token's age is counted from its arrival, on this machine's monotonic clock: the wall clocks of
//! daemon and control plane need not agree. A connection outlives its token, so a failed renewal
//! costs nothing until the next reconnect; it is retried until it succeeds.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::api::{DaemonProcess, DaemonStatus, Registered, RenewPresence};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentityKey;
use bowline_sbrp::renewal;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::relay::RECONNECT;
use crate::relay::control_plane::ControlError;
use crate::relay::random::dice;
use crate::relay::tokens::PresenceTokens;

/// A registration and when it arrived. `Debug` shows no token.
#[derive(Debug, Clone)]
pub(super) struct Presence {
    pub(super) registered: Registered,
    /// Whether the token has the scope `session:resume`.
    pub(super) resumable: bool,
    came: Instant,
}

impl Presence {
    pub(super) fn new(registered: Registered, resumable: bool) -> Self {
        Self { registered, resumable, came: Instant::now() }
    }

    fn renew_at(&self) -> Instant {
        let seconds = renewal::renew_at(0, self.life());
        self.came + Duration::from_secs(seconds).max(SOONEST)
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.came + Duration::from_secs(self.life())
    }

    fn life(&self) -> u64 {
        // Capped at one year, so that sums of instants cannot overflow.
        self.registered.expires_at.saturating_sub(self.registered.issued_at).min(31_536_000)
    }
}

/// The daemon's registration data for the control plane.
#[derive(Debug, Clone)]
pub(super) struct Registrar {
    pub(super) control: Arc<dyn PresenceTokens>,
    pub(super) key: IdentityKey,
    pub(super) name: Option<String>,
    /// The random name of this process.
    pub(super) process: Option<String>,
    pub(super) region: Option<String>,
}

impl Registrar {
    pub(super) async fn register(&self, resumable: bool) -> Result<Presence, ControlError> {
        let (name, process) = (self.name.as_deref(), self.process(&[]));
        let made = self.control.register(&self.key, name, resumable, process).await?;
        Ok(Presence::new(made, resumable))
    }

    /// A new token for the same process, with the scope of the last one or this one. `unreachable`
    /// names relays that could not be reached.
    pub(super) async fn renew(
        &self,
        last: &Presence,
        resumable: Option<bool>,
        unreachable: &[String],
    ) -> Result<Presence, ControlError> {
        let scope = resumable.unwrap_or(last.resumable);
        if last.registered.epoch == 0 && last.resumable != scope {
            return self.register(scope).await;
        }
        let daemon = DaemonId::new(last.registered.daemon_id.as_str());
        let asked = RenewPresence { resumable, process: self.process(unreachable) };
        Ok(Presence::new(self.control.renew(&daemon, &asked).await?, scope))
    }

    fn process(&self, unreachable: &[String]) -> DaemonProcess {
        let (id, region) = (self.process.clone(), self.region.clone());
        DaemonProcess { id, region, unreachable: unreachable.to_vec() }
    }

    /// Whether the relay has a connection of this daemon; `None` if that is unknown.
    pub(super) async fn is_online(&self, daemon: &DaemonId) -> Option<bool> {
        match self.control.status(daemon).await {
            DaemonStatus::Online => Some(true),
            DaemonStatus::Offline => Some(false),
            _ => None,
        }
    }
}

/// Replaces the presence, unless it is of an older epoch: requests may be answered out of order.
pub(super) fn replace(presence: &watch::Sender<Presence>, new: Presence) {
    presence.send_if_modified(|last| {
        let is_later = new.registered.epoch >= last.registered.epoch;
        if is_later {
            *last = new;
        }
        is_later
    });
}

/// Renews the token until this task is aborted. Notifies `replaced` when another process has taken
/// the daemon's place.
pub(super) async fn keep_fresh(
    registrar: Registrar,
    presence: watch::Sender<Presence>,
    replaced: Arc<Notify>,
) {
    loop {
        let due = presence.borrow().renew_at();
        sleep_until(due).await;
        let mut attempt = 0;
        loop {
            // A new registration may have replaced the token meanwhile.
            if presence.borrow().renew_at() > Instant::now() {
                break;
            }
            let last = presence.borrow().clone();
            match registrar.renew(&last, None, &[]).await {
                Ok(renewed) => {
                    tracing::debug!("presence renewed");
                    // Keeps the scope of the latest token, which may have changed meanwhile.
                    let resumable = presence.borrow().resumable;
                    replace(&presence, Presence { resumable, ..renewed });
                }
                Err(error) => {
                    tracing::warn!(%error, "presence not renewed");
                    if error.is_replaced() {
                        // Only of interest to a connection that there is now.
                        replaced.notify_waiters();
                    }
                    sleep(RECONNECT.delay(attempt, dice())).await;
                    attempt = attempt.saturating_add(1);
                }
            }
        }
    }
}

/// The shortest interval between renewals, in case a token has no lifetime.
const SOONEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(issued_at: u64, expires_at: u64) -> Registered {
        Registered {
            daemon_id: "d".into(),
            presence_token: "secret".into(),
            relay_url: "wss://relay.example/relay".into(),
            issued_at,
            expires_at,
            epoch: 0,
        }
    }

    #[test]
    fn a_late_answer_of_an_older_epoch_changes_nothing() {
        let of = |epoch| Presence::new(Registered { epoch, ..registered(0, 60) }, true);
        let presence = watch::Sender::new(of(7));
        replace(&presence, of(6));
        assert_eq!(presence.borrow().registered.epoch, 7);
        replace(&presence, of(8));
        assert_eq!(presence.borrow().registered.epoch, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn sbrp_daemon_07_age_is_counted_from_when_the_token_came() {
        // Issued by a clock that is years behind.
        let presence = Presence::new(registered(1_000, 4_600), true);
        assert_eq!(presence.renew_at() - Instant::now(), Duration::from_secs(2_700));
        assert!(!presence.is_over());
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(presence.is_over());
        for (issued, expires) in [(5, 5), (9, 5), (0, u64::MAX)] {
            let presence = Presence::new(registered(issued, expires), true);
            assert!(presence.renew_at() >= Instant::now() + SOONEST);
        }
        assert!(!format!("{presence:?}").contains("secret"));
    }
}
