//! Parses a bundle.

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::memory::{self, MEMORY};
use super::signature::{self, BundleSignature, RequiredSignature};
use super::{
    Contents, LARGEST_METADATA, LONGEST_LABEL, LONGEST_NAME, MemoryPart, MessagePart, OURS,
    OpenError, SessionPart, SnapshotPart,
};
use crate::cid::{BUNDLE_CID, Cid};
use crate::frame::TurnStatus;
use crate::id::AgentId;
use crate::message::{EntryKind, Message};
use bowline_pyjson::{Object, Value};

/// The fields of a message that are sent to a model. Upstreams may reject fields they do not know.
pub const FOR_MODELS: [&str; 10] = [
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "refusal",
    "audio",
    "reasoning",
    "reasoning_content",
];

/// The largest plausible cost of a message, in dollars; more is treated as invalid.
const MOST_COST: f64 = 1e6;

/// A bundle that was checked against its content id.
#[derive(Debug, Clone)]
pub struct Opened {
    pub contents: Contents,
    pub cid: Cid,
    /// Who signed it, for the caller to judge.
    pub signature: BundleSignature,
}

impl Contents {
    /// Checks the bundle's content id and its signature, if there is one, then parses it.
    pub fn open(text: &str) -> Result<(Self, Cid), OpenError> {
        let Opened { contents, cid, signature } = Opened::read(text)?;
        signature.check(RequiredSignature::None)?;
        Ok((contents, cid))
    }
}

impl Opened {
    /// Checks the bundle's content id, then parses it.
    pub fn read(text: &str) -> Result<Self, OpenError> {
        Self::of_value(Value::parse(text).map_err(OpenError::NotJson)?)
    }

    /// The same for a bundle that is part of a larger JSON document.
    pub fn of_value(mut bundle: Value<'_>) -> Result<Self, OpenError> {
        let said = bundle.get(BUNDLE_CID).and_then(Value::as_str).ok_or(OpenError::NoCid)?;
        let cid = Cid::of_bundle(&bundle);
        if said.parse() != Ok(cid) {
            return Err(OpenError::WrongCid);
        }
        let signature = signature::take(&mut bundle);
        let Value::Object(mut bundle) = bundle else { return Err(OpenError::NoCid) };
        bundle.remove(BUNDLE_CID);
        let version = text_of(bundle.remove("sbp_version")).unwrap_or_default();
        if version.split('.').next() != Some("1") {
            return Err(OpenError::Version(version));
        }
        let mut carried = Object::new();
        let exported_at = time_of(bundle.remove("exported_at")).unwrap_or_default();
        let label =
            text_of(bundle.remove("label")).map(|l| l.chars().take(LONGEST_LABEL).collect());
        let Some(Value::Array(messages)) = bundle.remove("messages") else {
            return Err(malformed("the bundle has no list `messages`"));
        };
        let messages = messages.into_iter().enumerate();
        let messages: Vec<MessagePart> =
            messages.map(|(n, value)| message(n, value)).collect::<Result<_, _>>()?;
        let Some(Value::Object(session)) = bundle.remove("session") else {
            return Err(malformed("the bundle has no object `session`"));
        };
        let session = session_of(session, &mut carried)?;
        if let Some(task) = &session.last_task {
            let known = Value::from(messages.len() as u64);
            carried.insert("last_task", vec![known, task.clone().into()]);
        }
        let memory = memory_of(bundle.remove(MEMORY), &mut carried);
        let snapshot = snapshot_of(bundle.remove("state_snapshot"), &mut carried);
        let mut metadata = match bundle.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Object::new(),
        };
        let export_id = text_of(metadata.remove("export_id")).unwrap_or_default();
        let export_id = export_id.chars().take(LONGEST_NAME).collect();
        metadata.remove("message_count");
        metadata.remove("total_cost_usd");
        carry(&mut carried, "metadata", metadata);
        carry(&mut carried, "bundle", bundle);
        let carried = (!carried.is_empty()).then(|| Value::Object(carried).to_json());
        let contents = Contents {
            export_id,
            exported_at,
            label,
            session,
            messages,
            memory,
            snapshot,
            carried,
        };
        Ok(Self { contents, cid, signature })
    }
}

fn session_of<'t>(
    mut session: Object<'t>,
    carried: &mut Object<'t>,
) -> Result<SessionPart, OpenError> {
    let ours = session.remove(OURS);
    let metadata = ours.as_ref().and_then(|ours| ours.get("metadata")).filter(|m| is_strict(m));
    let metadata = metadata.map(Value::to_json).filter(|text| text.len() <= LARGEST_METADATA);
    let instruction = ours.as_ref().and_then(|ours| instruction_of(ours.get("instruction")?));
    if let Some(ours) = ours.filter(|_| metadata.is_none() && instruction.is_none()) {
        session.insert(OURS, ours);
    }
    let id = text_of(session.remove("id")).filter(|id| !id.is_empty() && id.len() <= 256);
    let steps = session.remove("step_count").and_then(|n| n.as_i64()).unwrap_or_default();
    let part = SessionPart {
        id: id.ok_or_else(|| malformed("the bundle's session has no `id` of 1 to 256 bytes"))?,
        agent: text_of(session.remove("agent_external_id"))
            .filter(|agent| agent.parse::<AgentId>().is_ok())
            .unwrap_or_default(),
        status: text_of(session.remove("status")).unwrap_or_default(),
        last_task: text_of(session.remove("last_task")),
        created_at: time_of(session.remove("created_at")).unwrap_or_default(),
        step_count: u64::try_from(steps).unwrap_or_default(),
        metadata,
        instruction,
    };
    carry(carried, "session", session);
    Ok(part)
}

/// System messages that replace those in the log.
fn instruction_of(messages: &Value<'_>) -> Option<Vec<Message>> {
    let message = |value: &Value<'_>| {
        let raw = RawValue::from_string(value.to_json()).ok().filter(|_| is_strict(value))?;
        let message = Message::read(raw).ok()?;
        matches!(message.role(), "system" | "developer").then_some(message)
    };
    messages.as_array()?.iter().map(message).collect()
}

/// Parses one message. Fields for models are kept as they are. Model, cost and time are parsed and,
/// if writing them would give other JSON, also kept in `carried`.
fn message(n: usize, value: Value<'_>) -> Result<MessagePart, OpenError> {
    let wrong = |what: &str| malformed(&format!("messages[{n}]: {what}"));
    let Value::Object(fields) = value else { return Err(wrong("it is not an object")) };
    // `NaN` and `Infinity`, which only Python accepts, are carried but never sent to a model.
    let (for_models, carried): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, value)| {
        name.as_str().is_some_and(|name| FOR_MODELS.contains(&name)) && is_strict(value)
    });
    let mut carried = Object::from_iter(carried);
    let raw = RawValue::from_string(Value::Object(Object::from_iter(for_models)).to_json())
        .map_err(|_| wrong("it cannot be kept as JSON"))?;
    let message = Message::read(raw).map_err(|error| wrong(&error.to_string()))?;
    let ours = carried.remove(OURS);
    let say = |name: &str| ours.as_ref().and_then(|ours| ours.get(name)).and_then(Value::as_str);
    let kind = say("kind").and_then(EntryKind::named);
    let part = MessagePart {
        kind: kind.unwrap_or_else(|| EntryKind::of_role(message.role())),
        model: take_if_same(&mut carried, "model_used", |value| match value {
            Value::Null => Some((None, Value::Null)),
            value => value.as_str().map(|text| (Some(text.to_owned()), text.to_owned().into())),
        })
        .flatten(),
        cost_usd: take_if_same(&mut carried, "cost_usd", |value| {
            let cost = value.as_f64().filter(|cost| (0.0..=MOST_COST).contains(cost))?;
            Some((cost, Value::Float(cost)))
        })
        .unwrap_or_default(),
        created_at: take_if_same(&mut carried, "created_at", |value| {
            let at: Timestamp = value.as_str()?.parse().ok()?;
            Some((at, to_the_millisecond(at).to_string().into()))
        })
        .unwrap_or_default(),
        status: say("status").map(TurnStatus::named).unwrap_or_default(),
        agent_id: say("agent_id").and_then(|agent| agent.parse().ok()),
        // Only an earlier one can be superseded.
        replaces: ours
            .as_ref()
            .and_then(|ours| u64::try_from(ours.get("replaces")?.as_i64()?).ok())
            .filter(|place| (1..=n as u64).contains(place)),
        message,
        carried: None,
    };
    let carried = (!carried.is_empty()).then(|| Value::Object(carried).to_json());
    Ok(MessagePart { carried, ..part })
}

/// Parses a field. It is removed only if writing the parsed value gives the same JSON.
fn take_if_same<'t, T>(
    fields: &mut Object<'t>,
    name: &str,
    read: impl FnOnce(&Value<'t>) -> Option<(T, Value<'static>)>,
) -> Option<T> {
    let value = fields.get(name)?;
    let (read, again) = read(value)?;
    if again.to_canonical() == value.to_canonical() {
        fields.remove(name);
    }
    Some(read)
}

fn memory_of<'t>(memory: Option<Value<'t>>, carried: &mut Object<'t>) -> Option<Vec<MemoryPart>> {
    let mut memory = memory.filter(|memory| !memory.is_null())?;
    let parts = memory::read(&memory);
    let stranger = match &parts {
        // In another format, or over a limit: it is carried unchanged.
        None => Some(memory),
        Some(_) => memory::take_carried(&mut memory),
    };
    if let Some(stranger) = stranger {
        carried.insert(MEMORY, stranger);
    }
    parts
}

fn snapshot_of<'t>(snapshot: Option<Value<'t>>, carried: &mut Object<'t>) -> Option<SnapshotPart> {
    let mut snapshot = snapshot.filter(|snapshot| !snapshot.is_null())?;
    let ours = snapshot.as_object_mut().and_then(|part| part.remove(OURS));
    let is_empty = snapshot.as_object().is_some_and(Object::is_empty);
    if !(is_empty && ours.is_some()) {
        carried.insert("state_snapshot", snapshot);
    }
    let ours = ours?;
    let text = |name: &str| Some(ours.get(name)?.as_str()?.to_owned());
    Some(SnapshotPart {
        id: text("snapshot_id")?,
        kind: text("kind")?,
        seq: u64::try_from(ours.get("seq")?.as_i64()?).ok()?,
        at: text("created_at")?.parse().ok()?,
    })
}

fn carry<'t>(carried: &mut Object<'t>, name: &'static str, rest: Object<'t>) {
    if !rest.is_empty() {
        carried.insert(name, rest);
    }
}

/// Whether any JSON parser accepts it, not only Python's.
pub fn is_strict(value: &Value<'_>) -> bool {
    match value {
        Value::Float(number) => number.is_finite(),
        Value::Array(items) => items.iter().all(is_strict),
        Value::Object(fields) => fields.iter().all(|(_, value)| is_strict(value)),
        _ => true,
    }
}

fn text_of(value: Option<Value<'_>>) -> Option<String> {
    value.as_ref().and_then(Value::as_text).map(|text| text.to_string_lossy().into_owned())
}

fn time_of(value: Option<Value<'_>>) -> Option<Timestamp> {
    value.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok())
}

/// Times are stored with millisecond precision.
fn to_the_millisecond(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

fn malformed(what: &str) -> OpenError {
    OpenError::Malformed(what.to_owned())
}
