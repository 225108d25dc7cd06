//! Opens a daemon's connection: the token for it, and the relay where it is possible.

use bowline_sbrp::api::{MOST_UNREACHABLE, Registered};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::{DaemonConnector, is_fenced};
use crate::relay::RECONNECT;
use crate::relay::address;
use crate::relay::control_plane::ControlError;
use crate::relay::daemon::presence::{Assignment, note_replaced, replace};
use crate::relay::daemon::{DaemonClosed, DaemonEvent};
use crate::relay::random::dice;
use crate::relay::reasons::LossReason;
use crate::relay::socket::RelaySocket;

/// How many other relays one attempt tries after the first.
const MOST_MOVES: usize = 3;

impl DaemonConnector {
    /// Connects, with a token that has not expired by our clock.
    pub(super) async fn open(
        &mut self,
    ) -> Result<Result<(RelaySocket, Assignment), LossReason>, DaemonClosed> {
        if *self.replaced.borrow() && !self.outlived {
            return Ok(Err(LossReason::Replaced));
        }
        let (over, resumable) = {
            let presence = self.presence.borrow();
            (presence.is_over(), presence.resumable && !self.outlived)
        };
        if self.outlived || over {
            if let Err(reason) = self.new_token(resumable).await? {
                return Ok(Err(reason));
            }
            self.outlived = false;
        } else if !self.unreachable.is_empty()
            && let Err(reason) = self.ask_for_another_relay().await?
        {
            return Ok(Err(reason));
        }
        let mut moves = 0;
        loop {
            let last = self.presence.borrow().clone();
            let assignment = last.assignment();
            let Registered { relay_url, presence_token, .. } = last.registered;
            let opening = RelaySocket::open(&relay_url, &presence_token);
            let opened = self.sink.unless_stopped(opening).await.ok_or(DaemonClosed::Stopped)?;
            let reason = match opened {
                Ok(socket) => {
                    self.unreachable.clear();
                    let relay = relay_url.parse().map(|url| address::host(&url));
                    self.sink.tell(DaemonEvent::Online { relay: relay.unwrap_or(relay_url) });
                    self.renew_now();
                    return Ok(Ok((socket, assignment)));
                }
                Err(reason) => reason,
            };
            match reason {
                // The token may have been revoked, or the relay's keys changed.
                LossReason::Refused(401 | 403) => {
                    let renewed = self.new_token(resumable).await?;
                    return Ok(Err(renewed.err().unwrap_or(reason)));
                }
                _ if is_fenced(&reason) || moves == MOST_MOVES => return Ok(Err(reason)),
                _ => {}
            }
            moves += 1;
            self.cannot_reach_relay();
            match self.ask_for_another_relay().await? {
                Ok(true) => {}
                Ok(false) => return Ok(Err(reason)),
                Err(reason) => return Ok(Err(reason)),
            }
        }
    }

    /// Tells the control plane which relays cannot be reached; returns whether it names another one.
    /// If it cannot be asked, the last one is tried again.
    async fn ask_for_another_relay(&mut self) -> Result<Result<bool, LossReason>, DaemonClosed> {
        let last = self.presence.borrow().clone();
        let asking = self.registrar.renew(&last, None, &self.unreachable);
        match self.sink.unless_stopped(asking).await.ok_or(DaemonClosed::Stopped)? {
            Ok(renewed) => {
                let relay = renewed.registered.relay_url.clone();
                let is_another = relay != last.registered.relay_url;
                // There is nothing else: next time, all but this one are worth another try.
                if self.unreachable.contains(&relay) {
                    self.unreachable = vec![relay];
                }
                replace(&self.presence, renewed);
                self.unanswered = false;
                Ok(Ok(is_another))
            }
            Err(error) if error.is_replaced() => Ok(Err(LossReason::Replaced)),
            Err(error) if error.may_pass() => {
                self.unanswered = true;
                Ok(Ok(false))
            }
            Err(error) => Err(DaemonClosed::Control(error)),
        }
    }

    /// Renews the token of a daemon that has just connected, if that cannot wait: from now on there are
    /// sessions to resume, for which the next connection needs a token with the scope `session:resume`;
    /// or it may be assigned to another relay than this one.
    fn renew_now(&mut self) {
        let upgrades = self.resumable && !self.presence.borrow().resumable;
        let unanswered = std::mem::take(&mut self.unanswered);
        if !upgrades && !unanswered {
            return;
        }
        let scope = upgrades.then_some(true);
        let (registrar, presence, replaced) =
            (self.registrar.clone(), self.presence.clone(), self.replaced.clone());
        let renewing = async move {
            for attempt in 0.. {
                let last = presence.borrow().clone();
                match registrar.renew(&last, scope, &[]).await {
                    Ok(made) => {
                        replace(&presence, made);
                        return;
                    }
                    Err(error) if error.is_replaced() => {
                        note_replaced(&presence, &last, &replaced);
                        return;
                    }
                    Err(error) if !error.may_pass() => return,
                    Err(_) => sleep(RECONNECT.delay(attempt, dice())).await,
                }
            }
        };
        self._renewing = Some(AbortOnDropHandle::new(tokio::spawn(renewing)));
    }

    /// Requests a token in place of one that is no longer good. A process that was outlived registers,
    /// which takes its place back; any other renews.
    async fn new_token(&mut self, resumable: bool) -> Result<Result<(), LossReason>, DaemonClosed> {
        let last = self.presence.borrow().clone();
        let asking = async {
            match self.outlived || last.registered.epoch == 0 {
                true => self.registrar.register(resumable).await,
                false => self.registrar.renew(&last, Some(resumable), &self.unreachable).await,
            }
        };
        match self.sink.unless_stopped(asking).await.ok_or(DaemonClosed::Stopped)? {
            Ok(presence) if presence.registered.daemon_id == self.id.as_str() => {
                replace(&self.presence, presence);
                self.replaced.send_replace(false);
                self.unanswered = false;
                Ok(Ok(()))
            }
            Err(error) if error.is_replaced() => Ok(Err(LossReason::Replaced)),
            // A different id would be a different daemon: handshakes are bound to the id.
            Ok(_) => Err(DaemonClosed::Control(ControlError::Unreadable)),
            Err(error) if error.may_pass() => Ok(Err(LossReason::Control(error))),
            Err(error) => Err(DaemonClosed::Control(error)),
        }
    }

    /// Remembers that the present relay is to be avoided.
    pub(super) fn cannot_reach_relay(&mut self) {
        let relay = self.presence.borrow().registered.relay_url.clone();
        if !self.unreachable.contains(&relay) {
            self.unreachable.truncate(MOST_UNREACHABLE - 1);
            self.unreachable.push(relay);
        }
    }
}
