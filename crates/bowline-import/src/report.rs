//! What did not come over as it was.
//!
//! What concerns one message has a line of its own. What happens in every other conversation is
//! counted instead: nobody reads a thousand lines that say the same.

use std::collections::BTreeMap;

use super::Unplaced;
use super::words::were;

#[derive(Debug, Default)]
pub(super) struct Report {
    lines: Vec<Unplaced>,
    counts: BTreeMap<Often, usize>,
}

/// What happens often.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Often {
    /// A message from a tool of that name, or to it, stands as text.
    ToolTold(String),
    /// What the model thought is carried with its answer.
    Thought,
    /// A message without any text is carried with the next one.
    Silent,
    /// A message that people were not shown is part of the conversation.
    Hidden,
    /// Somebody's custom instructions, or the model's notes on them, are a system message.
    Instructions,
}

impl Report {
    pub(super) fn say(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.lines.push(Unplaced { place: place.into(), what: what.into() });
    }

    pub(super) fn count(&mut self, often: Often) {
        *self.counts.entry(often).or_default() += 1;
    }

    pub(super) fn finish(self) -> Vec<Unplaced> {
        let mut lines = self.lines;
        for (often, count) in self.counts {
            lines.push(Unplaced { place: EVERYWHERE.into(), what: often.told(count) });
        }
        lines
    }
}

impl Often {
    fn told(&self, count: usize) -> String {
        let messages = |of: &str| were(count, &format!("message{of}"), &format!("messages{of}"));
        match self {
            Self::ToolTold(name) => format!(
                "{} told as text, because models take no results of tools without a call's id",
                messages(&format!(" from or to the tool `{name}`")),
            ),
            Self::Thought => {
                format!("{} kept with the answers, out of models' sight", messages(" of reasoning"))
            }
            Self::Silent => {
                format!("{} kept aside, out of models' sight", messages(" without text"))
            }
            Self::Hidden => {
                format!("{} taken over with the others", messages(" not shown by ChatGPT"))
            }
            Self::Instructions => {
                format!("{} made a system message", messages(" of custom instructions or memory"))
            }
        }
    }
}

/// The place of what is counted.
pub(super) const EVERYWHERE: &str = "the whole file";
