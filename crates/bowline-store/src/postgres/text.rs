//! Texts of callers in columns of type `text`, which cannot hold U+0000.
//!
//! Escaped, so that what was stored is read back unchanged: U+0000 as U+0001 `0`, U+0001 as U+0001 `1`. Equal
//! texts stay equal and different ones different, so escaped columns can be keys. JSON has neither character
//! and stays as it is.

use std::borrow::Cow;

const ESCAPE: char = '\u{1}';

/// A text as it is stored.
pub(crate) fn stored(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(ESCAPE, "\u{1}1").replace('\0', "\u{1}0"))
}

/// The text that was stored.
pub(crate) fn read(stored: String) -> String {
    if !stored.contains(ESCAPE) {
        return stored;
    }
    stored.replace("\u{1}0", "\0").replace("\u{1}1", "\u{1}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_without_control_characters_are_stored_as_they_are() {
        assert!(matches!(stored("{\"a\":\"\\u0000\"}"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn every_text_is_read_back_and_holds_no_nul(text in "[\0\u{1}01a]{0,12}") {
            let kept = stored(&text).into_owned();
            prop_assert!(!kept.contains('\0'));
            prop_assert_eq!(read(kept), text);
        }
    }
}
