//! The frames of turns, for one surface.

use super::{Delivery, LoggedTurn};
use crate::frame::{ChunkV0_9, CompleteV0_9, ServerFrame, TetherTurn, TurnComplete};
use crate::id::{Seq, TurnId};

/// The turn that a chunk belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnFrame<'a> {
    pub(super) turn_id: TurnId,
    pub(super) seq: Seq,
    pub(super) step: u64,
    pub(super) model: Option<&'a str>,
}

impl<'a> TurnFrame<'a> {
    pub(super) fn of(turn: &'a LoggedTurn) -> Self {
        let LoggedTurn { turn_id, seq, step_count: step, ref model, .. } = *turn;
        Self { turn_id, seq, step, model: model.as_deref() }
    }
}

impl Delivery {
    pub(super) fn restarted(&self, turn_id: TurnId) -> ServerFrame {
        let session_id = self.session_id;
        ServerFrame::TurnRestarted { chunk_id: turn_id, turn_id, session_id }
    }

    pub(super) fn tether_turn(&mut self, turn: LoggedTurn, content: String) -> ServerFrame {
        let turn_index = self.turn_index;
        self.turn_index += 1;
        ServerFrame::TetherTurn(TetherTurn {
            turn_index,
            turn_id: turn.turn_id,
            seq: turn.seq,
            created_at: turn.created_at,
            session_id: self.session_id,
            status: turn.status,
            role: turn.role,
            content,
            model_used: turn.model,
        })
    }

    pub(super) fn complete(&self, turn: LoggedTurn) -> ServerFrame {
        ServerFrame::TurnComplete(TurnComplete {
            chunk_id: turn.turn_id,
            session_id: self.session_id,
            seq: turn.seq,
            turn_id: turn.turn_id,
            step_count: turn.step_count,
            model: turn.model,
            status: turn.status,
            v0_9: self
                .reads_0_9
                .then_some(CompleteV0_9 { step: turn.step_count, cost_usd: turn.cost_usd }),
        })
    }

    pub(super) fn chunk(&self, of: TurnFrame<'_>, offset: usize, delta: String) -> ServerFrame {
        let v0_9 = self.reads_0_9.then(|| ChunkV0_9 {
            chunk: delta.clone(),
            content: delta.clone(),
            step: of.step,
            model: of.model.map(str::to_owned),
        });
        ServerFrame::TurnChunk {
            chunk_id: of.turn_id,
            delta,
            session_id: self.session_id,
            seq: of.seq,
            offset: offset as u64,
            v0_9,
        }
    }
}
