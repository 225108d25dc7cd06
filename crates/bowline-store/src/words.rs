//! What was said, as it is indexed, and what is searched for.
//!
//! Apart from the backends, so that the same messages are found in each.

use bowline_sbp::message::said;

/// The most hits of one session in a list: the others are found by reading it.
pub(crate) const HITS_OF_ONE: usize = 3;
/// The most matching messages that one search looks at.
pub(crate) const LOOKED_AT: usize = 20_000;
/// A snippet's length in words, and how many bytes of a message are looked through for it.
pub(crate) const SNIPPET_WORDS: usize = 24;
pub(crate) const SNIPPET_FROM: usize = 256 << 10;
/// The length of a snippet, in characters, where the words are not found in that part.
pub(crate) const BEGINNING: usize = 120;

/// Role and text of a message that is indexed: what a user or the agent said.
pub(crate) fn text_of(message: &str) -> Option<(String, String)> {
    let (role, text) = said(message)?;
    let by_someone = matches!(&*role, "user" | "assistant") && !text.is_empty();
    by_someone.then(|| (role.into_owned(), text))
}

/// A word to search for, as it was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Typed<'a> {
    pub(crate) text: &'a str,
    /// It was typed as `word*`, and finds all words that begin so.
    pub(crate) is_prefix: bool,
}

/// The words to search for. What has no letter or digit is left out.
pub(crate) fn typed(words: &[String]) -> impl Iterator<Item = Typed<'_>> {
    words.iter().filter_map(|word| {
        let (text, is_prefix) = match word.strip_suffix('*') {
            // All words with the prefix are read: a single letter would be most of the index.
            Some(text) => (text, text.chars().count() >= 2),
            None => (word.as_str(), false),
        };
        text.chars().any(char::is_alphanumeric).then_some(Typed { text, is_prefix })
    })
}

/// The beginning of a text, on one line.
pub(crate) fn beginning(text: &str) -> String {
    one_line(&text.chars().take(BEGINNING).collect::<String>())
}

pub(crate) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).collect()
}
