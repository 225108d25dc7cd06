//! Titles of sessions: the one that a person gave, or the first words that were said.
//!
//! Apart, because the session machine, imports and migrations must make the same title of the same
//! message.
//!
//! Invariants
//! - A title is one line of visible characters, never empty.
//! - An automatic title never replaces one that a person gave.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::message::{EntryKind, Message};

/// The longest automatic title, in characters.
pub const LONGEST_AUTOMATIC: usize = 60;
/// The longest title that a person gives, in characters.
pub const LONGEST_GIVEN: usize = 120;

/// The titles of one session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Titles {
    /// Given by a person.
    pub given: Option<Arc<str>>,
    /// The first words of the first user message.
    pub automatic: Option<Arc<str>>,
}

impl Titles {
    /// The title to show.
    pub fn shown(&self) -> Option<&str> {
        self.given.as_deref().or(self.automatic.as_deref())
    }

    /// Takes the automatic title from this entry of the log, if there is none yet.
    pub fn see(&mut self, kind: EntryKind, message: &Message) {
        let is_said = kind == EntryKind::Message && message.role() == "user";
        if self.automatic.is_none() && is_said {
            self.automatic = first_words(&message.content()).map(Arc::from);
        }
    }
}

/// The title is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a title has at most {LONGEST_GIVEN} characters")]
pub struct TitleTooLong;

/// A title as a person wrote it, on one line; none if nothing visible is left.
pub fn given(text: &str) -> Result<Option<Arc<str>>, TitleTooLong> {
    let mut title = String::new();
    for word in words(text) {
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(&word);
    }
    if title.chars().count() > LONGEST_GIVEN {
        return Err(TitleTooLong);
    }
    Ok((!title.is_empty()).then(|| title.into()))
}

/// The first words of a message: at most [`LONGEST_AUTOMATIC`] characters, cut between words if
/// possible. Reads no more of the text than it needs.
pub fn first_words(text: &str) -> Option<String> {
    let mut title = String::new();
    let mut length = 0;
    for word in words(text) {
        let more = word.chars().count() + usize::from(length > 0);
        if length > 0 && length + more > LONGEST_AUTOMATIC {
            break;
        }
        if length > 0 {
            title.push(' ');
        }
        title.extend(word.chars().take(LONGEST_AUTOMATIC));
        length += more;
        if length >= LONGEST_AUTOMATIC {
            break;
        }
    }
    (!title.is_empty()).then_some(title)
}

/// The words of a text, visible characters only. A word is cut off a little above the longest
/// title, because a text need not contain a space.
fn words(text: &str) -> impl Iterator<Item = String> {
    let visible = |word: &str| -> String {
        word.chars().filter(|c| is_visible(*c)).take(LONGEST_GIVEN + 1).collect()
    };
    text.split_whitespace().map(visible).filter(|word| !word.is_empty())
}

/// Whether a terminal shows it, and it does not change how other characters are shown.
fn is_visible(c: char) -> bool {
    let changes_direction_or_is_empty = matches!(
        c,
        '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    );
    !c.is_control() && !changes_direction_or_is_empty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_automatic_title_is_the_first_words_on_one_line() {
        for (text, title) in [
            ("Plan a trip to Kyoto", "Plan a trip to Kyoto"),
            ("  Plan\n\ta trip \u{2028} now ", "Plan a trip now"),
            ("\u{1b}[2Jhi \u{202e}there\u{7}", "[2Jhi there"),
            (
                "Please write a long letter to the harbour master about the missing bowline",
                "Please write a long letter to the harbour master about the",
            ),
            // Exactly sixty characters, and one more.
            (&"ab ".repeat(20), "ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab"),
            (&format!("{} tail", "é".repeat(60)), &"é".repeat(60)),
            (&"é".repeat(61), &"é".repeat(60)),
            (&format!("a {}", "b".repeat(58)), &format!("a {}", "b".repeat(58))),
            (&format!("a {}", "b".repeat(59)), "a"),
        ] {
            let found = first_words(text).unwrap();
            assert_eq!(found, title);
            assert!(found.chars().count() <= LONGEST_AUTOMATIC);
        }
        for nothing in ["", " \n", "\u{7}\u{200b}"] {
            assert_eq!(first_words(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_given_title_is_kept_whole_or_refused() {
        assert_eq!(given(" Trip\nto  Kyoto\u{1b} ").unwrap().as_deref(), Some("Trip to Kyoto"));
        assert_eq!(given(" \n"), Ok(None));
        assert_eq!(given(&"é".repeat(120)).unwrap().unwrap().chars().count(), 120);
        assert_eq!(given(&"é".repeat(121)), Err(TitleTooLong));
        assert_eq!(given(&"a ".repeat(61)), Err(TitleTooLong));
    }

    #[test]
    fn the_first_message_of_a_user_with_words_gives_the_title() {
        let mut titles = Titles::default();
        titles.see(EntryKind::Message, &Message::text("system", "be brief"));
        titles.see(EntryKind::Note, &Message::text("user", "a note"));
        assert_eq!(titles.shown(), None);
        for text in [" ", "hello there", "and then"] {
            titles.see(EntryKind::Message, &Message::text("user", text));
        }
        assert_eq!(titles.shown(), Some("hello there"));
        titles.given = Some("Mine".into());
        assert_eq!(titles.shown(), Some("Mine"));
    }
}
