//! The identity of a message for alignment: the same whatever JSON an SDK writes.
//!
//! A hash, because a resent history of 10,000 messages is compared with every turn. A collision
//! costs a wrong place in one prompt, and its sender can only aim it at its own session.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::media;
use crate::message::Message;

/// A hash of what a message says. Whitespace, field order, escapes, and text given as parts do not
/// change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u64);

/// The role of tool results.
const RESULT: &str = "tool";

#[derive(Deserialize)]
struct MessageFields<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_call_id: Option<Text<'a>>,
}

/// A part of a multi-part content.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct CallId<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
}

/// A JSON string, copied only if it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Key {
    pub fn of(message: &Message) -> Self {
        let json = message.as_json();
        let role = match message.role() {
            "developer" => "system",
            "function" => RESULT,
            role => role,
        };
        let mut hash = DefaultHasher::new();
        role.hash(&mut hash);
        if !hash_body(role, json, &mut hash) {
            // Text that the parser refuses (lone surrogates) is compared as it is.
            json.hash(&mut hash);
        }
        Self(hash.finish())
    }

    /// The keys of the results that the tool calls of a message are answered with.
    pub(super) fn of_results(message: &Message) -> Box<[Self]> {
        if !message.may_call() {
            return Box::default();
        }
        let Ok(MessageFields { tool_calls: Some(calls), .. }) =
            serde_json::from_str(message.as_json())
        else {
            return Box::default();
        };
        let calls: Vec<CallId<'_>> = serde_json::from_str(calls.get()).unwrap_or_default();
        let ids = calls.iter().filter_map(|call| call.id.as_ref());
        let key = |id: &Text<'_>| {
            let mut hash = DefaultHasher::new();
            RESULT.hash(&mut hash);
            id.0.hash(&mut hash);
            Self(hash.finish())
        };
        ids.map(key).collect()
    }

    /// A hash of letters and digits alone: the same after Markdown, punctuation or the model's
    /// reasoning was removed. None without any.
    pub fn loose(message: &Message) -> Option<Self> {
        let text = message.content();
        let text = text.rsplit_once("</think>").map_or(text.as_str(), |(_, said)| said);
        // Hashed at once: letter by letter takes several times as long.
        let letters: Vec<u8> = match text.is_ascii() {
            true => {
                let letters = text.bytes().filter(u8::is_ascii_alphanumeric);
                letters.map(|letter| letter.to_ascii_lowercase()).collect()
            }
            false => {
                let letters = text.chars().filter(|letter| letter.is_alphanumeric());
                letters.flat_map(char::to_lowercase).collect::<String>().into_bytes()
            }
        };
        let mut hash = DefaultHasher::new();
        message.role().hash(&mut hash);
        letters.hash(&mut hash);
        (!letters.is_empty()).then(|| Self(hash.finish()))
    }
}

/// Hashes what a message says; false if it cannot be parsed.
fn hash_body(role: &str, json: &str, hash: &mut DefaultHasher) -> bool {
    let Ok(MessageFields { content, tool_calls, tool_call_id }) = serde_json::from_str(json) else {
        return false;
    };
    // A tool result is known by its call: clients shorten results.
    if let (RESULT, Some(id)) = (role, tool_call_id) {
        id.0.hash(hash);
        return true;
    }
    let Some(said) = content.map_or(Some(false), |content| hash_content(content.get(), hash))
    else {
        return false;
    };
    // Calls beside a text are left out by some clients, so the text alone counts.
    if let (false, Some(calls)) = (said, tool_calls) {
        match serde_json::from_str::<Vec<CallId<'_>>>(calls.get()) {
            Ok(calls) => calls.iter().filter_map(|call| call.id.as_ref()).for_each(|id| {
                id.0.hash(hash);
            }),
            Err(_) => calls.get().hash(hash),
        }
    }
    true
}

/// Hashes a content; whether it says anything. None if it cannot be parsed.
fn hash_content(content: &str, hash: &mut DefaultHasher) -> Option<bool> {
    match content.as_bytes().first() {
        Some(b'"') => {
            let text: Text<'_> = serde_json::from_str(content).ok()?;
            Some(hash_text(&text.0, hash))
        }
        Some(b'[') => {
            let parts: Vec<&RawValue> = serde_json::from_str(content).ok()?;
            let mut said = false;
            for part in parts {
                match serde_json::from_str(part.get()) {
                    Ok(Part { text: Some(text) }) => said |= hash_text(&text.0, hash),
                    // An image, audio or a file.
                    Ok(Part { text: None }) | Err(_) => {
                        hash_media(part.get(), hash);
                        said = true;
                    }
                }
            }
            Some(said)
        }
        _ => Some(false),
    }
}

/// The same for a large blob and for a reference to it.
fn hash_media(part: &str, hash: &mut DefaultHasher) {
    let taken_out =
        (part.len() >= media::LEAST).then(|| media::part_without(part, &mut Vec::new()));
    taken_out.flatten().as_deref().unwrap_or(part).hash(hash);
}

/// Hashes a text without its whitespace.
fn hash_text(text: &str, hash: &mut DefaultHasher) -> bool {
    let mut said = false;
    for word in text.split_ascii_whitespace() {
        hash.write(word.as_bytes());
        said = true;
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(json: &str) -> Key {
        Key::of(&Message::read(RawValue::from_string(json.into()).unwrap()).unwrap())
    }

    #[test]
    fn sbp_l1_11_the_same_words_have_the_same_key_however_they_are_written() {
        let plain = key(r#"{"role":"user","content":"é a"}"#);
        for same in [
            r#"{"content":"\u00e9 a","role":"user","name":null}"#,
            r#"{"role":"user","content":" é\n a "}"#,
            r#"{"role":"user","content":[{"type":"text","text":"é"},{"type":"text","text":" a"}]}"#,
        ] {
            assert_eq!(key(same), plain, "{same}");
        }
        let answer = key(r#"{"role":"assistant","content":"Hi."}"#);
        assert_eq!(
            key(r#"{"role":"assistant","content":"Hi.","tool_calls":[{"id":"c"}]}"#),
            answer
        );
        assert_eq!(key(r#"{"content":"Hi.","refusal":null,"role":"assistant"}"#), answer);
    }

    #[test]
    fn other_words_roles_images_and_calls_have_other_keys() {
        let all = [
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"assistant","content":"a"}"#,
            r#"{"role":"user","content":"b"}"#,
            r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,1"}}]}"#,
            r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,2"}}]}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c2"}]}"#,
            r#"{"role":"tool","tool_call_id":"c1","content":"x"}"#,
            r#"{"role":"tool","tool_call_id":"c2","content":"x"}"#,
            r#"{"role":"user","content":"\ud800"}"#,
            r#"{"role":"user","content":"\ud801"}"#,
        ];
        let keys: std::collections::HashSet<_> = all.into_iter().map(key).collect();
        assert_eq!(keys.len(), all.len());
    }

    #[test]
    fn a_call_knows_the_keys_of_its_results() {
        let read = |json: &str| Message::read(RawValue::from_string(json.into()).unwrap()).unwrap();
        let calls =
            r#"{"role":"assistant","content":"","tool_calls":[{"id":"a"},{},{"id":"b\u00e9"}]}"#;
        let results = [
            key(r#"{"role":"tool","tool_call_id":"a","content":"x"}"#),
            key(r#"{"role":"tool","content":"y","tool_call_id":"bé"}"#),
        ];
        assert_eq!(*Key::of_results(&read(calls)), results);
        assert!(Key::of_results(&read(r#"{"role":"assistant","tool_calls":3}"#)).is_empty());
        assert!(Key::of_results(&Message::text("user", "a")).is_empty());
    }

    #[test]
    fn a_loose_key_survives_what_clients_remove_from_answers() {
        let loose = |text: &str| Key::loose(&Message::text("assistant", text));
        let plain = loose("It is 42 & more");
        assert_eq!(loose("<think>hm, 41?</think>\n**It is** `42` & more!"), plain);
        assert_ne!(loose("It is 43 & more"), plain);
        assert_eq!(loose("… !"), None);
    }
}
