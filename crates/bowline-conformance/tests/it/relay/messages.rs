//! What becomes of a message: the rules in their order, and where it goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_sbrp::control::ControlCode::{self, *};
use tokio::time::sleep;

use super::sessions::{Stands, Way};
use super::token::Pass;
use super::{Fault, State};

const LONGEST: usize = 65_536;
/// How many bytes wait for a client before it counts as slow.
const SLOW: usize = 1 << 20;

/// The sender is told this code, and closed.
pub(super) type Refused = (ControlCode, u64);

pub(super) fn encoded(kind: u8, session: u64, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend((payload.len() as u32).to_be_bytes());
    message.extend(session.to_be_bytes());
    message.extend(payload);
    message
}

/// What the rules say of a message.
enum Judged {
    Fine { kind: u8, session: u64 },
    Ignored,
}

impl State {
    fn judge(&self, message: &[u8], is_client: bool) -> Result<Judged, Refused> {
        let Some(header) = message.get(..13) else {
            return match self.has(Fault::ShortHeaderIgnored) {
                true => Ok(Judged::Ignored),
                false => Err((MalformedFrame, 0)),
            };
        };
        let kind = header[0];
        let length = u32::from_be_bytes(header[1..5].try_into().unwrap()) as usize;
        let session = u64::from_be_bytes(header[5..].try_into().unwrap());
        let known = [0x01, 0x02, 0x03, 0x04, 0x10, 0x11, 0x20].contains(&kind);
        let is_ping = matches!(kind, 0x10 | 0x11);
        if !known && self.has(Fault::TypeBeforeSize) {
            return Err((InvalidFrameType, 0));
        }
        let most = if is_ping && !self.has(Fault::LongPing) { 8 } else { LONGEST };
        let may_be_large = self.has(Fault::TooLargeAccepted) && !is_ping;
        if length > most && !may_be_large {
            return Err((PayloadTooLarge, 0));
        }
        if message.len() - 13 != length && !self.has(Fault::TooLargeAccepted) {
            return match self.has(Fault::TrailingIgnored) {
                true => Ok(Judged::Ignored),
                false => Err((MalformedFrame, 0)),
            };
        }
        if !known {
            return match self.has(Fault::UnknownTypeIgnored) {
                true => Ok(Judged::Ignored),
                false => Err((InvalidFrameType, 0)),
            };
        }
        let is_wrong = if is_ping { session != 0 } else { session == 0 && kind != 0x20 };
        if is_wrong {
            return match self.has(Fault::ZeroSessionIgnored) {
                true => Ok(Judged::Ignored),
                false => Err((InvalidSessionId, 0)),
            };
        }
        let (wrong, fault) = match (kind, is_client) {
            (0x04, true) => (true, Fault::ClientSignals),
            (0x20, _) => (true, Fault::ControlIgnored),
            (0x02, true) | (0x01, false) => (true, Fault::HandshakeAnyWay),
            _ => (false, Fault::HandshakeAnyWay),
        };
        if wrong {
            return match self.has(fault) {
                true => Ok(Judged::Ignored),
                false => Err((DisallowedSender, session)),
            };
        }
        Ok(Judged::Fine { kind, session })
    }

    /// Deals with a message; an error closes the connection.
    pub(super) async fn take(
        self: &Arc<Self>,
        way: &Way,
        pass: &Pass,
        message: Vec<u8>,
        count: usize,
    ) -> Result<(), Refused> {
        let Judged::Fine { kind, session } = self.judge(&message, pass.session.is_some())? else {
            return Ok(());
        };
        let payload = message.get(13..).unwrap_or_default();
        match kind {
            0x10 => {
                if self.has(Fault::PingForwarded) && pass.session.is_some() {
                    let slots = self.slots();
                    let daemon = slots.get(&pass.daemon).and_then(|slot| slot.daemon.as_ref());
                    if let Some((daemon, _)) = daemon {
                        daemon.send(encoded(0x10, 0, payload));
                    }
                }
                let empty = self.has(Fault::PongEmpty);
                way.send(encoded(0x11, 0, if empty { &[] } else { payload }));
                Ok(())
            }
            0x11 => Ok(()),
            0x04 => {
                if payload.len() != 2 {
                    return match self.has(Fault::SignalLengthIgnored) {
                        true => Ok(()),
                        false => Err((MalformedFrame, 0)),
                    };
                }
                if payload[1] > 4 && self.has(Fault::UnknownReasonRefused) {
                    return Err((MalformedFrame, 0));
                }
                self.signalled(way, &pass.daemon, session, payload[0]);
                Ok(())
            }
            _ => self.forward(way, pass, session, message, count).await,
        }
    }

    async fn forward(
        self: &Arc<Self>,
        way: &Way,
        pass: &Pass,
        session: u64,
        mut message: Vec<u8>,
        count: usize,
    ) -> Result<(), Refused> {
        let payload = message.len() - 13;
        if payload == 0 && self.has(Fault::EmptyDropped)
            || message.ends_with(&[b"fragments".as_slice(), &[0; 16]].concat())
                && self.has(Fault::FragmentsDropped)
        {
            return Ok(());
        }
        if (1000..3000).contains(&payload) && self.has(Fault::Modified) {
            *message.last_mut().unwrap() ^= 1;
        }
        if count == 50 && self.has(Fault::Reordered) {
            let (state, way, pass) = (Arc::clone(self), way.clone(), pass.clone());
            tokio::spawn(async move {
                sleep(Duration::from_secs(1)).await;
                let _ = state.route(&way, &pass, session, message).await;
            });
            return Ok(());
        }
        self.route(way, pass, session, message).await
    }

    async fn route(
        self: &Arc<Self>,
        way: &Way,
        pass: &Pass,
        session: u64,
        message: Vec<u8>,
    ) -> Result<(), Refused> {
        let to = match pass.session {
            None => self.to_client(way, pass, session),
            Some(own) if own != session => {
                if self.has(Fault::OtherSessionIgnored) {
                    return Ok(());
                }
                if self.has(Fault::ForeignSessionEnds) {
                    self.end_anywhere(session);
                }
                return Err((SessionNotFound, session));
            }
            Some(_) => self.to_daemon(way, pass, session),
        }?;
        let Some(to) = to else { return Ok(()) };
        let is_full = || to.queued.load(Ordering::Relaxed) > SLOW;
        if pass.session.is_none() {
            if !is_full() {
                to.send(message);
            } else if !self.has(Fault::SlowClientDropped) {
                self.give_up(pass, &to, session);
            }
            return Ok(());
        }
        // A daemon's clients are held back while it does not read.
        for _ in 0..2000 {
            if !is_full() {
                break;
            }
            if self.has(Fault::SlowDaemonDropped) {
                return Ok(());
            }
            sleep(Duration::from_millis(5)).await;
        }
        to.send(message);
        Ok(())
    }

    /// A client reads too slowly.
    fn give_up(&self, pass: &Pass, client: &Way, session: u64) {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&pass.daemon) else { return };
        slot.pairs.remove(&session);
        self.tell(client, &pass.daemon, Backpressure, 0);
        client.close();
        if let Some((daemon, _)) = &slot.daemon {
            self.tell(daemon, &pass.daemon, SessionEnded, session);
        }
    }

    fn to_client(&self, way: &Way, pass: &Pass, session: u64) -> Result<Option<Way>, Refused> {
        let slots = self.slots();
        let pair = slots.get(&pass.daemon).and_then(|slot| slot.pairs.get(&session));
        let early = |stands| stands != Stands::Paired && !self.has(Fault::EarlyForwarded);
        if let Some(pair) = pair.filter(|pair| !early(pair.stands)) {
            return Ok(Some(pair.client.clone()));
        }
        if self.has(Fault::UnknownSessionIgnored) {
            return Ok(None);
        }
        if self.has(Fault::DaemonCut) {
            return Err((SessionNotFound, session));
        }
        self.tell(way, &pass.daemon, SessionNotFound, session);
        Ok(None)
    }

    fn to_daemon(&self, way: &Way, pass: &Pass, session: u64) -> Result<Option<Way>, Refused> {
        let mut slots = self.slots();
        let slot = slots.get_mut(&pass.daemon).ok_or((SessionNotFound, session))?;
        let pair = slot.pairs.get_mut(&session).ok_or((SessionNotFound, session))?;
        let code = match pair.stands {
            Stands::Paired => return Ok(slot.daemon.as_ref().map(|(daemon, _)| daemon.clone())),
            Stands::Paused => SessionPaused,
            Stands::Pending => SessionPending,
        };
        let silent =
            self.has(Fault::SilentDiscard) || pair.was_told && self.has(Fault::DiscardToldOnce);
        pair.was_told = true;
        if !silent {
            self.tell(way, &pass.daemon, code, session);
        }
        Ok(None)
    }
}
