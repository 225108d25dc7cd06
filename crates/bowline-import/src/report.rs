//! The report of an import: what was not imported unchanged.
//!
//! Rare cases have one line per message. Frequent ones are counted, so that the report stays short.

use std::collections::BTreeMap;

use super::Unplaced;
use super::words::were;

#[derive(Debug, Default)]
pub(super) struct Report {
    lines: Vec<Unplaced>,
    counts: BTreeMap<Often, usize>,
}

/// Frequent cases, which are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Often {
    /// A message from or to the tool of that name was imported as text.
    ToolTold(String),
    /// The model's reasoning is carried with its answer.
    Thought,
    /// A message without text is carried with the next one.
    Silent,
    /// A message that ChatGPT does not display is part of the conversation.
    Hidden,
    /// Custom instructions, or ChatGPT's memory of the user, became a system message.
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
                "{} imported as text, because models accept no tool results without a call id",
                messages(&format!(" from or to the tool `{name}`")),
            ),
            Self::Thought => {
                format!(
                    "{} kept with the answers but not sent to models",
                    messages(" of reasoning")
                )
            }
            Self::Silent => {
                format!("{} kept but not sent to models", messages(" without text"))
            }
            Self::Hidden => {
                format!("{} imported with the others", messages(" not shown by ChatGPT"))
            }
            Self::Instructions => {
                format!(
                    "{} imported as a system message",
                    messages(" of custom instructions or memory")
                )
            }
        }
    }
}

/// The place of counted cases.
pub(super) const EVERYWHERE: &str = "the whole file";
