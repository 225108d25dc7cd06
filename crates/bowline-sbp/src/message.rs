//! One chat message, kept byte for byte as it was received.
//!
//! A message is raw JSON text with its role parsed: unknown fields, number spellings and key order
//! survive storage, history and export unchanged.

use std::borrow::Cow;

use memchr::memchr2;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::blob;
use crate::json::without_halves;

/// A message as raw JSON.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Message {
    raw: Box<RawValue>,
    #[serde(skip)]
    role: Cow<'static, str>,
    #[serde(skip)]
    hidden: bool,
    /// Whether it may contain tool calls. Cached, because every model request sends the whole
    /// history.
    #[serde(skip)]
    calls: bool,
    /// Whether it contains `\u` escapes. Cached for the same reason.
    #[serde(skip)]
    escapes: bool,
    /// Whether it may be a tool result with images. Cached for the same reason.
    #[serde(skip)]
    images: bool,
    /// Whether it may refer to blobs. Cached for the same reason.
    #[serde(skip)]
    refers: bool,
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Message::read(Box::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// The kind of a log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A message from a caller: user, system, tool result.
    Message,
    /// An answer of the agent.
    Turn,
    /// A message from the gateway to the reader; never sent to a model.
    Note,
    /// A tool call that the gateway made during a turn, or its result. Sent to the model, but not
    /// delivered to surfaces and callers.
    Action,
}

impl EntryKind {
    pub fn as_str(self) -> &'static str {
        match self {
            EntryKind::Message => "message",
            EntryKind::Turn => "turn",
            EntryKind::Note => "note",
            EntryKind::Action => "action",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [EntryKind::Message, EntryKind::Turn, EntryKind::Note, EntryKind::Action]
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }

    /// The default kind of a message with that role.
    pub fn of_role(role: &str) -> Self {
        if role == "assistant" { EntryKind::Turn } else { EntryKind::Message }
    }
}

/// Why a value is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    #[error("each message must be an object")]
    NotAnObject,
    #[error("each message needs a `role` of 1 to 64 characters")]
    NoRole,
}

#[derive(Deserialize)]
struct Head {
    role: String,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: Option<String>,
}

impl Message {
    /// Parses a raw value as a message.
    pub fn read(raw: Box<RawValue>) -> Result<Self, InvalidMessage> {
        if !raw.get().starts_with('{') {
            return Err(InvalidMessage::NotAnObject);
        }
        // Searching for one byte first is much faster, and most messages do not contain it.
        let calls = raw.get().contains('_') && raw.get().contains("\"tool_calls\"");
        let escapes = raw.get().contains('\\') && raw.get().contains("\\u");
        if let Some(role) = usual_role(raw.get()).filter(|_| !escapes) {
            return Ok(Self::of(raw, Cow::Borrowed(role), calls, escapes));
        }
        let head: Head = serde_json::from_str(raw.get()).map_err(|_| InvalidMessage::NoRole)?;
        if head.role.is_empty() || head.role.len() > 64 {
            return Err(InvalidMessage::NoRole);
        }
        Ok(Self::of(raw, Cow::Owned(head.role), calls, escapes))
    }

    fn of(raw: Box<RawValue>, role: Cow<'static, str>, calls: bool, escapes: bool) -> Self {
        let images = role == "tool" && raw.get().contains("\"mimeType\"");
        let refers = raw.get().contains('[') && raw.get().contains(blob::PREFIX);
        Self { raw, role, hidden: false, calls, escapes, images, refers }
    }

    /// A message that is made here, with a role.
    pub(crate) fn made(message: &Value) -> Self {
        let raw = to_raw_value(message).expect("a JSON value always serialises");
        Self::read(raw).expect("the message was just made with a role")
    }

    /// A plain text message.
    pub fn text(role: &str, content: &str) -> Self {
        let body = serde_json::json!({ "role": role, "content": content });
        let raw = serde_json::value::to_raw_value(&body).expect("a JSON value always serialises");
        Self::of(raw, Cow::Owned(role.to_owned()), false, true)
    }

    /// The same message with another JSON text: a change inside its content.
    pub(crate) fn with_json(&self, json: String) -> Self {
        let raw = RawValue::from_string(json).expect("a part was replaced by a part");
        let changed = Self::read(raw).expect("its role is unchanged");
        Self { hidden: self.hidden, ..changed }
    }

    /// Marks it as exchanged between gateway and model only: callers never saw it.
    pub fn hidden(self) -> Self {
        Self { hidden: true, ..self }
    }

    pub fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// The JSON text for upstreams: without lone surrogates, which strict servers reject.
    pub fn for_servers(&self) -> Cow<'_, str> {
        if self.escapes { without_halves(self.as_json()) } else { Cow::Borrowed(self.as_json()) }
    }

    /// Whether it may contain tool calls; false positives are possible.
    pub fn may_call(&self) -> bool {
        self.calls
    }

    /// Whether it may be a tool result with images; false positives are possible.
    pub fn may_have_images(&self) -> bool {
        self.images
    }

    /// Whether it may refer to blobs; false positives are possible.
    pub fn may_refer(&self) -> bool {
        self.refers
    }

    pub fn role(&self) -> &str {
        &self.role
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        self.raw.get()
    }

    /// The text for display: the content string, or the text parts of a multi-part content.
    pub fn content(&self) -> String {
        if let Some((_, content)) = usual(self.as_json()) {
            return content;
        }
        let Ok(Body { content: Some(content) }) = serde_json::from_str(self.as_json()) else {
            return String::new();
        };
        match content.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(content.get()).unwrap_or_default(),
            Some(b'[') => {
                let parts: Vec<Part> = serde_json::from_str(content.get()).unwrap_or_default();
                parts.into_iter().filter_map(|part| part.text).collect()
            }
            _ => String::new(),
        }
    }
}

/// Role and display text of a stored message. Called for every delivered turn, so the usual form
/// is recognised without a JSON parser.
pub fn said(json: &str) -> Option<(Cow<'static, str>, String)> {
    usual(json).or_else(|| {
        let message = Message::read(RawValue::from_string(json.to_owned()).ok()?).ok()?;
        let content = message.content();
        Some((message.role, content))
    })
}

/// The usual roles.
const ROLES: [&str; 4] = ["assistant", "user", "system", "tool"];

/// Fast path: role and content of a message with exactly these two fields, as most have.
fn usual(json: &str) -> Option<(Cow<'static, str>, String)> {
    let (role, rest) = json.strip_prefix("{\"role\":\"")?.split_once('"')?;
    if role.contains('\\') {
        return None;
    }
    let role = match ROLES.into_iter().find(|known| *known == role) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(role.to_owned()),
    };
    let text = rest.strip_prefix(",\"content\":")?.strip_suffix('}')?;
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if memchr2(b'"', b'\\', inner.as_bytes()).is_none() {
        return Some((role, inner.to_owned()));
    }
    // With escapes the parser decides; it also rejects more than one string.
    Some((role, serde_json::from_str(text).ok()?))
}

/// Fast path: the role, if it is the first field and occurs once. Not for text with escapes, in
/// which field names can be spelled differently.
fn usual_role(json: &str) -> Option<&'static str> {
    let rest = json.strip_prefix("{\"role\":\"")?;
    let role = ROLES.into_iter().find(|role| {
        rest.strip_prefix(role).is_some_and(|rest| rest.starts_with("\",") || rest == "\"}")
    })?;
    // A second `"role"` may be a duplicate field: left to the parser.
    (!rest.contains("\"role\"")).then_some(role)
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn raw(json: &str) -> Message {
        Message::read(RawValue::from_string(json.into()).unwrap()).unwrap()
    }

    fn user(text: &str) -> Message {
        Message::text("user", text)
    }

    #[test]
    fn a_message_keeps_its_bytes() {
        let text = r#"{"role":"user", "content":"é\ud800","x":1E400,"big":123456789012345678901234567890}"#;
        assert_eq!(raw(text).as_json(), text);
    }

    #[test]
    fn the_short_way_to_a_content_says_what_the_long_one_says() {
        for (json, content) in [
            (r#"{"role":"user","content":"plain"}"#, Some("plain")),
            (r#"{"role":"user","content":""}"#, Some("")),
            (r#"{"role":"user","content":"a\n\"b\" \u00e9 \\"}"#, Some("a\n\"b\" é \\")),
            (r#"{"role":"user","content":"a","name":"b"}"#, None),
            (r#"{"role":"user","content":"a","content":"b"}"#, None),
            (r#"{"role":"us\"er","content":"a"}"#, None),
            (r#"{"role":"user","content":"\ud800"}"#, None),
            (r#"{"role":"user","content":null}"#, None),
            (r#"{"role":"user","content":[{"text":"a"}]}"#, None),
            (r#"{"role":"user","name":"\",\"content\":\"x\"","content":"a"}"#, None),
            (r#"{"content":"a","role":"user"}"#, None),
        ] {
            let short = usual(json);
            assert_eq!(short.as_ref().map(|(_, content)| content.as_str()), content, "{json}");
            let long: Value = serde_json::from_str(json).unwrap_or_default();
            if let Some((role, content)) = short {
                assert_eq!((&long["role"], &long["content"]), (&role.into(), &content.into()));
            } else {
                let message = raw(json);
                let long = (message.role().to_owned().into(), message.content());
                assert_eq!(said(json), Some(long), "{json}");
            }
        }
    }

    #[test]
    fn what_is_not_a_message_is_refused() {
        let read = |text: &str| Message::read(RawValue::from_string(text.into()).unwrap());
        assert_eq!(read("[]"), Err(InvalidMessage::NotAnObject));
        assert_eq!(read("3"), Err(InvalidMessage::NotAnObject));
        assert_eq!(read(r#"{"content":"x"}"#), Err(InvalidMessage::NoRole));
        assert_eq!(read(r#"{"role":5}"#), Err(InvalidMessage::NoRole));
        assert_eq!(read(r#"{"role":""}"#), Err(InvalidMessage::NoRole));
    }

    #[test]
    fn content_reads_strings_and_text_parts() {
        assert_eq!(user("hello").content(), "hello");
        let parts = r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"},{"type":"text","text":"b"}]}"#;
        assert_eq!(raw(parts).content(), "ab");
        assert_eq!(raw(r#"{"role":"assistant","content":null}"#).content(), "");
    }

    #[test]
    fn the_role_is_found_fast_and_always_rightly() {
        for (json, role) in [
            (r#"{"role":"user"}"#, "user"),
            (r#"{"role":"assistant","content":"x"}"#, "assistant"),
            (r#"{"role":"user","content":"say \"role\""}"#, "user"),
            (r#"{"content":"x","role":"system"}"#, "system"),
            (r#"{"role":"users","content":"x"}"#, "users"),
        ] {
            assert_eq!(raw(json).role(), role, "{json}");
        }
        for twice in
            [r#"{"role":"user","content":"a","role":"tool"}"#, r#"{"role":"user","r\u006fle":"x"}"#]
        {
            let value = RawValue::from_string(twice.into()).unwrap();
            assert_eq!(Message::read(value).unwrap_err(), InvalidMessage::NoRole, "{twice}");
        }
    }
}
