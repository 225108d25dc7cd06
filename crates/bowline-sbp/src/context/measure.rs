//! How many tokens a message may have, before its model has counted them.

use std::iter::Sum;
use std::ops::Add;

use memchr::memmem;

use crate::message::Message;

/// The tokens that an image, a sound or a file is counted as.
const MEDIUM: u64 = 1000;
/// The tokens that a message needs beside its text.
const PER_MESSAGE: u64 = 4;
/// The fields of content parts that hold images, sounds, films and files.
const MEDIA: [&str; 4] = ["\"image_url\":", "\"input_audio\":", "\"video_url\":", "\"file\":"];
/// The same in tool results.
const OF_TOOLS: &str = "\"mimeType\":";

/// The size of a part of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measure {
    pub messages: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Images, sounds and files: their bytes say nothing about their tokens.
    pub media: u64,
}

impl Measure {
    pub fn of(message: &Message) -> Self {
        let json = message.as_json();
        let media = match json.contains('[') {
            true => MEDIA.iter().map(|field| count(json, field)).sum(),
            false => 0,
        };
        let media = media + if message.may_have_images() { count(json, OF_TOOLS) } else { 0 };
        let bytes = if media == 0 { json.len() } else { message.content().len() };
        Self { messages: 1, bytes: bytes as u64, media }
    }

    /// Text that is no message.
    pub fn text(bytes: usize) -> Self {
        Self { bytes: bytes as u64, ..Self::default() }
    }

    /// Its tokens, estimated.
    pub fn tokens(self, bytes_per_token: f64) -> u64 {
        self.beside_text() + (self.bytes as f64 / bytes_per_token).ceil() as u64
    }

    /// The bytes of a token if it has so many tokens. None if that cannot be told.
    pub fn bytes_per_token(self, tokens: u64) -> Option<f64> {
        let text = tokens.saturating_sub(self.beside_text());
        let can_tell = self.media == 0 && self.bytes > 0 && text > 0;
        can_tell.then(|| self.bytes as f64 / text as f64)
    }

    /// The tokens that do not depend on the text.
    fn beside_text(self) -> u64 {
        PER_MESSAGE * self.messages + MEDIUM * self.media
    }
}

impl Add for Measure {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            media: self.media + other.media,
        }
    }
}

impl Sum for Measure {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

fn count(json: &str, field: &str) -> u64 {
    memmem::find_iter(json.as_bytes(), field.as_bytes()).count() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn message(json: String) -> Message {
        Message::read(RawValue::from_string(json).unwrap()).unwrap()
    }

    #[test]
    fn images_sounds_and_files_are_counted_by_number_not_by_bytes() {
        let data = "A".repeat(1 << 20);
        for part in [
            format!(
                r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#
            ),
            format!(
                r#"{{"type": "input_audio", "input_audio": {{"data":"{data}","format":"wav"}}}}"#
            ),
            format!(r#"{{"type":"file","file":{{"file_data":"data:a/b;base64,{data}"}}}}"#),
        ] {
            let text = r#"{"type":"text","text":"what is this?"}"#;
            let one = message(format!(r#"{{"role":"user","content":[{text},{part}]}}"#));
            let measure = Measure::of(&one);
            assert_eq!(measure, Measure { messages: 1, bytes: 13, media: 1 });
            assert_eq!(measure.tokens(1.0), 4 + 1000 + 13);
            assert_eq!(measure.bytes_per_token(5000), None, "text is not the only part");
            let two = message(format!(r#"{{"role":"user","content":[{part},{part}]}}"#));
            assert_eq!(Measure::of(&two).media, 2);
        }
        let image = format!(r#"[{{"type":"image","data":"{data}","mimeType":"image/png"}}]"#);
        let result = message(format!(r#"{{"role":"tool","content":{image}}}"#));
        assert_eq!(Measure::of(&result).media, 1);
    }

    #[test]
    fn text_is_counted_by_its_bytes() {
        let json = r#"{"role":"user","content":"say [\"image_url\": 3]"}"#;
        let text = Measure::of(&message(json.into()));
        assert_eq!(text, Measure { messages: 1, bytes: json.len() as u64, media: 0 });
        let both = text + Measure::text(100 - json.len());
        assert_eq!(both.tokens(4.0), 4 + 25);
        assert_eq!(both.bytes_per_token(4 + 25), Some(4.0));
        assert_eq!((both.bytes_per_token(4), Measure::text(0).bytes_per_token(9)), (None, None));
    }
}
