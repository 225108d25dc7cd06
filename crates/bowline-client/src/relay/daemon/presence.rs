//! The daemon's presence token and its renewal (SBRP-DAEMON-07).
//!
//! A process that has just started has no sessions, but the relay may still hold some from before.
//! So its first token does not have the scope `session:resume`: the relay then ends those sessions
//! at once, where their clients would otherwise wait for the rest of the grace period
//! (SBRP-DAEMON-05, SBRP-RELAY-11). Once online, the daemon requests a token with that scope, for
//! the next connection.
//!
//! A token's age is counted from its arrival, on this machine's monotonic clock: the wall clocks of
//! daemon and control plane need not agree. A connection outlives its token, so a failed renewal
//! costs nothing until the next reconnect; it is retried until it succeeds.

use std::time::Duration;

use bowline_sbrp::api::{DaemonStatus, Registered};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentityKey;
use bowline_sbrp::renewal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::relay::RECONNECT;
use crate::relay::control_plane::{ControlError, ControlPlane};
use crate::relay::random::dice;

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
    pub(super) control: ControlPlane,
    pub(super) key: IdentityKey,
    pub(super) name: Option<String>,
}

impl Registrar {
    pub(super) async fn register(&self, resumable: bool) -> Result<Presence, ControlError> {
        let registered = self.control.register(&self.key, self.name.as_deref(), resumable).await?;
        Ok(Presence::new(registered, resumable))
    }

    /// Whether the relay has a connection of this daemon; `None` if that is unknown.
    pub(super) async fn is_online(&self, daemon: &DaemonId) -> Option<bool> {
        let daemons = self.control.daemons().await.ok()?;
        match daemons.iter().find(|one| one.id == daemon.as_str())?.status {
            DaemonStatus::Online => Some(true),
            DaemonStatus::Offline => Some(false),
            DaemonStatus::Unknown => None,
        }
    }
}

/// Renews the token until this task is aborted.
pub(super) async fn keep_fresh(
    control: ControlPlane,
    daemon: DaemonId,
    presence: watch::Sender<Presence>,
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
            match control.renew(&daemon).await {
                Ok(renewed) => {
                    tracing::debug!("presence renewed");
                    // Keeps the scope of the latest registration, which may have changed meanwhile.
                    presence.send_modify(|last| *last = Presence::new(renewed, last.resumable));
                }
                Err(error) => {
                    tracing::warn!(%error, "presence not renewed");
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
        }
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
