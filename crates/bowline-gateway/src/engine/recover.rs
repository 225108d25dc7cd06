//! Picking up what an earlier process left: its turns are run again, its surfaces let go.

use std::sync::Arc;

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{SnapshotId, TurnId};
use bowline_sbp::message::Message;
use bowline_store::{EntryKind, Finish, NewEntry, Result};
use uuid::Uuid;

use super::request::TurnRequest;
use super::{Begin, Engine};
use crate::clock;
use crate::hub::LiveTurn;

impl Engine {
    /// Takes up unfinished turns (SBP-L2-13, G13). Gives their number.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<usize> {
        let unfinished = self.store.take_over(self.instance, clock::now()).await?;
        let count = unfinished.len();
        for turn in unfinished {
            let Some(request) = TurnRequest::from_json(&turn.request) else {
                tracing::error!(turn = %turn.id, "an unfinished turn cannot be read");
                self.store.finish_turn(self.unreadable(turn.id)).await?;
                continue;
            };
            // However many waited, all were accepted once: none is refused now.
            let Ok(ticket) = self.lanes.enter(turn.session_id, usize::MAX) else { continue };
            let live = LiveTurn::new(turn.id, turn.session_id, turn.attempt, request.tether);
            let (advanced, keyed) = (turn.advanced, turn.keyed);
            let begin = Begin { advanced, keyed, ..Begin::default() };
            let (engine, turn) = (Arc::clone(self), self.known(live));
            self.tasks.spawn(async move {
                engine.run_in_lane(turn, Arc::new(request), ticket, begin).await;
            });
        }
        Ok(count)
    }

    /// A turn that nobody can run any more: its reader is told, never left to wonder.
    fn unreadable(&self, turn_id: TurnId) -> Finish {
        let text = "A message that was accepted here before a restart cannot be read any more. \
                    Send it again.";
        let note = NewEntry {
            status: TurnStatus::Failed,
            tethered: true,
            ..NewEntry::new(EntryKind::Note, Message::text("system", text))
        };
        Finish {
            turn_id,
            owner: self.instance,
            entries: vec![note],
            checkpoint: SnapshotId(Uuid::now_v7()),
            checkpoint_every: 1,
            result: None,
            at: clock::now(),
        }
    }
}
