//! Words of texts, as the search index has them, and the snippet of a hit.
//!
//! Apart, because PostgreSQL's own parsers of text differ with the server's locale and dictionaries:
//! what is found must not. A word is a run of letters and digits, in lower case and without the
//! diacritics of Latin letters, as SQLite's tokeniser has them (`unicode61 remove_diacritics 2`).

use std::ops::Range;

use unicode_normalization::char::{decompose_canonical, is_combining_mark};

use crate::words::{SNIPPET_FROM, SNIPPET_WORDS, Typed, beginning, one_line, typed};

/// The most bytes of a word that are compared.
const WORD_BYTES: usize = 512;

/// A word of a text, and where it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) folded: String,
    place: Range<usize>,
}

/// The words of a text, in order.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word> {
    let mut letters = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, first) = letters.find(|(_, letter)| letter.is_alphanumeric())?;
        let (mut folded, mut end) = (String::new(), start + first.len_utf8());
        fold(first, &mut folded);
        // A combining mark belongs to the letter before it.
        while let Some((at, letter)) =
            letters.next_if(|(_, letter)| letter.is_alphanumeric() || is_combining_mark(*letter))
        {
            fold(letter, &mut folded);
            end = at + letter.len_utf8();
        }
        folded.truncate(folded.floor_char_boundary(WORD_BYTES));
        Some(Word { folded, place: start..end })
    })
}

/// Appends a letter in lower case and without its diacritics.
fn fold(letter: char, to: &mut String) {
    if letter.is_ascii() {
        return to.push(letter.to_ascii_lowercase());
    }
    for letter in letter.to_lowercase() {
        // Marks that follow their Latin letter as characters of their own.
        if ('\u{300}'..='\u{36f}').contains(&letter) {
            continue;
        }
        let mut base = None;
        decompose_canonical(letter, |part| {
            base.get_or_insert(part);
        });
        to.push(base.filter(char::is_ascii).unwrap_or(letter));
    }
}

/// A phrase to search for: one word that was typed, which may be several words of a text, as
/// `well-known` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Phrase {
    pub(super) words: Vec<String>,
    /// The last word is a prefix.
    pub(super) is_prefix: bool,
}

/// The phrases to search for.
pub(super) fn phrases(typed_words: &[String]) -> Vec<Phrase> {
    let phrase = |typed: Typed<'_>| Phrase {
        words: words(typed.text).map(|word| word.folded).collect(),
        is_prefix: typed.is_prefix,
    };
    typed(typed_words).map(phrase).filter(|phrase| !phrase.words.is_empty()).collect()
}

impl Phrase {
    /// Whether these words begin with the phrase.
    fn begins(&self, text: &[Word]) -> bool {
        let Some((last, before)) = self.words.split_last() else { return false };
        let Some(end) = text.get(before.len()) else { return false };
        let is_last = match self.is_prefix {
            true => end.folded.starts_with(last),
            false => end.folded == *last,
        };
        is_last && before.iter().zip(text).all(|(wanted, word)| *wanted == word.folded)
    }

    /// Where the phrase is in a text.
    fn find(&self, text: &[Word]) -> Option<usize> {
        (0..text.len()).find(|at| self.begins(&text[*at..]))
    }
}

/// Whether the text has all phrases.
pub(super) fn has_all(text: &str, phrases: &[Phrase]) -> bool {
    let words: Vec<_> = words(text).collect();
    phrases.iter().all(|phrase| phrase.find(&words).is_some())
}

/// The part of a text around the first of the phrases that it has, on one line.
pub(super) fn snippet(text: &str, phrases: &[Phrase]) -> String {
    let text = &text[..text.floor_char_boundary(SNIPPET_FROM)];
    let words: Vec<_> = words(text).collect();
    let Some(at) = phrases.iter().filter_map(|phrase| phrase.find(&words)).min() else {
        return beginning(text);
    };
    let latest = words.len().saturating_sub(SNIPPET_WORDS);
    let first = at.saturating_sub(SNIPPET_WORDS / 2).min(latest);
    let next = first + SNIPPET_WORDS;
    let from = if first == 0 { 0 } else { words[first].place.start };
    let (to, is_cut) = match words.get(next) {
        None => (text.len(), false),
        Some(_) => (words[next - 1].place.end, true),
    };
    let [before, after] = [first > 0, is_cut].map(|is_cut| if is_cut { "…" } else { "" });
    format!("{before}{}{after}", one_line(&text[from..to]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::BEGINNING;

    fn folded(text: &str) -> Vec<String> {
        words(text).map(|word| word.folded).collect()
    }

    fn phrases_of(text: &str) -> Vec<Phrase> {
        phrases(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_letters_and_digits_in_lower_case_without_diacritics() {
        for (text, expected) in [
            ("Café ÉLODIE ångström", &["cafe", "elodie", "angstrom"][..]),
            ("e\u{301}t\u{65}\u{302}", &["ete"]),
            ("ệ Ǖ", &["e", "u"]),
            ("well-known, isn't", &["well", "known", "isn", "t"]),
            ("Ünïcode 4711 x2", &["unicode", "4711", "x2"]),
            ("Привет, Ёж мир", &["привет", "ёж", "мир"]),
            ("東京 café\u{7}bar", &["東京", "cafe", "bar"]),
            ("İstanbul", &["istanbul"]),
            ("— 🎉 \u{94d} \u{301}", &[]),
        ] {
            assert_eq!(folded(text), expected, "{text}");
        }
        assert_eq!(folded(&"é".repeat(2000)), ["e".repeat(WORD_BYTES)]);
    }

    #[test]
    fn a_word_that_was_typed_is_a_phrase_and_may_be_a_prefix() {
        let found = phrases_of("well-known Qui* q* * \" —");
        let phrase = |words: &[&str], is_prefix| Phrase {
            words: words.iter().map(|word| word.to_string()).collect(),
            is_prefix,
        };
        let expected =
            [phrase(&["well", "known"], false), phrase(&["qui"], true), phrase(&["q"], false)];
        assert_eq!(found, expected);
        let text = "the well known café";
        for (typed, is_there) in [
            ("well-known", true),
            ("known-well", false),
            ("known CAF*", true),
            ("caf", false),
            ("well-kn*", true),
            ("we-known", false),
            ("café-x", false),
        ] {
            assert_eq!(has_all(text, &phrases_of(typed)), is_there, "{typed}");
        }
    }

    #[test]
    fn a_snippet_is_cut_around_the_first_phrase() {
        let text = format!("{} the RABBIT\u{7}\ngoes, {}.", "so ".repeat(50), "on ".repeat(50));
        let found = snippet(&text, &phrases_of("rabbit"));
        assert!(found.starts_with("…so so") && found.ends_with("on on…"), "{found}");
        assert!(found.contains("the RABBIT goes, on"), "{found}");
        assert_eq!(words(&found).count(), SNIPPET_WORDS);
        let short = "How do I tie a bowline?";
        assert_eq!(snippet(short, &phrases_of("bowline")), short);
        assert_eq!(snippet(&text, &phrases_of("goes")).matches('…').count(), 2);
        let at_the_end = snippet(&format!("{}end.", "a ".repeat(40)), &phrases_of("end"));
        assert!(at_the_end.starts_with('…') && at_the_end.ends_with("a end."), "{at_the_end}");
        let far = format!("{} rabbit", "x".repeat(SNIPPET_FROM));
        assert_eq!(snippet(&far, &phrases_of("rabbit")), "x".repeat(BEGINNING));
    }
}
