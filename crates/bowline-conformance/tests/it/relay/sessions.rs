//! Daemons with their clients: who is there, and what they are told when the other end comes and goes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_sbrp::control::ControlCode::{self, *};
use tokio::sync::mpsc;

use super::token::Pass;
use super::{Fault, State};

/// What a connection's writer is given.
#[derive(Debug)]
pub(super) enum Out {
    Message(Vec<u8>),
    Close,
}

/// The way to a connection.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) number: u64,
    pub(super) out: mpsc::UnboundedSender<Out>,
    /// Bytes that its writer has not written.
    pub(super) queued: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) daemon: Option<(Way, Pass)>,
    /// A daemon has been there.
    came: bool,
    pub(super) pairs: HashMap<u64, Pair>,
    /// Sessions that ended while the daemon was away.
    ended: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) client: Way,
    pub(super) stands: Stands,
    /// Counts pauses: a timer of an earlier one means nothing.
    pauses: u64,
    pub(super) was_told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    Paired,
    Paused,
    Pending,
}

impl Way {
    pub(super) fn send(&self, message: Vec<u8>) {
        self.queued.fetch_add(message.len(), Ordering::Relaxed);
        let _ = self.out.send(Out::Message(message));
    }

    pub(super) fn close(&self) {
        let _ = self.out.send(Out::Close);
    }
}

impl State {
    pub(super) fn tell(&self, to: &Way, daemon: &str, code: ControlCode, session: u64) {
        let text = match () {
            () if self.has(Fault::TextNames) => format!("daemon {daemon}"),
            () if self.has(Fault::TextHarmless) => "see the manual".to_owned(),
            () => String::new(),
        };
        let mut payload = code.to_wire().to_be_bytes().to_vec();
        payload.extend(text.as_bytes());
        to.send(super::messages::encoded(0x20, session, &payload));
    }

    fn expire(&self, slot: &mut Slot, daemon: &str, session: u64) {
        if let Some(pair) = slot.pairs.remove(&session) {
            self.tell(&pair.client, daemon, SessionExpired, session);
            pair.client.close();
        }
    }

    /// Lets a connection in, or says why not.
    pub(super) fn join(self: &Arc<Self>, way: &Way, pass: &Pass) {
        let mut slots = self.slots();
        let slot = slots.entry(pass.daemon.clone()).or_default();
        match pass.session {
            None => self.daemon_came(slot, way, pass),
            Some(session) => self.client_came(slot, way, pass, session),
        }
    }

    fn daemon_came(self: &Arc<Self>, slot: &mut Slot, way: &Way, pass: &Pass) {
        let id = &pass.daemon;
        if let Some((older, _)) = slot.daemon.take() {
            if self.has(Fault::NewerRefused) {
                slot.daemon = Some((older, pass.clone()));
                return way.close();
            }
            older.close();
            self.pause(slot, id);
        }
        slot.daemon = Some((way.clone(), pass.clone()));
        slot.came = true;
        for session in std::mem::take(&mut slot.ended) {
            self.tell(way, id, SessionEnded, session);
        }
        let sessions: Vec<u64> = slot.pairs.keys().copied().collect();
        for session in sessions {
            if !pass.resumable && !self.has(Fault::ResumesAnyway) {
                self.expire(slot, id, session);
                continue;
            }
            let Some(pair) = slot.pairs.get_mut(&session) else { continue };
            pair.stands = Stands::Pending;
            pair.was_told = false;
            self.tell(&pair.client, id, SessionPending, session);
            if self.has(Fault::ResumedAtOnce) {
                pair.stands = Stands::Paired;
                self.tell(&pair.client, id, SessionResumed, session);
            }
        }
    }

    fn client_came(self: &Arc<Self>, slot: &mut Slot, way: &Way, pass: &Pass, session: u64) {
        let id = &pass.daemon;
        let refuse = |code, session| {
            self.tell(way, id, code, session);
            way.close();
        };
        let stands = match &slot.daemon {
            None if self.has(Fault::OfflinePauses) => Stands::Paused,
            None if !slot.came && self.has(Fault::NeverCameNotFound) => {
                return refuse(DaemonNotFound, session);
            }
            None => return refuse(DaemonOffline, session),
            Some((_, daemon)) => {
                let full = daemon.limit.is_some_and(|most| slot.pairs.len() as u64 >= most);
                if full && !self.has(Fault::LimitIgnored) {
                    return refuse(Forbidden, 0);
                }
                Stands::Paired
            }
        };
        if let Some(pair) = slot.pairs.get(&session) {
            if !self.has(Fault::TakenOver) {
                return refuse(Forbidden, 0);
            }
            pair.client.close();
        }
        if stands == Stands::Paused {
            self.tell(way, id, SessionPaused, session);
        }
        let pair = Pair { client: way.clone(), stands, pauses: 0, was_told: false };
        slot.pairs.insert(session, pair);
    }

    /// Pauses all sessions of a daemon that has gone.
    fn pause(self: &Arc<Self>, slot: &mut Slot, id: &str) {
        let mut told = 0;
        for (session, pair) in &mut slot.pairs {
            let was_paired = pair.stands == Stands::Paired;
            pair.stands = Stands::Paused;
            pair.was_told = false;
            told += 1;
            if told == 1 || !self.has(Fault::PausedTellsOne) {
                self.tell(&pair.client, id, SessionPaused, *session);
            }
            if was_paired {
                pair.pauses += 1;
                let (state, id, session) = (Arc::clone(self), id.to_owned(), *session);
                let pause = pair.pauses;
                tokio::spawn(async move {
                    tokio::time::sleep(state.grace()).await;
                    state.grace_over(&id, session, pause);
                });
            }
        }
    }

    fn grace_over(&self, id: &str, session: u64, pause: u64) {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(id) else { return };
        let Some(pair) = slot.pairs.get(&session).filter(|pair| pair.pauses == pause) else {
            return;
        };
        let stays = match pair.stands {
            Stands::Paired => true,
            Stands::Paused => self.has(Fault::PausedForever),
            Stands::Pending => self.has(Fault::PendingForever),
        };
        if !stays {
            self.expire(slot, id, session);
            if let Some((daemon, _)) = &slot.daemon {
                self.tell(daemon, id, SessionEnded, session);
            }
        }
    }

    /// A connection is gone.
    pub(super) fn leave(self: &Arc<Self>, way: &Way, pass: &Pass) {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&pass.daemon) else { return };
        let id = &pass.daemon;
        match pass.session {
            None => {
                if slot.daemon.as_ref().is_some_and(|(daemon, _)| daemon.number == way.number) {
                    slot.daemon = None;
                    self.pause(slot, id);
                }
            }
            Some(session) => {
                let is_its = |pair: &Pair| pair.client.number == way.number;
                if !slot.pairs.get(&session).is_some_and(is_its) {
                    return;
                }
                slot.pairs.remove(&session);
                match &slot.daemon {
                    Some((daemon, _)) if !self.has(Fault::NoSessionEnded) => {
                        self.tell(daemon, id, SessionEnded, session);
                    }
                    None if self.has(Fault::EndedToldLater) => slot.ended.push(session),
                    _ => {}
                }
            }
        }
    }

    /// What a daemon's signal does.
    pub(super) fn signalled(&self, way: &Way, id: &str, session: u64, kind: u8) {
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(id) else { return };
        let Some(pair) = slot.pairs.get_mut(&session) else {
            if !self.has(Fault::UnknownSessionIgnored) {
                self.tell(way, id, SessionNotFound, session);
            }
            return;
        };
        match kind {
            0 if pair.stands == Stands::Pending => {
                pair.stands = Stands::Paired;
                self.tell(&pair.client, id, SessionResumed, session);
            }
            1 => {
                let pending = pair.stands == Stands::Pending;
                let ignored = self.has(Fault::CloseIgnored)
                    || pending && self.has(Fault::CloseWhilePendingIgnored);
                if !ignored {
                    self.expire(slot, id, session);
                }
            }
            _ => {}
        }
    }

    /// Ends a session that somebody else has named.
    pub(super) fn end_anywhere(&self, session: u64) {
        for (id, slot) in self.slots().iter_mut() {
            self.expire(slot, id, session);
        }
    }
}
