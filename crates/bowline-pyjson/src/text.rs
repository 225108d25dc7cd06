//! Strings that may contain lone surrogates.
//!
//! JSON can spell `"\ud800"`, Python keeps it, and a `String` cannot hold it. Such text is stored
//! as WTF-8: UTF-8 in which a lone surrogate is encoded like any code point, in three bytes. Byte
//! order of WTF-8 is code point order, which is how Python sorts keys.
//!
//! Invariants
//! - `Surrogates` only for text with at least one lone surrogate.
//! - A high surrogate directly before a low one is never stored as two lone surrogates.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A JSON string. It borrows from the document if it has no escapes; most have none, and copying
/// them would cost more than the rest of parsing.
#[derive(Clone)]
pub struct Text<'t>(Repr<'t>);

#[derive(Clone)]
enum Repr<'t> {
    Borrowed(&'t str),
    Owned(Box<str>),
    Surrogates(Box<[u8]>),
}

impl Text<'_> {
    /// The text, unless it contains lone surrogates.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Repr::Borrowed(text) => Some(text),
            Repr::Owned(text) => Some(text),
            Repr::Surrogates(_) => None,
        }
    }

    /// The bytes in WTF-8; UTF-8 if there are no lone surrogates.
    pub fn as_wtf8(&self) -> &[u8] {
        match &self.0 {
            Repr::Borrowed(text) => text.as_bytes(),
            Repr::Owned(text) => text.as_bytes(),
            Repr::Surrogates(bytes) => bytes,
        }
    }

    /// The text for display: each lone surrogate becomes `U+FFFD`s.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.as_wtf8())
    }

    /// The same text, without borrowing from the document.
    pub fn into_owned(self) -> Text<'static> {
        Text(match self.0 {
            Repr::Borrowed(text) => Repr::Owned(text.into()),
            Repr::Owned(text) => Repr::Owned(text),
            Repr::Surrogates(bytes) => Repr::Surrogates(bytes),
        })
    }
}

/// Builds a text from parts.
#[derive(Default)]
pub(super) struct Builder {
    /// Everything up to the last lone surrogate.
    halves: Vec<u8>,
    /// The text after it.
    rest: String,
}

impl Builder {
    pub(super) fn push_str(&mut self, more: &str) {
        self.rest.push_str(more);
    }

    pub(super) fn push(&mut self, char: char) {
        self.rest.push(char);
    }

    /// Adds a lone surrogate; the caller has checked that it is not part of a pair.
    pub(super) fn push_surrogate(&mut self, half: u16) {
        debug_assert!((0xd800..0xe000).contains(&half));
        self.halves.extend_from_slice(self.rest.as_bytes());
        self.rest.clear();
        let [second, third] = [half >> 6, half].map(|bits| 0x80 | (bits & 0x3f) as u8);
        self.halves.extend_from_slice(&[0xed, second, third]);
    }

    /// The text so far, in an exact allocation; the builder is empty afterwards.
    pub(super) fn finish(&mut self) -> Text<'static> {
        let text = if self.halves.is_empty() {
            Repr::Owned((*self.rest).into())
        } else {
            self.halves.extend_from_slice(self.rest.as_bytes());
            Repr::Surrogates((*self.halves).into())
        };
        self.halves.clear();
        self.rest.clear();
        Text(text)
    }
}

impl Default for Text<'_> {
    fn default() -> Self {
        Self::from("")
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(Repr::Owned(text.into()))
    }
}

impl<'t> From<&'t str> for Text<'t> {
    fn from(text: &'t str) -> Self {
        Self(Repr::Borrowed(text))
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_wtf8() == other.as_wtf8()
    }
}

impl Eq for Text<'_> {}

impl Hash for Text<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_wtf8().hash(state);
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_wtf8() == other.as_bytes()
    }
}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    /// By code point, lone surrogates included.
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_wtf8().cmp(other.as_wtf8())
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_string_lossy().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_half(before: &str, half: u16, after: &str) -> Text<'static> {
        let mut text = Builder::default();
        text.push_str(before);
        text.push_surrogate(half);
        text.push_str(after);
        text.finish()
    }

    #[test]
    fn borrowed_and_owned_texts_are_alike() {
        let (borrowed, owned) = (Text::from("é"), Text::from("é".to_owned()));
        assert_eq!(borrowed, owned);
        assert_eq!(borrowed.clone().into_owned().as_str(), Some("é"));
        assert_eq!(borrowed.cmp(&owned), Ordering::Equal);
        assert_ne!(owned, *"e");
    }

    #[test]
    fn a_builder_starts_afresh_after_each_text() {
        let mut builder = Builder::default();
        builder.push_surrogate(0xdc00);
        builder.push('x');
        assert_eq!(builder.finish().as_wtf8(), b"\xed\xb0\x80x");
        builder.push_str("plain");
        assert_eq!(builder.finish().as_str(), Some("plain"));
        assert_eq!(builder.finish(), *"");
    }

    #[test]
    fn lone_surrogates_are_kept_beside_ordinary_text() {
        let text = with_half("aé", 0xd83d, "b😀");
        assert_eq!(text.as_wtf8(), b"a\xc3\xa9\xed\xa0\xbdb\xf0\x9f\x98\x80");
        assert_eq!(text.as_str(), None);
        assert_eq!(text.to_string_lossy(), "aé\u{fffd}\u{fffd}\u{fffd}b😀");
    }

    #[test]
    fn sbp_l3_04_order_is_by_code_point_not_by_utf16() {
        let low = with_half("", 0xd800, "");
        let high = with_half("", 0xdfff, "");
        let mut texts =
            [Text::from("\u{10000}"), Text::from("\u{ffff}"), high, Text::from("z"), low];
        texts.sort();
        let order: Vec<&[u8]> = texts.iter().map(Text::as_wtf8).collect();
        let expected: [&[u8]; 5] =
            [b"z", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xef\xbf\xbf", b"\xf0\x90\x80\x80"];
        assert_eq!(order, expected);
    }
}
