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
//!
//! A connection does not outlive its assignment: clients are sent to the relay that the control plane
//! named last, and for that epoch. Whatever brings another assignment, the connection follows it.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::api::{DaemonProcess, DaemonStatus, Registered, RenewPresence};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentityKey;
use bowline_sbrp::renewal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::relay::RECONNECT;
use crate::relay::control_plane::ControlError;
use crate::relay::random::dice;
use crate::relay::reasons::LossReason;
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

    pub(super) fn assignment(&self) -> Assignment {
        Assignment { relay_url: self.registered.relay_url.clone(), epoch: self.registered.epoch }
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

/// Where clients are sent, and the epoch for which: a connection with another one gets none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    relay_url: String,
    epoch: u64,
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

/// Notes that the control plane refused this presence because another process has taken its place;
/// returns whether that counts. It does not if there is another presence by now.
pub(super) fn note_replaced(
    presence: &watch::Sender<Presence>,
    refused: &Presence,
    replaced: &watch::Sender<bool>,
) -> bool {
    let mut counts = false;
    // Under the lock of the presence, and without a change of it.
    presence.send_if_modified(|present| {
        counts = present.came == refused.came;
        if counts {
            replaced.send_replace(true);
        }
        false
    });
    counts
}

/// Waits until a connection that was opened with this assignment gets no more clients; returns why.
pub(super) async fn outdated(
    presence: &watch::Sender<Presence>,
    replaced: &watch::Sender<bool>,
    opened: &Assignment,
) -> LossReason {
    let (mut presence, mut replaced) = (presence.subscribe(), replaced.subscribe());
    tokio::select! {
        _ = replaced.wait_for(|replaced| *replaced) => LossReason::Replaced,
        _ = presence.wait_for(|presence| presence.assignment() != *opened) => LossReason::Moved,
    }
}

/// Renews the token until this task is aborted, but not while another process has the daemon's place,
/// which `replaced` says: until this one registers anew, it would only be refused.
pub(super) async fn keep_fresh(
    registrar: Registrar,
    presence: watch::Sender<Presence>,
    replaced: watch::Sender<bool>,
) {
    let mut allowed = replaced.subscribe();
    loop {
        if allowed.wait_for(|replaced| !replaced).await.is_err() {
            return;
        }
        let due = presence.borrow().renew_at();
        sleep_until(due).await;
        let mut attempt = 0;
        loop {
            // A new registration may have replaced the token meanwhile.
            if presence.borrow().renew_at() > Instant::now() || *replaced.borrow() {
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
                Err(error) if error.is_replaced() => {
                    if note_replaced(&presence, &last, &replaced) {
                        tracing::warn!(%error, "presence not renewed");
                    }
                    break;
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use bowline_sbrp::api::RefusalDetail;
    use bowline_sbrp::identity::IdentitySecret;
    use tokio_util::task::AbortOnDropHandle;

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

    /// Refuses every renewal, because another process has registered.
    #[derive(Debug, Default)]
    struct Refusing(AtomicUsize);

    #[async_trait]
    impl PresenceTokens for Refusing {
        async fn register(
            &self,
            _: &IdentityKey,
            _: Option<&str>,
            _: bool,
            _: DaemonProcess,
        ) -> Result<Registered, ControlError> {
            Ok(registered(0, 60))
        }

        async fn renew(&self, _: &DaemonId, _: &RenewPresence) -> Result<Registered, ControlError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            let (code, message) = (RefusalDetail::REPLACED.into(), String::new());
            Err(ControlError::Refused { status: 409, code, message })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sbrp_daemon_07_a_replaced_process_asks_once_until_it_has_registered_anew() {
        let control = Arc::<Refusing>::default();
        let registrar = Registrar {
            control: control.clone(),
            key: IdentitySecret::from_seed(&[1; 32]).public(),
            name: None,
            process: None,
            region: None,
        };
        let presence = watch::Sender::new(Presence::new(registered(0, 60), true));
        let replaced = watch::Sender::new(false);
        let first = presence.borrow().clone();
        let keeping = keep_fresh(registrar, presence.clone(), replaced.clone());
        let _keeping = AbortOnDropHandle::new(tokio::spawn(keeping));
        for asked in 1..=2 {
            sleep(Duration::from_secs(3600)).await;
            assert_eq!(control.0.load(Ordering::SeqCst), asked);
            let opened = presence.borrow().assignment();
            assert_eq!(outdated(&presence, &replaced, &opened).await, LossReason::Replaced);
            replace(&presence, Presence::new(registered(0, 60), true));
            replaced.send_replace(false);
        }
        assert!(
            !note_replaced(&presence, &first, &replaced),
            "a late refusal of an older presence"
        );
        assert!(!*replaced.borrow());
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
