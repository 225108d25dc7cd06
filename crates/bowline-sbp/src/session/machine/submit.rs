//! Accepting turns: idempotent, in order, with a limit on waiting turns (SBP-L2-18, G3).

use super::turns::{Item, Turn};
use super::{Machine, Step};
use crate::error::{Code, Failure};
use crate::id::TurnId;
use crate::lifecycle::{Change, Status};
use crate::session::commit::Write;
use crate::session::effect::{Refusal, Reply};
use crate::session::input::{CommandId, KnownKey, Now, Submit};
use crate::session::row::{IdempotencyKey, TurnRow};
use crate::session::turn::{Done, Outcome};

impl Machine {
    pub(super) fn submit(
        &mut self,
        to: CommandId,
        submit: Submit,
        known: Option<KnownKey>,
        now: Now,
        step: &mut Step,
    ) {
        if self.asked_before(to, &submit, known, step) {
            return;
        }
        if let Err(refusal) = self.takes_turns() {
            return step.refuse(to, refusal);
        }
        // Behind the look at what was asked before: that is in the bundle, and its caller is answered.
        if let Some(until) = self.held_until(now) {
            return step.refuse(to, Refusal::Held(until));
        }
        if self.head.status == Status::Suspended && !submit.resume {
            return step.reply(to, Reply::Suspended);
        }
        let waiting = self.queue.iter().filter(|item| !item.turn().is_some_and(Turn::runs));
        if !self.queue.is_empty() && waiting.count() >= self.limits.waiting_turns {
            return step.refuse(to, Refusal::Full(self.limits.waiting_turns));
        }
        self.accept(to, submit, now, step);
    }

    /// Whether the session accepts turns.
    pub(super) fn takes_turns(&self) -> Result<(), Refusal> {
        if !self.head.status.is_open() {
            return Err(Refusal::Ended(self.head.status));
        }
        if let Some((successor, _)) = &self.head.handed_to {
            return Err(Refusal::HandedOver(*successor));
        }
        if self.stopping {
            return Err(Refusal::Stopping);
        }
        Ok(())
    }

    /// Handles a retried request, known by its turn id or idempotency key: it gets the same turn
    /// (G3).
    fn asked_before(
        &mut self,
        to: CommandId,
        submit: &Submit,
        known: Option<KnownKey>,
        step: &mut Step,
    ) -> bool {
        let is_it = |turn: &&Turn| {
            let keys = turn.key.as_ref().zip(submit.key.as_ref());
            let same_name = |(a, b): (&IdempotencyKey, &IdempotencyKey)| {
                (&a.scope, &a.key) == (&b.scope, &b.key)
            };
            turn.id == submit.turn || keys.is_some_and(same_name)
        };
        if let Some(turn) = self.queue.iter().filter_map(Item::turn).find(is_it) {
            let keys = turn.key.as_ref().zip(submit.key.as_ref());
            // A turn recovered after a crash has no key in memory: the store compared the bodies.
            let unlike = known.as_ref().is_some_and(|known| !known.same_body);
            if unlike || keys.is_some_and(|(a, b)| a.body_hash != b.body_hash) {
                step.refuse(to, Refusal::KeyReused);
                return true;
            }
            let id = turn.id;
            self.join(to, id, submit.wait, step);
            return true;
        }
        if self.recent.iter().any(|(turn, _)| *turn == submit.turn) {
            self.join(to, submit.turn, submit.wait, step);
            return true;
        }
        let Some(known) = known else { return false };
        let (true, Some(turn)) = (known.same_body, known.turn_id) else {
            step.refuse(to, Refusal::KeyReused);
            return true;
        };
        if let Some(result) = known.result {
            let outcome = Done::from_json(&result).ok_or_else(unreadable);
            step.reply(to, Reply::Ended { turn, outcome: Box::new(outcome) });
            return true;
        }
        // The turn may have ended after the store was read. If it left no outcome, refuse: running
        // it again is only safe after another look into the store.
        let lives = self.queue.iter().filter_map(Item::turn).any(|live| live.id == turn);
        match lives || self.recent.iter().any(|(recent, _)| *recent == turn) {
            true => self.join(to, turn, submit.wait, step),
            false => step.refuse(to, Refusal::TurnUnknown),
        }
        true
    }

    pub(super) fn join(&mut self, to: CommandId, turn: TurnId, wait: bool, step: &mut Step) {
        match wait {
            true => self.wait_for(to, turn, step),
            false => step.reply(to, Reply::Accepted { turn }),
        }
    }

    pub(super) fn wait_for(&mut self, to: CommandId, turn: TurnId, step: &mut Step) {
        for item in &mut self.queue {
            if let Item::Turn(live) = item
                && live.id == turn
            {
                match self.stopping && !live.runs() {
                    true => step.refuse(to, Refusal::Stopping),
                    false => live.waiters.push(to),
                }
                return;
            }
        }
        match self.recent.iter().find(|(recent, _)| *recent == turn) {
            Some((_, outcome)) => {
                let outcome = Box::new(Outcome::clone(outcome));
                step.reply(to, Reply::Ended { turn, outcome });
            }
            None => step.refuse(to, Refusal::TurnUnknown),
        }
    }

    fn accept(&mut self, to: CommandId, submit: Submit, now: Now, step: &mut Step) {
        let Submit { turn: id, request, key, resume, sender, wait, blobs } = submit;
        let found = Some(self.head.status).filter(|_| !std::mem::take(&mut self.making));
        if resume {
            self.move_on(Change::Resumed, now);
        }
        if self.head.status != Status::Running {
            self.move_on(Change::TurnTaken, now);
        }
        self.head.turns_accepted += 1;
        let turn = TurnRow {
            id,
            place: self.head.turns_accepted,
            request: request.to_json(),
            found,
            started: false,
            attempt: 1,
            advanced: false,
            keyed: key.is_some(),
            open_calls: None,
        };
        step.write(Write::Accept { turn, key: key.clone(), blobs });
        let waiters = if wait { vec![to] } else { Vec::new() };
        let turn = Turn::accepted(id, request, key, found, sender, waiters);
        self.queue.push_back(Item::Turn(Box::new(turn)));
        if !wait {
            step.reply(to, Reply::Accepted { turn: id });
        }
        self.start_next(now, step);
    }
}

fn unreadable() -> Failure {
    Failure::new(Code::Internal, "the stored result of this turn cannot be read")
}
