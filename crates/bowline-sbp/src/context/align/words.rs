//! Whether one message is an edited version of another, by their words.
//!
//! Apart, because examples look like edited messages: a caller that sends the same examples with
//! each question, often made from one template, must not have them taken for its conversation.

use crate::context::Key;
use crate::message::Message;

/// The share of common words that makes two messages versions of one.
const SIMILAR: (usize, usize) = (3, 5);
/// Fewer words say too little to be similar.
const LEAST: usize = 3;
/// An answer of at most so many words may be a label, which many questions have in common.
const SHORT: usize = 5;
/// An answer with a longer JSON text is not short.
const SHORT_JSON: usize = 512;

/// The different words of a message, in order.
#[derive(Debug)]
pub(super) struct WordSet(Vec<String>);

impl WordSet {
    pub(super) fn of(message: &Message) -> Self {
        let text = message.content().to_lowercase();
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let mut words: Vec<_> = words.map(str::to_owned).collect();
        words.sort_unstable();
        words.dedup();
        Self(words)
    }

    /// How many words both have. One of them may be long.
    fn common(&self, other: &Self) -> usize {
        let (few, many) = if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        few.0.iter().filter(|word| many.0.binary_search(word).is_ok()).count()
    }

    /// Whether most words of the shorter one are in the other: edited, or cut short.
    pub(super) fn is_similar(&self, other: &Self) -> bool {
        let shorter = self.0.len().min(other.0.len());
        shorter >= LEAST && self.common(other) * SIMILAR.1 >= shorter * SIMILAR.0
    }

    /// Whether all words of the shorter one are in the other: with context added, or without it.
    fn is_part(&self, other: &Self) -> bool {
        let shorter = self.0.len().min(other.0.len());
        shorter > 0 && self.common(other) == shorter
    }
}

/// Whether an answer is so short that it says little about its question. Tool calls without a text are
/// known by their ids.
pub(super) fn is_short(answer: &Message) -> bool {
    if answer.as_json().len() > SHORT_JSON {
        return false;
    }
    let text = answer.content();
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    (1..=SHORT).contains(&words.take(SHORT + 1).count())
}

/// The text of a question.
#[derive(Debug)]
pub(super) struct QuestionText(String);

impl QuestionText {
    pub(super) fn of(message: &Message) -> Self {
        Self(message.content().trim().to_owned())
    }

    /// Whether one is the other with context before or behind it.
    pub(super) fn is_part(&self, other: &Self) -> bool {
        // A part of a word says nothing.
        let ends_word = |next: Option<char>| next.is_none_or(|next| !next.is_alphanumeric());
        let ends = |whole: &str, part: &str| {
            let (before, behind) = (whole.strip_suffix(part), whole.strip_prefix(part));
            before.is_some_and(|before| ends_word(before.chars().next_back()))
                || behind.is_some_and(|behind| ends_word(behind.chars().next()))
        };
        let (a, b) = (self.0.as_str(), other.0.as_str());
        !a.is_empty() && !b.is_empty() && (ends(a, b) || ends(b, a))
    }
}

/// The questions of a request, to tell an edited question from another one of the same template.
#[derive(Debug)]
pub(super) struct Questions(Vec<(Key, WordSet)>);

impl Questions {
    pub(super) fn new(messages: Vec<&Message>) -> Self {
        let words = |message: &Message| (Key::of(message), WordSet::of(message));
        Self(messages.into_iter().map(words).collect())
    }

    /// Whether a question that was sent is a version of one in the log: equal, or alike, and more so
    /// than it is like the other questions of its request.
    pub(super) fn is_version(&self, sent: &Message, known: &Message) -> bool {
        let key = Key::of(sent);
        let loose = || Key::loose(sent).is_some_and(|key| Key::loose(known) == Some(key));
        if key == Key::of(known) || loose() {
            return true;
        }
        let (sent, known) = (WordSet::of(sent), WordSet::of(known));
        if !sent.is_part(&known) && !sent.is_similar(&known) {
            return false;
        }
        let common = sent.common(&known);
        let mut others = self.0.iter().filter(|(other, _)| *other != key);
        others.all(|(_, other)| sent.common(other) < common)
    }
}
