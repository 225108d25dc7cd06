//! The tool `clipboard`: reads and writes it with the clipboard program of this machine.

use bowline_client::surface::ToolOutcome;
use serde_json::{Value, json};

use super::{program, text};

type Line = &'static [&'static str];

/// The command lines that read and write the clipboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Programs {
    read: Line,
    write: Line,
}

const KNOWN: [Programs; 5] = [
    Programs { read: &["pbpaste"], write: &["pbcopy"] },
    Programs { read: &["wl-paste", "--no-newline"], write: &["wl-copy"] },
    Programs {
        read: &["xclip", "-selection", "clipboard", "-out"],
        write: &["xclip", "-selection", "clipboard", "-in"],
    },
    Programs {
        read: &["xsel", "--clipboard", "--output"],
        write: &["xsel", "--clipboard", "--input"],
    },
    Programs { read: &["termux-clipboard-get"], write: &["termux-clipboard-set"] },
];

impl Programs {
    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        KNOWN[0]
    }

    /// The first pair that is installed.
    pub(super) fn here() -> Option<Self> {
        KNOWN.into_iter().find(|known| program::is_here(known.read[0]))
    }

    pub(super) async fn call(self, input: &Value) -> ToolOutcome {
        match text(input, "text") {
            Some(text) => {
                program::hand_over(self.write[0], &self.write[1..], Some(text)).await?;
                Ok(json!({ "copied": true }))
            }
            None => {
                let text = program::call(self.read[0], &self.read[1..], None).await?;
                Ok(json!({ "text": text }))
            }
        }
    }
}
