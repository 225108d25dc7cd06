//! Picking up what an earlier process left: its turns are run again, its surfaces let go.

use std::sync::Arc;

use bowline_store::Result;
use jiff::Timestamp;

use super::Engine;
use super::request::TurnRequest;
use crate::hub::LiveTurn;

impl Engine {
    /// Takes up unfinished turns (SBP-L2-13, G13). Gives their number.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<usize> {
        let unfinished = self.store.take_over(self.instance, Timestamp::now()).await?;
        let count = unfinished.len();
        for turn in unfinished {
            let Some(request) = TurnRequest::from_json(&turn.request) else {
                tracing::error!(turn = %turn.id, "an unfinished turn cannot be read and is dropped");
                self.store.abandon_turn(turn.id, self.instance).await?;
                continue;
            };
            // However many waited, all were accepted once: none is refused now.
            let Ok(ticket) = self.lanes.enter(turn.session_id, usize::MAX) else { continue };
            let live = LiveTurn::new(turn.id, turn.session_id, turn.attempt, request.tether);
            self.begin(live, request, ticket, false);
        }
        Ok(count)
    }
}
