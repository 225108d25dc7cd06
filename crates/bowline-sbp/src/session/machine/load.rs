//! Loading a session: recovers what an earlier owner left unfinished (SBP-L2-13, G13).

use std::sync::Arc;

use super::approvals::Question;
use super::turns::{Item, Turn, TurnState, started};
use super::{Machine, SessionLimits, Step};
use crate::error::{Code, Failure};
use crate::frame::TurnStatus;
use crate::id::TurnId;
use crate::lifecycle::Change;
use crate::message::{EntryKind, Message};
use crate::session::commit::{Loaded, Write};
use crate::session::effect::Effect;
use crate::session::input::Now;
use crate::session::log::NewEntry;
use crate::session::request::TurnRequest;

impl Machine {
    /// The session from its rows, and the recovery step to commit first.
    pub fn load(loaded: Loaded, limits: SessionLimits, now: Now) -> (Self, Step) {
        let mut step = Step::default();
        let mut machine = Self::empty(loaded.id, loaded.user, loaded.agent_id, loaded.head, limits);
        machine.devices = Arc::new(loaded.devices);
        machine.grants = loaded.grants;
        machine.held = loaded.held;
        machine.asked = loaded.asked.into_iter().map(|row| Question::new(row, now)).collect();
        // Attachments end with their owner: the surfaces reconnect.
        for attachment in &loaded.attachments {
            step.write(Write::Detach { epoch: attachment.epoch });
        }
        // Guests neither resume nor suspend a session.
        if loaded.attachments.iter().any(|attachment| !attachment.guest) {
            machine.move_on(Change::SurfaceLost, now);
        }
        for row in loaded.turns {
            let Some(request) = TurnRequest::from_json(&row.request) else {
                machine.unreadable(row.id, row.keyed, now, &mut step);
                continue;
            };
            let mut turn = Turn::recovered(&row, request);
            turn.attempt += u32::from(row.started);
            machine.queue.push_back(Item::Turn(Box::new(turn)));
        }
        machine.take_up(now, &mut step);
        (machine, step)
    }

    /// Restarts the first unfinished turn. One that used up its attempts ends as a note, behind the results
    /// of its calls.
    fn take_up(&mut self, now: Now, step: &mut Step) {
        while let Some(Item::Turn(turn)) = self.queue.front_mut() {
            if turn.advanced {
                // Its last owner may have ended between a tool call and its result.
                turn.state = TurnState::Replanning;
                let (turn, attempt) = (turn.id, turn.attempt);
                started(turn, attempt, step);
                step.effect(Effect::Replan { turn, attempt });
                return;
            }
            if turn.tries() <= self.limits.attempts {
                return self.start_next(now, step);
            }
            self.give_up_interrupted(now, step);
        }
    }

    /// Whether the turn was begun too often. While a person is asked, restarts do not count.
    pub(super) fn is_used_up(&self, turn: &Turn) -> bool {
        let waits = |asked: &Question| asked.is_of(turn.id) && asked.is_open();
        turn.tries() > self.limits.attempts && !self.asked.iter().any(waits)
    }

    /// Ends the turn at the front, which used up its attempts.
    pub(super) fn give_up_interrupted(&mut self, now: Now, step: &mut Step) {
        let text = "This turn was interrupted twice by a restart of the gateway and was given up. \
                    Send it again to have it answered.";
        let failure = Failure::new(Code::Internal, text);
        if let Some(Item::Turn(turn)) = self.queue.pop_front() {
            self.give_up_unrun(*turn, failure, text, TurnStatus::Interrupted, now, step);
        }
    }

    /// A stored request that cannot be parsed: the turn ends as a note in the log.
    fn unreadable(&mut self, id: TurnId, keyed: bool, now: Now, step: &mut Step) {
        let text = "A message that was accepted here before a restart cannot be read any more. \
                    Send it again.";
        let note = NewEntry {
            status: TurnStatus::Failed,
            tethered: true,
            ..NewEntry::new(EntryKind::Note, Message::text("system", text))
        };
        self.append(id, vec![note], false, now, step);
        step.write(Write::End { turn: id, keyed, result: None });
    }
}
