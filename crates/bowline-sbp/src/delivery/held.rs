//! A turn that is held back while it is translated for this surface (SBP-L4-03).
//!
//! Apart, because it is the one case in which a turn of the log is not sent at once. The driver
//! runs the translation and its timeout; it reports the text as it arrives, and then the end.
//!
//! Invariants
//! - While a turn is held, nothing newer is sent (SBP-L2-05).
//! - It counts as sent with its last frame: a half-sent turn cannot be confirmed (G5).
//! - It is sent once: translated, or in the surface's form. If a translation fails, the surface
//!   discards what it got of it: the turn starts over with a chunk at offset 0.
//! - A translation passes through the surface's form, too: a model that ignores its instructions
//!   cannot send a table to a watch.

use super::{Delivery, LoggedTurn, Streaming, TurnFrame};
use crate::frame::ServerFrame;

#[derive(Debug)]
pub(super) struct Held {
    turn: LoggedTurn,
    shown: Shown,
}

/// The translation so far.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one instance per surface, already boxed")]
enum Shown {
    /// Sent as it arrives.
    Chunks(Streaming),
    /// Sent as one frame at the end: the text so far.
    Whole(String),
}

impl Delivery {
    /// The same for a surface whose turns may be translated: no live text is sent, since a
    /// translation needs the whole turn.
    pub fn translating(self, translating: bool) -> Self {
        Self { translating, ..self }
    }

    /// Holds the next turn of the log back. A pending turn is sent as one frame at the end, as it
    /// would be without a translation.
    pub fn hold(&mut self, turn: LoggedTurn) {
        if turn.seq <= self.sent || self.held.is_some() {
            return;
        }
        self.streaming = None;
        let shown = match self.comes_whole(turn.seq) {
            true => Shown::Whole(String::new()),
            false => Shown::Chunks(self.start(turn.turn_id, 0)),
        };
        self.held = Some(Box::new(Held { turn, shown }));
    }

    /// The held turn: no further log entries may be sent before it.
    pub fn held(&self) -> Option<&LoggedTurn> {
        self.held.as_ref().map(|held| &held.turn)
    }

    /// More of the held turn's translation.
    pub fn translated(&mut self, more: &str) -> Option<ServerFrame> {
        let (offset, shown) = match &mut self.held.as_mut()?.shown {
            Shown::Whole(text) => {
                text.push_str(more);
                return None;
            }
            Shown::Chunks(streaming) => streaming.show(more, false),
        };
        let step = TurnFrame::of(self.held()?);
        (!shown.is_empty()).then(|| self.chunk(step, offset, shown))
    }

    /// Sends the held turn: its translation, if that is `complete` and not empty in the surface's
    /// form, otherwise the original in that form. Returns whether it is the translation.
    pub fn release(&mut self, complete: bool) -> (bool, Vec<ServerFrame>) {
        let Some(held) = self.held.take() else { return (false, Vec::new()) };
        let Held { turn, shown } = *held;
        match shown {
            Shown::Whole(text) if complete => {
                let text = self.formed(text);
                if !text.trim().is_empty() {
                    self.sent = turn.seq;
                    return (true, vec![self.tether_turn(turn, text)]);
                }
            }
            Shown::Chunks(mut streaming) if complete => {
                let (offset, rest) = streaming.show("", true);
                if streaming.sent > 0 {
                    self.sent = turn.seq;
                    let has_rest = !rest.is_empty();
                    let last = has_rest.then(|| self.chunk(TurnFrame::of(&turn), offset, rest));
                    return (true, last.into_iter().chain([self.complete(turn)]).collect());
                }
            }
            Shown::Whole(_) | Shown::Chunks(_) => {}
        }
        (false, self.logged(turn))
    }
}

#[cfg(test)]
mod tests;
