//! A turn that is kept back while it is translated for this surface (SBP-L4-03).
//!
//! Apart, because it is the one case in which a turn that is in the log does not go out at once.
//! Who translates, and how long that may take, is the driver's business; it reports the text as it
//! comes, and then how it ended.
//!
//! Invariants
//! - While a turn is held nothing newer goes out (SBP-L2-05).
//! - It counts as sent with its last frame: nothing can confirm half of it (G5).
//! - It goes out, once: translated, or as the rules have it. What was shown of a translation that
//!   failed is void: the turn starts over with a chunk at offset 0.
//! - A translation passes through the surface's form, too: a model that does not do as it was told
//!   cannot put a table on a watch.

use super::{Delivery, LoggedTurn, Streaming};
use crate::frame::ServerFrame;

#[derive(Debug)]
pub(super) struct Held {
    turn: LoggedTurn,
    shown: Shown,
}

/// What there is of the translation.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and in a box already")]
enum Shown {
    /// It goes out as it comes.
    Chunks(Streaming),
    /// It goes out in the end: here is what came so far.
    Whole(String),
}

impl Delivery {
    /// The same for a surface whose turns may be translated: they are shown when they have ended,
    /// since a translation needs the whole.
    pub fn translating(self, translating: bool) -> Self {
        Self { translating, ..self }
    }

    /// Keeps the next turn of the log back. What was pending comes whole in the end, as it would
    /// without a translation.
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

    /// The turn that is kept back: the log is not to be read on before it is out.
    pub fn held(&self) -> Option<&LoggedTurn> {
        self.held.as_ref().map(|held| &held.turn)
    }

    /// More of the held turn's translation.
    pub fn translated(&mut self, more: &str) -> Option<ServerFrame> {
        let held = self.held.as_mut()?;
        match &mut held.shown {
            Shown::Whole(text) => {
                text.push_str(more);
                None
            }
            Shown::Chunks(streaming) => {
                let (offset, shown) = streaming.show(more, false);
                let (turn_id, seq) = (held.turn.turn_id, held.turn.seq);
                (!shown.is_empty()).then(|| self.chunk(turn_id, seq, offset, &shown))
            }
        }
    }

    /// Lets the held turn go: with its translation, if that is `complete` and gives the surface
    /// anything to show, else as the rules have it. Says whether it is translated.
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
                    let last = self.chunk(turn.turn_id, turn.seq, offset, &rest);
                    let last = Some(last).filter(|_| !rest.is_empty());
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
