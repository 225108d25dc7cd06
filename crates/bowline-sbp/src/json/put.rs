//! Values as JSON text, for the few shapes that are written so often that deriving costs too much.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::Serialize;
use uuid::Uuid;

/// JSON text that is being put together. Names and punctuation are the caller's.
#[derive(Debug)]
pub(crate) struct Json(String);

impl Json {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Text that is JSON already.
    pub(crate) fn raw(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self
    }

    pub(crate) fn string(&mut self, text: &str) -> &mut Self {
        // All of it is looked at, whatever comes: that is faster than to stop at the first, and
        // most texts have nothing to escape.
        let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        match text.bytes().fold(false, |found, byte| found | is_special(byte)) {
            true => self.value(text),
            false => self.raw("\"").raw(text).raw("\""),
        }
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.raw(itoa::Buffer::new().format(number))
    }

    /// Whatever is written seldom.
    pub(crate) fn value(&mut self, value: impl Serialize) -> &mut Self {
        self.raw(&serde_json::to_string(&value).expect("it is made of plain values"))
    }

    pub(crate) fn uuid(&mut self, uuid: &Uuid) -> &mut Self {
        let mut text = Uuid::encode_buffer();
        self.raw("\"").raw(uuid.hyphenated().encode_lower(&mut text)).raw("\"")
    }

    pub(crate) fn time(&mut self, time: &Timestamp) -> &mut Self {
        self.raw("\"");
        let printed = DateTimePrinter::new().print_timestamp(time, &mut self.0);
        printed.expect("memory takes everything");
        self.raw("\"")
    }

    /// What there is of it, or null.
    pub(crate) fn optional<T>(
        &mut self,
        value: Option<T>,
        put: impl FnOnce(&mut Self, T) -> &mut Self,
    ) -> &mut Self {
        match value {
            Some(value) => put(self, value),
            None => self.raw("null"),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What was written from there on, once more.
    pub(crate) fn again(&mut self, from: usize, to: usize) -> &mut Self {
        self.0.extend_from_within(from..to);
        self
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_written_as_the_library_writes_it() {
        for text in ["", "plain", "é 💡", "\"", "\\", "a\nb", "\u{0}\u{1f}", "\u{7f}\u{2028}"] {
            let mut json = Json::with_capacity(0);
            json.string(text);
            assert_eq!(json.finish(), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn times_and_ids_are_written_as_the_library_writes_them() {
        for time in [Timestamp::UNIX_EPOCH, Timestamp::from_millisecond(1_790_000_000_120).unwrap()]
        {
            let mut json = Json::with_capacity(0);
            json.time(&time);
            assert_eq!(json.finish(), serde_json::to_string(&time).unwrap());
        }
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef);
        let mut json = Json::with_capacity(0);
        json.uuid(&id).optional(None, Json::number).number(u64::MAX).value(0.5).value(true);
        assert_eq!(json.finish(), format!("\"{id}\"null{}0.5true", u64::MAX));
    }
}
