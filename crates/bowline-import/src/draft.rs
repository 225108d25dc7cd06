//! Builds a conversation; shared by all formats.
//!
//! Invariants
//! - A tool result is kept as one only directly after its call. Upstreams reject a whole history
//!   for one result without its call, so such a result is imported as text.
//! - A message without a time gets that of the message before it, so that order and times agree.
//! - `now` replaces missing times only: a file with times gives the same result whenever it is
//!   read, so that a retried import is the same request.

use std::collections::HashSet;

use bowline_pyjson::{Object, Text, Value};
use bowline_sbp::bundle::{Contents, MemoryPart, MessagePart, SessionPart};
use bowline_sbp::cid::Cid;
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::AgentId;
use bowline_sbp::message::{EntryKind, Message};
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::Conversation;
use super::report::Report;
use super::words::{joined, said, shortened, shown};

/// A conversation so far.
#[derive(Debug)]
pub(super) struct Draft {
    /// The member, of messages and of the bundle, that holds carried data.
    format: &'static str,
    pub(super) id: Option<String>,
    pub(super) title: Option<String>,
    pub(super) agent: Option<AgentId>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) memory: Option<Vec<MemoryPart>>,
    messages: Vec<(MessagePart, Option<Timestamp>)>,
    /// The calls that have no result yet, and the place of their message.
    calls: HashSet<Text<'static>>,
    called: String,
}

/// The data of a message that is not sent to models.
#[derive(Debug, Default)]
pub(super) struct Beside<'t> {
    pub(super) at: Option<Timestamp>,
    pub(super) model: Option<String>,
    pub(super) status: TurnStatus,
    /// Everything else.
    pub(super) carried: Object<'t>,
}

impl Draft {
    pub(super) fn new(format: &'static str) -> Self {
        Self {
            format,
            id: None,
            title: None,
            agent: None,
            created_at: None,
            memory: None,
            messages: Vec::new(),
            calls: HashSet::new(),
            called: String::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds a message; the error says why it is not one.
    pub(super) fn add(
        &mut self,
        place: &str,
        mut message: Object<'_>,
        mut beside: Beside<'_>,
        report: &mut Report,
    ) -> Result<(), String> {
        self.pair(place, &mut message, &mut beside, report);
        let raw = RawValue::from_string(Value::Object(message).to_json());
        let raw = raw.map_err(|error| format!("it cannot be kept as JSON: {error}"))?;
        let message = Message::read(raw).map_err(|error| error.to_string())?;
        let carried = Some(beside.carried).filter(|carried| !carried.is_empty());
        let kind = EntryKind::of_role(message.role());
        let is_turn = kind == EntryKind::Turn;
        let part = MessagePart {
            kind,
            model: beside.model.filter(|_| is_turn),
            message,
            cost_usd: 0.0,
            created_at: Timestamp::UNIX_EPOCH,
            status: if is_turn { beside.status } else { TurnStatus::Complete },
            agent_id: None,
            replaces: None,
            carried: carried.map(|carried| self.carried(carried).to_json()),
        };
        self.messages.push((part, beside.at));
        Ok(())
    }

    /// Makes sure that tool results follow their calls.
    fn pair(
        &mut self,
        place: &str,
        message: &mut Object<'_>,
        beside: &mut Beside<'_>,
        report: &mut Report,
    ) {
        if message.get("role").and_then(Value::as_str) != Some("tool") {
            if !self.calls.is_empty() {
                let what = "calls a tool whose result is missing; an upstream may reject it";
                report.say(std::mem::take(&mut self.called), what);
            }
            self.calls = calls(message);
            self.called = place.to_owned();
            return;
        }
        let id = message.get("tool_call_id").and_then(Value::as_text);
        if id.is_some_and(|id| self.calls.remove(&id.clone().into_owned())) {
            return;
        }
        let name = said(message.get("name")).map(shown);
        let name = name.or_else(|| said(beside.carried.get("name")).map(shown));
        let name = name.map_or("tool".into(), |name| shortened(&name));
        report.say(
            place,
            format!("is a result of `{name}` without its call; it is imported as text"),
        );
        let content = message.remove("content").unwrap_or_default().into_owned();
        let told = [("role", "user".into()), ("content", note(&format!("[{name}]"), content))];
        let result = std::mem::replace(message, Object::from_iter(told)).into_owned();
        let rest = std::mem::take(&mut beside.carried);
        let result: Object<'_> = result.into_iter().chain(rest).collect();
        beside.carried.insert("result", result);
    }

    fn carried<'t>(&self, carried: Object<'t>) -> Value<'t> {
        Object::from_iter([(self.format, carried)]).into()
    }

    /// The finished conversation; `rest` becomes carried members of its bundle.
    pub(super) fn finish(self, rest: Object<'_>, now: Timestamp) -> Conversation {
        let id = self.id.clone().unwrap_or_else(|| self.name());
        let carried = (!rest.is_empty())
            .then(|| Value::from(Object::from_iter([("bundle", self.carried(rest))])).to_json());
        let first = self.messages.iter().find_map(|(_, at)| *at);
        let created_at = self.created_at.or(first).unwrap_or(now);
        let mut last = first.unwrap_or(created_at);
        let messages: Vec<MessagePart> = self
            .messages
            .into_iter()
            .map(|(part, at)| {
                last = at.unwrap_or(last);
                MessagePart { created_at: last, ..part }
            })
            .collect();
        let newest = messages.iter().map(|part| part.created_at).fold(created_at, Timestamp::max);
        let turns = messages.iter().filter(|part| part.kind == EntryKind::Turn).count();
        let contents = Contents {
            export_id: String::new(),
            exported_at: newest,
            label: self.title.clone(),
            session: SessionPart {
                id,
                agent: self.agent.unwrap_or_else(AgentId::fallback).as_str().to_owned(),
                status: "idle".into(),
                last_task: None,
                created_at,
                step_count: turns as u64,
                metadata: None,
                instruction: None,
            },
            messages,
            memory: self.memory,
            snapshot: None,
            carried,
        };
        Conversation { title: self.title, contents }
    }

    /// An id for a conversation without one: a hash of its content. A number would not be unique
    /// across files, and lineage treats sessions with the same origin as related.
    fn name(&self) -> String {
        let said = self.messages.iter().map(|(part, at)| -> Value<'_> {
            let at = at.map(|at| at.to_string());
            [Value::from(part.message.as_json()), Value::from(at)].into_iter().collect()
        });
        let title = Value::from(self.title.as_deref());
        let cid = Cid::of(&[title].into_iter().chain(said).collect());
        format!("file:{}", &cid.to_string()[..NAME_DIGITS])
    }
}

/// The first of these members that is a valid session id.
pub(super) fn id_of(object: &Object<'_>, names: &[&str]) -> Option<String> {
    let fits =
        |id: &&str| (1..=LONGEST_ID).contains(&id.len()) && !id.chars().any(char::is_control);
    let named = names.iter().filter_map(|name| object.get(name)?.as_str().filter(fits));
    named.map(str::to_owned).next()
}

/// Removes and returns the title, unless it contains lone surrogates.
pub(super) fn title_of(object: &mut Object<'_>, name: &str) -> Option<String> {
    let title = said(object.get(name))?;
    let kept = title.as_str().is_some();
    let title = title.to_string_lossy().into_owned();
    if kept {
        object.remove(name);
    }
    Some(title)
}

/// The content with the speaker's name before it.
pub(super) fn note<'t>(speaker: &str, content: Value<'t>) -> Value<'t> {
    match content {
        Value::String(text) => joined(&[Text::from(speaker), text], " ").into(),
        Value::Array(mut parts) => {
            parts.insert(0, text_part(Text::from(speaker.to_owned())));
            Value::Array(parts)
        }
        _ => speaker.to_owned().into(),
    }
}

pub(super) fn text_part(text: Text<'_>) -> Value<'_> {
    Value::Object(Object::from_iter([("type", Value::from("text")), ("text", text.into())]))
}

fn calls(message: &Object<'_>) -> HashSet<Text<'static>> {
    let calls = message.get("tool_calls").and_then(Value::as_array).unwrap_or_default();
    calls.iter().filter_map(|call| Some(call.get("id")?.as_text()?.clone().into_owned())).collect()
}

/// Whether a value is null or empty.
pub(super) fn is_nothing(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.as_wtf8().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Int(_) | Value::Float(_) => false,
    }
}

/// Hexadecimal digits of the hash in a generated id.
const NAME_DIGITS: usize = 16;
/// The longest session id in a bundle, in bytes.
const LONGEST_ID: usize = 256;
