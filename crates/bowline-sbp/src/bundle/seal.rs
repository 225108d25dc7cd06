//! Writes a bundle.

use super::memory::{self, MEMORY};
use super::{BUNDLE_VERSION, Contents, MessagePart, OURS, Sealed, SnapshotPart, signature};
use crate::cid::{BUNDLE_CID, Cid};
use crate::frame::TurnStatus;
use crate::gateway_key::GatewayIdentity;
use crate::message::EntryKind;
use bowline_pyjson::{MAX_DEPTH, Object, Value};

impl Contents {
    /// The text of the bundle, with its content id.
    pub fn seal(&self) -> Sealed {
        self.seal_by(None)
    }

    /// The same, signed by the exporting gateway (SBP-L3-16).
    pub fn seal_signed(&self, identity: &GatewayIdentity) -> Sealed {
        self.seal_by(Some(identity))
    }

    fn seal_by(&self, identity: Option<&GatewayIdentity>) -> Sealed {
        let carried = self.carried.as_deref().and_then(object).unwrap_or_default();
        let part = |name: &str| carried.get(name).cloned().unwrap_or_default();
        let mut bundle = members(part("bundle"));
        bundle.insert("sbp_version", BUNDLE_VERSION);
        bundle.insert("exported_at", self.exported_at.to_string());
        bundle.insert("label", self.label.as_deref());
        bundle.insert("session", self.session(part("session"), part("last_task")));
        let messages: Vec<Value<'_>> = self.messages.iter().map(message).collect();
        bundle.insert("messages", messages);
        let memory = self.memory(part(MEMORY));
        let with_memory = !memory.is_null();
        bundle.insert(MEMORY, memory);
        bundle.insert("state_snapshot", snapshot(self.snapshot.as_ref(), part("state_snapshot")));
        let mut metadata = members(part("metadata"));
        metadata.insert("export_id", self.export_id.as_str());
        metadata.insert("message_count", self.messages.len() as u64);
        // Not `sum()`: the standard library's sum of no floats is -0.0.
        let cost = self.messages.iter().fold(0.0, |sum, message| sum + message.cost_usd);
        metadata.insert("total_cost_usd", cost);
        bundle.insert("metadata", metadata);
        let mut bundle = Value::Object(bundle);
        if let Some(identity) = identity {
            signature::sign(&mut bundle, identity);
        }
        let cid = Cid::of(&bundle);
        if let Some(bundle) = bundle.as_object_mut() {
            bundle.insert(BUNDLE_CID, cid.to_string());
        }
        Sealed { cid, text: bundle.to_json(), with_memory }
    }

    fn session<'t>(&'t self, carried: Value<'t>, task: Value<'t>) -> Object<'t> {
        let session = &self.session;
        let mut part = members(carried);
        let mut ours = Object::new();
        if let Some(metadata) = session.metadata.as_deref().and_then(object) {
            ours.insert("metadata", metadata);
        }
        if let Some(messages) = &session.instruction {
            let messages = messages.iter().filter_map(|message| object(message.as_json()));
            ours.insert("instruction", messages.collect::<Value<'t>>());
        }
        if !ours.is_empty() {
            part.insert(OURS, ours);
        }
        part.insert("id", session.id.as_str());
        part.insert("agent_external_id", session.agent.as_str());
        part.insert("status", session.status.as_str());
        part.insert("last_task", self.last_task(task));
        part.insert("created_at", session.created_at.to_string());
        part.insert("step_count", session.step_count);
        part
    }

    /// An imported `last_task` is kept until there is a new user message.
    fn last_task<'t>(&'t self, carried: Value<'t>) -> Value<'t> {
        let ours = || self.session.last_task.as_deref().into();
        let [Value::Int(known), task] = carried.as_array().unwrap_or_default() else {
            return ours();
        };
        let known = known.as_i64().and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let asked = self.messages.iter().skip(known).any(|part| part.message.role() == "user");
        if asked { ours() } else { task.clone() }
    }

    fn memory<'t>(&'t self, carried: Value<'t>) -> Value<'t> {
        match &self.memory {
            Some(memories) => memory::written(memories, carried),
            None => carried,
        }
    }
}

fn message(part: &MessagePart) -> Value<'_> {
    let mut fields = object(part.message.as_json()).unwrap_or_else(|| unreadable(part));
    fields.insert("model_used", part.model.as_deref());
    fields.insert("cost_usd", part.cost_usd);
    fields.insert("created_at", part.created_at.to_string());
    let mut ours = Object::new();
    if part.kind != EntryKind::of_role(part.message.role()) {
        ours.insert("kind", part.kind.as_str());
    }
    if part.status != TurnStatus::Complete {
        ours.insert("status", part.status.as_str());
    }
    if let Some(agent) = &part.agent_id {
        ours.insert("agent_id", agent.as_str());
    }
    if let Some(place) = part.replaces {
        ours.insert("replaces", place);
    }
    if !ours.is_empty() {
        fields.insert(OURS, ours);
    }
    // Carried fields come last: of two with the same name the later one counts.
    let carried = part.carried.as_deref().and_then(object).unwrap_or_default();
    Value::Object(fields.into_iter().chain(carried).collect())
}

/// A message that is valid JSON but that Python cannot parse, such as one with a number of five
/// thousand digits: exported as its display text, and the JSON as a string.
fn unreadable(part: &MessagePart) -> Object<'_> {
    Object::from_iter([
        ("role", Value::from(part.message.role())),
        ("content", Value::from(part.message.content())),
        ("unreadable", Value::from(part.message.as_json())),
    ])
}

fn snapshot<'t>(snapshot: Option<&'t SnapshotPart>, carried: Value<'t>) -> Value<'t> {
    let Some(snapshot) = snapshot else { return carried };
    let ours = Object::from_iter([
        ("snapshot_id", Value::from(snapshot.id.as_str())),
        ("kind", Value::from(snapshot.kind.as_str())),
        ("seq", Value::from(snapshot.seq)),
        ("created_at", Value::from(snapshot.at.to_string())),
    ]);
    let mut part = match carried {
        Value::Null => Object::new(),
        Value::Object(part) => part,
        // A carried snapshot that is not an object cannot hold ours.
        other => return other,
    };
    part.insert(OURS, ours);
    Value::Object(part)
}

fn object(text: &str) -> Option<Object<'_>> {
    match Value::parse_within(text, MAX_DEPTH) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

fn members(value: Value<'_>) -> Object<'_> {
    match value {
        Value::Object(object) => object,
        _ => Object::new(),
    }
}
