//! One chat message, kept byte for byte as it was received.
//!
//! A message is raw JSON text with its role parsed: unknown fields, number spellings and key order
//! survive storage, history and export unchanged. Comparison ([`Message::means`]) is by meaning.

use std::borrow::Cow;

use memchr::memchr2;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

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
            return Ok(Self { raw, role: Cow::Borrowed(role), hidden: false, calls, escapes });
        }
        let head: Head = serde_json::from_str(raw.get()).map_err(|_| InvalidMessage::NoRole)?;
        if head.role.is_empty() || head.role.len() > 64 {
            return Err(InvalidMessage::NoRole);
        }
        Ok(Self { raw, role: Cow::Owned(head.role), hidden: false, calls, escapes })
    }

    /// A plain text message.
    pub fn text(role: &str, content: &str) -> Self {
        let body = serde_json::json!({ "role": role, "content": content });
        let raw = serde_json::value::to_raw_value(&body).expect("a JSON value always serialises");
        Self { raw, role: Cow::Owned(role.to_owned()), hidden: false, calls: false, escapes: true }
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

    /// Whether both have the same meaning: JSON spelling and fields added by SDKs are ignored.
    pub fn means(&self, other: &Message) -> bool {
        if self.as_json() == other.as_json() {
            return true;
        }
        self.role == other.role
            && matches!((self.meaning(), other.meaning()), (Some(a), Some(b)) if a == b)
    }

    /// The fields that carry meaning, with equivalent forms normalised. `None` for text that
    /// serde_json cannot parse (lone surrogates, numbers out of range).
    fn meaning(&self) -> Option<serde_json::Map<String, Value>> {
        let Ok(Value::Object(fields)) = serde_json::from_str(self.as_json()) else { return None };
        let mut kept = serde_json::Map::new();
        for name in ["content", "name", "tool_calls", "tool_call_id"] {
            match fields.get(name) {
                None | Some(Value::Null) => {}
                Some(Value::Array(items)) if items.is_empty() => {}
                Some(Value::String(text)) if text.is_empty() => {}
                Some(value) => {
                    kept.insert(name.to_owned(), single_text(value).unwrap_or(value).clone());
                }
            }
        }
        Some(kept)
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

/// `[{"type":"text","text":T}]` is the same content as `T`.
fn single_text(content: &Value) -> Option<&Value> {
    match content.as_array()?.as_slice() {
        [part] if part.get("type").and_then(Value::as_str) == Some("text") => part.get("text"),
        _ => None,
    }
}

/// How many leading messages of `incoming` the session already has (SBP-L1-11).
///
/// Callers send either only new messages or, like most OpenAI clients, the whole history. The
/// latter is recognised when the shared prefix is the whole stored history, or contains an
/// assistant message, which the caller can only have from this gateway. A shared prefix without
/// either is a coincidence ("hi" twice), and all messages are new.
pub fn already_stored(stored: &[Message], incoming: &[Message]) -> usize {
    // Callers never saw hidden messages, so they cannot resend them.
    let stored = || stored.iter().filter(|message| !message.hidden);
    let shared = stored().zip(incoming).take_while(|(a, b)| a.means(b)).count();
    let all = stored().nth(shared).is_none();
    let resent = shared > 0 && (all || stored().take(shared).any(|m| m.role() == "assistant"));
    if !resent {
        return 0;
    }
    if shared < incoming.len() {
        return shared;
    }
    // Nothing is new. If the history ends without an answer, this is a retry; otherwise the caller
    // repeats its last user message, which counts as new.
    if all && stored().next_back().is_some_and(|last| last.role() != "assistant") {
        return shared;
    }
    incoming.iter().rposition(|m| m.role() == "user").unwrap_or(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Message {
        Message::read(RawValue::from_string(json.into()).unwrap()).unwrap()
    }

    fn user(text: &str) -> Message {
        Message::text("user", text)
    }

    fn assistant(text: &str) -> Message {
        Message::text("assistant", text)
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
    fn sbp_l1_11_what_sdks_add_when_they_resend_does_not_matter() {
        let stored = assistant("Hi.");
        let resent = raw(
            r#"{"content":"Hi.","role":"assistant","refusal":null,"annotations":[],"tool_calls":null}"#,
        );
        assert!(stored.means(&resent));
        assert!(user("a").means(&raw(r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#)));
        assert!(!user("a").means(&user("b")));
        assert!(!user("a").means(&assistant("a")));
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

    #[test]
    fn sbp_l1_11_a_resent_history_is_recognised() {
        let stored = [user("a"), assistant("b")];
        assert_eq!(already_stored(&stored, &[user("a"), assistant("b"), user("c")]), 2);
        // The caller edited its last message: the shared prefix contains an assistant message.
        let longer = [user("a"), assistant("b"), user("c"), assistant("d")];
        assert_eq!(already_stored(&longer, &[user("a"), assistant("b"), user("x")]), 2);
    }

    #[test]
    fn sbp_l1_11_new_words_that_look_like_old_ones_are_new() {
        let stored = [user("hi"), assistant("hello")];
        assert_eq!(already_stored(&stored, &[user("hi")]), 0);
        assert_eq!(already_stored(&stored, &[user("other")]), 0);
        assert_eq!(already_stored(&[], &[user("hi")]), 0);
    }

    #[test]
    fn sbp_l1_11_a_repeated_last_message_is_said_again_not_lost() {
        let stored = [user("a"), assistant("b"), user("c"), assistant("d")];
        assert_eq!(already_stored(&stored, &[user("a"), assistant("b"), user("c")]), 2);
        assert_eq!(already_stored(&stored, &stored), 2);
    }

    #[test]
    fn sbp_l1_11_what_callers_never_saw_is_not_looked_for_in_what_they_send() {
        let call = raw(r#"{"role":"assistant","tool_calls":[{"id":"c"}]}"#).hidden();
        let result = raw(r#"{"role":"tool","tool_call_id":"c","content":"ok"}"#).hidden();
        let stored = [user("a"), call, result, assistant("b")];
        assert_eq!(already_stored(&stored, &[user("a"), assistant("b"), user("c")]), 2);
        assert_eq!(already_stored(&stored, &[user("a"), assistant("b")]), 0);
    }

    #[test]
    fn sbp_l1_11_an_unanswered_message_is_asked_again_without_a_copy() {
        assert_eq!(already_stored(&[user("a")], &[user("a")]), 1);
    }
}
