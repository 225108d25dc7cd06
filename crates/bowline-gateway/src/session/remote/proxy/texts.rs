//! Copies of the texts of turns that another replica runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::id::TurnId;
use bowline_sbp::session::LiveState;
use bytes::Bytes;

use super::super::wire::{TextAt, TextPiece};
use crate::session::text::TextBuffer;

/// After which the text of a turn that no state has shown is dropped.
const UNKNOWN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Copies(HashMap<(TurnId, u32), Copy>);

#[derive(Debug)]
struct Copy {
    text: Arc<TextBuffer>,
    grown: Instant,
    /// A piece came, and one before it has not.
    has_gap: bool,
    /// Its readers know how the turn ended.
    has_ended: bool,
    /// A state showed the turn.
    is_known: bool,
}

impl Copies {
    /// The text of that attempt.
    pub(super) fn of(&mut self, turn: TurnId, attempt: u32) -> Arc<TextBuffer> {
        let new = || Copy {
            text: Arc::new(TextBuffer::new(turn, attempt)),
            grown: Instant::now(),
            has_gap: false,
            has_ended: false,
            is_known: false,
        };
        Arc::clone(&self.0.entry((turn, attempt)).or_insert_with(new).text)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a piece. False: one before it is missing.
    pub(super) fn fill(&mut self, piece: TextPiece) -> bool {
        let TextPiece { at, seq, chunks, text, .. } = piece;
        self.of(at.turn, at.attempt);
        let Some(copy) = self.0.get_mut(&(at.turn, at.attempt)) else { return false };
        if let Some(seq) = seq {
            copy.text.set_seq(seq);
        }
        let chunks = chunks.into_iter().map(Bytes::from).collect();
        copy.has_gap = !copy.text.fill((at.chunks, at.bytes), chunks, &text);
        if !copy.has_gap {
            copy.grown = Instant::now();
        }
        !copy.has_gap
    }

    pub(super) fn has_chunks(&self, at: TextAt) -> bool {
        let copy = self.0.get(&(at.turn, at.attempt));
        copy.map_or(0, |copy| copy.text.position().0) >= at.chunks
    }

    /// From where texts are missing: those with a gap, those of `wanted` that are not complete, and
    /// those that have not grown for so long as `stale` says.
    pub(super) fn missing(&mut self, wanted: &[TextAt], stale: Option<Duration>) -> Vec<TextAt> {
        let mut missing = Vec::new();
        for ((turn, attempt), copy) in &mut self.0 {
            let (chunks, bytes) = copy.text.position();
            let of = |at: &&TextAt| (at.turn, at.attempt) == (*turn, *attempt);
            let short = wanted.iter().find(of).is_some_and(|at| at.chunks > chunks);
            let is_stale = stale.is_some_and(|after| copy.grown.elapsed() >= after);
            if copy.has_gap || short || is_stale {
                copy.has_gap = false;
                missing.push(TextAt { turn: *turn, attempt: *attempt, chunks, bytes });
            }
        }
        // Not one piece of it has come.
        let unknown = wanted.iter().filter(|at| !self.0.contains_key(&(at.turn, at.attempt)));
        missing.extend(unknown.map(|at| TextAt { chunks: 0, bytes: 0, ..*at }));
        missing
    }

    /// Drops the texts of turns that have ended and that nobody reads. Text may come before the state
    /// that shows its turn; of a short one, no state may.
    pub(super) fn tidy(&mut self, state: &LiveState) {
        let is_live = |turn: TurnId| state.turns.iter().any(|live| live.id == turn);
        self.0.retain(|(turn, _), copy| {
            let live = is_live(*turn);
            copy.is_known |= live;
            let is_over = copy.has_ended || copy.is_known || copy.grown.elapsed() > UNKNOWN;
            live || !is_over || Arc::strong_count(&copy.text) > 1
        });
    }

    pub(super) fn ended(&mut self, turn: TurnId) {
        let its = self.0.iter_mut().filter(|((known, _), _)| *known == turn);
        its.for_each(|(_, copy)| copy.has_ended = true);
    }

    /// Nothing is added to them any more.
    pub(super) fn abandon(&self) {
        let open = self.0.values().filter(|copy| !copy.has_ended);
        open.for_each(|copy| copy.text.abandon());
    }
}
