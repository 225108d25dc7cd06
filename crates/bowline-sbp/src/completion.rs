//! OpenAI's response formats: assembles a stream of chunks, parses a whole completion.
//!
//! Generic on purpose: unknown fields of a delta are merged into the stored message, so extensions
//! of new models are not lost.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::message::Message;

/// Token usage of an answer, as reported by the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    /// In dollars; reported by some upstreams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Usage {
    fn plus(&self, other: &Usage) -> Usage {
        let cost = self.cost.map(|cost| cost + other.cost.unwrap_or_default());
        Usage {
            prompt_tokens: self.prompt_tokens + other.prompt_tokens,
            completion_tokens: self.completion_tokens + other.completion_tokens,
            total_tokens: self.total_tokens + other.total_tokens,
            cost: cost.or(other.cost),
        }
    }
}

/// A tool call of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// Should be JSON; models do not guarantee it.
    pub arguments: String,
}

impl ToolCall {
    fn read(call: &Value) -> Self {
        let text = |at: &str| call.pointer(at).and_then(Value::as_str).unwrap_or_default();
        Self {
            id: text("/id").to_owned(),
            name: text("/function/name").to_owned(),
            arguments: text("/function/arguments").to_owned(),
        }
    }

    /// The tool calls of an assistant message.
    pub fn all_of(message: &Message) -> Vec<Self> {
        #[derive(Deserialize)]
        struct Calling {
            #[serde(default)]
            tool_calls: Vec<Value>,
        }
        let calling = serde_json::from_str::<Calling>(message.as_json());
        calling.map(|c| c.tool_calls.iter().map(Self::read).collect()).unwrap_or_default()
    }

    /// The id of the call that a tool message answers.
    pub fn answered_by(result: &Message) -> Option<String> {
        #[derive(Deserialize)]
        struct Answering {
            tool_call_id: String,
        }
        let answering = serde_json::from_str::<Answering>(result.as_json()).ok()?;
        Some(answering.tool_call_id)
    }

    /// An assistant message with these calls and no content.
    pub fn message(calls: &[Self]) -> Message {
        let calls: Vec<_> = calls
            .iter()
            .map(|call| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": call.id, "type": "function", "function": function})
            })
            .collect();
        Message::made(&json!({"role": "assistant", "content": null, "tool_calls": calls}))
    }

    /// The tool message with the result of this call.
    pub fn result(&self, content: &str) -> Message {
        self.result_of(content.into())
    }

    /// The same for content that may be a list of parts.
    pub(crate) fn result_of(&self, content: Value) -> Message {
        Message::made(&json!({"role": "tool", "tool_call_id": self.id, "content": content}))
    }
}

/// A model's answer, ready to be stored and sent.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The assistant message for the log.
    pub message: Message,
    /// The whole `chat.completion` object, for a caller that did not stream.
    pub completion: String,
    /// The model, as the upstream reports it.
    pub model: Option<String>,
    pub usage: Usage,
}

/// The upstream sent something that is not a completion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model's answer is not a chat completion: {0}")]
pub struct NotACompletion(pub &'static str);

#[derive(Deserialize)]
struct WholeChoice {
    message: Box<RawValue>,
}

#[derive(Deserialize)]
struct Whole {
    choices: Vec<WholeChoice>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: Option<Usage>,
}

impl Answer {
    /// Parses a whole completion, whose text is kept unchanged.
    pub fn read(completion: String) -> Result<Self, NotACompletion> {
        let whole: Whole = serde_json::from_str(&completion)
            .map_err(|_| NotACompletion("it has no readable choices"))?;
        let choice = whole.choices.into_iter().next().ok_or(NotACompletion("no choices"))?;
        let message = Message::read(choice.message)
            .map_err(|_| NotACompletion("its first choice has no message"))?;
        let usage = whole.usage.unwrap_or_default();
        Ok(Self { message, completion, model: whole.model, usage })
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    created: Option<i64>,
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    system_fingerprint: Option<Cow<'a, str>>,
    #[serde(default)]
    choices: Vec<ChunkChoice>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default)]
    index: u32,
    #[serde(default)]
    delta: Map<String, Value>,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// What one chunk added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    pub text: String,
    /// Whether it has any choice; a chunk without one only reports usage.
    pub speaks: bool,
    /// Whether it contains fragments of tool calls.
    pub calls: bool,
}

/// Assembles the chunks of one answer. Only the first choice is kept: a session has one history. An
/// answer may take several rounds with tool calls between them: their texts are joined.
#[derive(Debug, Clone, Default)]
pub struct Assembly {
    id: Option<String>,
    created: i64,
    model: Option<String>,
    system_fingerprint: Option<String>,
    text: String,
    fields: Map<String, Value>,
    tool_calls: Vec<Value>,
    /// Maps the index or id of a fragment to its position in `tool_calls`.
    places: HashMap<CallName, usize>,
    finish_reason: Option<String>,
    usage: Option<Usage>,
    /// Usage of earlier rounds.
    spent: Usage,
}

impl Assembly {
    /// Parses one chunk and returns what it added.
    pub fn push(&mut self, chunk: &str) -> Result<Added, NotACompletion> {
        let chunk: Chunk<'_> =
            serde_json::from_str(chunk).map_err(|_| NotACompletion("a chunk cannot be read"))?;
        if self.id.is_none() {
            self.id = Some(chunk.id.map(Cow::into_owned).unwrap_or_default());
            self.created = chunk.created.unwrap_or_default();
        }
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.model.get_or_insert_with(|| model.into_owned());
        }
        if let Some(print) = chunk.system_fingerprint {
            self.system_fingerprint.get_or_insert_with(|| print.into_owned());
        }
        self.usage = chunk.usage.or(self.usage);
        let speaks = !chunk.choices.is_empty();
        let mut added = String::new();
        let mut called = false;
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
            for (name, value) in choice.delta {
                match (name.as_str(), value) {
                    ("role", _) | (_, Value::Null) => {}
                    ("content", Value::String(text)) => added.push_str(&text),
                    ("tool_calls", Value::Array(calls)) => {
                        called |= !calls.is_empty();
                        calls.into_iter().for_each(|call| self.add_tool_call(call));
                    }
                    (_, value) => merge(self.fields.entry(name).or_insert(Value::Null), value),
                }
            }
        }
        self.text.push_str(&added);
        Ok(Added { text: added, speaks, calls: called })
    }

    /// Whether a `finish_reason` was received.
    pub fn has_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Whether the model ended by itself, not because of a length limit or a content filter.
    pub fn ended_well(&self) -> bool {
        let reason = self.finish_reason.as_deref();
        reason.is_some_and(|reason| !matches!(reason, "length" | "content_filter"))
    }

    /// Removes and returns the calls of tools whose name `mine` accepts.
    pub fn take_calls(&mut self, mine: impl Fn(&str) -> bool) -> Vec<ToolCall> {
        let calls = std::mem::take(&mut self.tool_calls);
        let (taken, left) = calls.into_iter().partition(|call| {
            call.pointer("/function/name").and_then(Value::as_str).is_some_and(&mine)
        });
        self.tool_calls = left;
        // The round has ended: no more fragments follow.
        self.places.clear();
        let taken: Vec<Value> = taken;
        taken.iter().map(ToolCall::read).collect()
    }

    /// Whether it has tool calls.
    pub fn has_calls(&self) -> bool {
        !self.tool_calls.is_empty()
    }

    /// Whether any chunk was received, in this round or an earlier one.
    pub fn has_begun(&self) -> bool {
        self.id.is_some()
    }

    /// The tool calls as a last chunk, for a caller that has received the text as a stream.
    pub fn calls_as_chunk(&self) -> String {
        let calls = self.tool_calls.iter().enumerate().map(|(index, call)| {
            let mut call = call.clone();
            call["index"] = index.into();
            call
        });
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "delta": {"tool_calls": calls.collect::<Vec<_>>()},
                         "finish_reason": "tool_calls"}],
        })
        .to_string()
    }

    /// The round's usage, as far as it was reported.
    pub fn usage(&self) -> Usage {
        self.usage.unwrap_or_default()
    }

    /// Sets the round's usage, if no chunk reported it.
    pub fn count(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// More text as a chunk, for a caller that has received the earlier text as a stream.
    pub fn text_as_chunk(&self, text: &str) -> String {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}],
        })
        .to_string()
    }

    /// Prepares for the next round. Returns the usage of this one.
    pub fn next_round(&mut self) -> Usage {
        let usage = self.usage.take().unwrap_or_default();
        self.spent = self.spent.plus(&usage);
        self.finish_reason = None;
        usage
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The answer so far: complete after the last chunk, partial if the turn was cancelled.
    pub fn finish(self) -> Answer {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        let content = if self.text.is_empty() && !self.tool_calls.is_empty() {
            None
        } else {
            Some(self.text)
        };
        message.insert("content".into(), content.into());
        if !self.tool_calls.is_empty() {
            message.insert("tool_calls".into(), self.tool_calls.into());
        }
        message.extend(self.fields);
        let message = to_raw_value(&message).expect("a JSON map always serialises");
        let mut completion = json!({
            "id": self.id.unwrap_or_default(),
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{
                "index": 0,
                "message": message,
                "logprobs": null,
                "finish_reason": self.finish_reason.as_deref().unwrap_or("stop"),
            }],
        });
        if let Some(usage) = &self.usage {
            completion["usage"] = json!(usage.plus(&self.spent));
        }
        if let Some(print) = self.system_fingerprint {
            completion["system_fingerprint"] = print.into();
        }
        Answer {
            message: Message::read(message).expect("the message was just made with a role"),
            completion: completion.to_string(),
            model: self.model,
            usage: self.usage.unwrap_or_default(),
        }
    }

    /// Merges a tool call, or a fragment of one. Upstreams count from 0 or from 1, or omit the
    /// index, and only the first fragment has an id and a name: the index is a key, not a position.
    fn add_tool_call(&mut self, call: Value) {
        let Value::Object(mut call) = call else { return };
        let index = call.remove("index").and_then(|index| index.as_u64()).map(CallName::Index);
        let text = |value: Option<&Value>| {
            value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let id = text(call.get("id")).map(CallName::Id);
        let begins = text(call.get("function").and_then(|function| function.get("name"))).is_some();
        let known = match (&index, &id) {
            (Some(name), _) | (None, Some(name)) => self.places.get(name).copied(),
            // Without index and id, a function name starts a new call.
            (None, None) if begins => None,
            (None, None) => self.tool_calls.len().checked_sub(1),
        };
        // The index is never used as a position: a huge one must not allocate.
        let place = known.unwrap_or(self.tool_calls.len());
        for name in [index, id].into_iter().flatten() {
            self.places.entry(name).or_insert(place);
        }
        match self.tool_calls.get_mut(place) {
            Some(begun) => merge(begun, Value::Object(call)),
            None => self.tool_calls.push(Value::Object(call)),
        }
    }
}

/// Identifies the fragments of one call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CallName {
    Index(u64),
    Id(String),
}

/// Merges a delta: strings and lists are appended, objects merged, the rest is replaced.
fn merge(into: &mut Value, delta: Value) {
    match (into, delta) {
        (_, Value::Null) => {}
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (Value::Object(fields), Value::Object(more)) => {
            for (name, value) in more {
                // `id` and `type` are not fragments; some upstreams repeat them.
                let known = fields.get(&name).is_some_and(|known| !known.is_null() && known != "");
                if matches!(name.as_str(), "id" | "type") && known {
                    continue;
                }
                merge(fields.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, delta) => *into = delta,
    }
}

/// A whole completion as one chunk, for a caller that expects a stream.
pub fn as_chunk(completion: &str) -> Option<String> {
    let mut object: Map<String, Value> = serde_json::from_str(completion).ok()?;
    object.insert("object".into(), "chat.completion.chunk".into());
    object.remove("usage");
    for choice in object.get_mut("choices")?.as_array_mut()? {
        let choice = choice.as_object_mut()?;
        let mut delta = choice.remove("message")?;
        let calls = delta.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            call.as_object_mut()?.insert("index".into(), index.into());
        }
        choice.insert("delta".into(), delta);
    }
    Some(Value::Object(object).to_string())
}

/// Adds a field to the text of a JSON object without parsing the rest of it.
pub fn with_field(object: &str, name: &str, value: &str) -> Option<String> {
    let head = object.trim_end().strip_suffix('}')?;
    let comma = if head.trim_end().ends_with('{') { "" } else { "," };
    Some([head, comma, "\"", name, "\":", value, "}"].concat())
}
