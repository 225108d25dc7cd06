//! Handoff to another agent: queued behind the turns before it, at most one per session (G8).

use super::turns::Item;
use super::{Machine, Step};
use crate::error::Failure;
use crate::id::{Seq, SessionId};
use crate::lifecycle::Change;
use crate::session::commit::Write;
use crate::session::effect::{Refusal, Reply};
use crate::session::input::{CommandId, HandOff, HandedOff, KnownKey, Now, Packed};

impl Machine {
    pub(super) fn hand_off(
        &mut self,
        to: CommandId,
        handoff: HandOff,
        known: Option<KnownKey>,
        now: Now,
        step: &mut Step,
    ) {
        // A retried handoff: its reply was lost, or it was sent twice.
        if self.head.handed_to.as_ref().is_some_and(|(successor, _)| *successor == handoff.id) {
            let HandOff { id, export_id, .. } = handoff;
            return step.reply(to, Reply::HandedOff { id, export_id });
        }
        for item in &mut self.queue {
            if let Item::HandOff { handoff: waiting, waiters, .. } = item
                && (waiting.id == handoff.id || same_key(waiting, &handoff))
            {
                return waiters.push(to);
            }
        }
        if known.is_some() {
            return step.refuse(to, Refusal::KeyReused);
        }
        if let Some((successor, _)) = &self.head.handed_to {
            return step.refuse(to, Refusal::HandedOver(*successor));
        }
        if self.stopping {
            return step.refuse(to, Refusal::Stopping);
        }
        if self.queue.iter().any(|item| item.turn().is_none()) {
            return step.refuse(to, Refusal::HandoffWaits);
        }
        let (handoff, waiters) = (Box::new(handoff), vec![to]);
        self.queue.push_back(Item::HandOff { handoff, waiters, packing: None });
        self.start_next(now, step);
    }

    /// The bundle of the handoff at the front is built. Entries appended meanwhile, such as the
    /// note of a cancelled turn behind it, are not part of it and stay in this session.
    pub(super) fn packed(
        &mut self,
        id: SessionId,
        last_seq: Seq,
        packed: Result<Box<Packed>, Failure>,
        now: Now,
        step: &mut Step,
    ) {
        match self.queue.front() {
            // Compares the position, too: a task of an earlier owner may report late.
            Some(Item::HandOff { handoff, packing: Some((seq, _)), .. })
                if (handoff.id, *seq) == (id, last_seq) => {}
            _ => return,
        }
        let Some(Item::HandOff { handoff, waiters, packing: Some(point) }) = self.queue.pop_front()
        else {
            return;
        };
        let packed = match packed {
            Ok(packed) => *packed,
            Err(failure) => {
                let refusal = Refusal::Failed(failure);
                waiters.into_iter().for_each(|to| step.refuse(to, refusal.clone()));
                return self.start_next(now, step);
            }
        };
        let export_id = handoff.export_id;
        self.head.handed_to = Some((handoff.id, handoff.to_agent.clone()));
        step.write(Write::HandOff(Box::new(HandedOff {
            handoff: *handoff,
            packed,
            point,
            at: now.at,
        })));
        if self.head.status.is_open() {
            self.move_on(Change::Suspend, now);
        }
        self.head.updated_at = now.at;
        self.detach_all(now, step);
        for to in waiters {
            step.reply(to, Reply::HandedOff { id, export_id });
        }
        let refusal = Refusal::HandedOver(id);
        while !self.queue.is_empty() {
            self.refuse_front(&refusal, now, step);
        }
    }
}

fn same_key(a: &HandOff, b: &HandOff) -> bool {
    matches!((&a.key, &b.key), (Some(a), Some(b)) if a == b)
}
