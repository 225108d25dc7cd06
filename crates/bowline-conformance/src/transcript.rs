//! What a check sent and received, in order, for whoever has to find out why it failed.

use std::sync::{Mutex, PoisonError};

/// The last lines of a check's conversation with the server.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    lines: Mutex<Vec<String>>,
}

impl Transcript {
    pub(crate) fn sent(&self, what: &str) {
        self.note("> ", what);
    }

    pub(crate) fn came(&self, what: &str) {
        self.note("< ", what);
    }

    fn note(&self, direction: &str, what: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MOST_LINES {
            lines.remove(0);
        }
        lines.push(format!("{direction}{}", shortened(what, LONGEST_LINE)));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The beginning of a text, if it is longer than that many characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

const MOST_LINES: usize = 60;
const LONGEST_LINE: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_shortened() {
        let transcript = Transcript::default();
        for n in 0..MOST_LINES + 5 {
            transcript.sent(&n.to_string());
        }
        transcript.came(&"ä".repeat(LONGEST_LINE + 1));
        let lines = transcript.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (MOST_LINES, "> 6"));
        assert_eq!(lines[MOST_LINES - 1], format!("< {}…", "ä".repeat(LONGEST_LINE)));
    }
}
