//! What the owner sends, and what becomes of it here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::session::{Arrival, CommandId, Fact, Reply};

use super::super::wire::{Item, ReplyTo, StateAt, TextAt, ToEdge};
use super::super::{CUT_OFF, Incoming};
use super::Proxy;
use crate::session::driver::ReplyAndText;
use crate::session::live::{Live, Phase};

/// After which a text that does not grow is asked for once more.
const STALE: Duration = Duration::from_secs(1);

impl Proxy<'_> {
    /// Handles a message. False: the session has another owner, or the owner is dead.
    pub(super) fn arrived(&mut self, message: Incoming) -> bool {
        match message {
            Incoming::ToEdge(message) => {
                self.hear();
                self.take(*message)
            }
            Incoming::Text(piece) => {
                self.hear();
                if self.texts.fill(*piece) {
                    self.came();
                }
                true
            }
            Incoming::ToOwner(_) => true,
            Incoming::Dead => false,
        }
    }

    /// The owner is there.
    fn hear(&mut self) {
        let now = Instant::now();
        if now - self.heard > CUT_OFF {
            self.items.heard_again();
        }
        (self.heard, self.doubt) = (now, None);
    }

    fn take(&mut self, message: ToEdge) -> bool {
        if message.not_mine {
            return false;
        }
        self.items.acknowledged(message.took, Instant::now());
        if let Some(state) = message.state {
            // Until it is acknowledged it is sent again.
            self.acknowledge_soon();
            self.show(state);
        }
        for (number, reply) in message.replies {
            // One that came again shows that its acknowledgement was lost.
            self.acknowledge_soon();
            if self.replies.arrived(number, message.base) == Arrival::Take {
                self.held.push((number, reply));
            }
        }
        true
    }

    /// Shows a state to watchers, unless a newer one is shown.
    fn show(&mut self, state: StateAt) {
        if state.version <= self.version {
            return;
        }
        self.version = state.version;
        self.came();
        let state = state.into_state(Instant::now());
        let running = state.turns.first().filter(|turn| turn.running);
        let text = running.map(|turn| self.texts.of(turn.id, turn.attempt));
        let live = Live { phase: Phase::Known, state, text };
        self.driver.own_ref.live.send_replace(live);
    }

    /// Gives the replies whose state is shown and whose text is complete.
    pub(super) fn give(&mut self) {
        for (number, reply) in std::mem::take(&mut self.held) {
            match self.may_be_given(&reply) {
                true => {
                    self.answer(Arc::unwrap_or_clone(reply));
                    self.acknowledge_soon();
                }
                false => self.held.push((number, reply)),
            }
        }
    }

    fn may_be_given(&self, reply: &ReplyTo) -> bool {
        let ends = matches!(reply.reply, Reply::Ended { .. });
        let complete = reply.text.is_none_or(|at| !ends || self.texts.has_chunks(at));
        reply.version <= self.version && complete
    }

    fn answer(&mut self, reply: ReplyTo) {
        let ReplyTo { command, text, reply, .. } = reply;
        let text = match reply {
            Reply::Accepted { .. } => text.map(|at| self.texts.of(at.turn, at.attempt)),
            _ => None,
        };
        if let Reply::Ended { turn, .. } = &reply {
            self.texts.ended(*turn);
        }
        let attached = match &reply {
            Reply::Attached(attached) => Some(attached.epoch),
            _ => None,
        };
        let waiting = self.driver.replies.remove(&CommandId(command));
        let given = waiting.is_some_and(|to| to.send(ReplyAndText { reply, text }).is_ok());
        match attached {
            Some(epoch) if given => {
                self.attached.insert(epoch);
            }
            // Whoever attached is gone.
            Some(epoch) => {
                self.push(Item::Fact(Fact::SurfaceGone { epoch, restarts: false }));
            }
            None => {}
        }
    }

    /// Whether a reply waits for a state that was lost on its way.
    pub(super) fn is_behind(&self) -> bool {
        self.held.iter().any(|(_, reply)| reply.version > self.version)
    }

    /// From where text is missing. `alive`: of texts that have not grown lately, too, whose last
    /// piece may have been lost.
    pub(super) fn missing_text(&mut self, alive: bool) -> Vec<TextAt> {
        let held = self.held.iter().map(|(_, reply)| reply);
        let ended = held.filter(|reply| matches!(reply.reply, Reply::Ended { .. }));
        let wanted: Vec<_> = ended.filter_map(|reply| reply.text).collect();
        let stale = alive.then(|| STALE.max(self.items.round_trip() * 3 / 2));
        self.texts.missing(&wanted, stale)
    }
}
