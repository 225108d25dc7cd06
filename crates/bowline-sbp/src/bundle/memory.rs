//! The memory in a bundle: of the exporting agent, and what travels with the session.
//!
//! An import does not mix what others' agents remembered into the memory of one's own unless that is
//! asked for. Then it travels with the session: [`Contents::carry_memory`] puts it beside everything
//! else that is carried, and the next export has it again.

use std::collections::HashSet;

use bowline_pyjson::{MAX_DEPTH, Object, Value};

use super::{Contents, LONGEST_MEMORY, MEMORY_SCHEMA, MemoryPart, OURS};

/// The member of a bundle, and of what is carried.
pub(super) const MEMORY: &str = "memory";

impl Contents {
    /// The memory becomes part of what is carried.
    pub fn carry_memory(&mut self) {
        let Some(memories) = self.memory.take() else { return };
        self.change_carried(|carried| {
            let stranger = carried.remove(MEMORY).unwrap_or_default();
            carried.insert(MEMORY, written(&memories, stranger));
        });
    }

    /// Whether there is memory in it, in whatever format.
    pub fn has_memory(&self) -> bool {
        let is_carried = |text: &str| {
            let carried = Value::parse_within(text, MAX_DEPTH);
            carried.is_ok_and(|carried| carried.get(MEMORY).is_some_and(|memory| !memory.is_null()))
        };
        self.memory.is_some() || self.carried.as_deref().is_some_and(is_carried)
    }

    /// Removes all memory, also what is carried in another format.
    pub fn drop_memory(&mut self) {
        self.memory = None;
        self.change_carried(|carried| drop(carried.remove(MEMORY)));
    }

    fn change_carried(&mut self, change: impl FnOnce(&mut Object<'_>)) {
        let text = self.carried.take();
        let parsed = text.as_deref().map(|text| Value::parse_within(text, MAX_DEPTH));
        let mut carried = match parsed {
            Some(Ok(Value::Object(carried))) => carried,
            _ => Object::new(),
        };
        change(&mut carried);
        self.carried = (!carried.is_empty()).then(|| Value::Object(carried).to_json());
    }
}

/// The memories, if all of them are valid in our format.
pub(super) fn read(memory: &Value<'_>) -> Option<Vec<MemoryPart>> {
    if memory.get("schema_id")?.as_str()? != MEMORY_SCHEMA {
        return None;
    }
    let payload = memory.get("payload")?.as_object()?;
    let mut parts = Vec::new();
    for (kind, memories) in payload.iter() {
        let known = |kind: &&str| matches!(*kind, "semantic" | "episodic" | "procedural");
        let kind = kind.as_str().filter(known)?;
        for memory in memories.as_array()? {
            let text = memory.get("text")?.as_str()?.trim().to_owned();
            if text.is_empty() || text.len() > LONGEST_MEMORY {
                return None;
            }
            let at = memory.get("created_at").and_then(Value::as_str);
            let created_at = at.and_then(|at| at.parse().ok()).unwrap_or_default();
            parts.push(MemoryPart { kind: kind.to_owned(), text, created_at });
        }
    }
    Some(parts)
}

/// What another gateway put into our memory.
pub(super) fn take_carried<'t>(memory: &mut Value<'t>) -> Option<Value<'t>> {
    memory.get_mut(OURS).and_then(Value::as_object_mut)?.remove("carried")
}

/// The memories of an agent together with what its session carries: in our format that is added to
/// them, in another one it is inside.
pub(super) fn written<'t>(memories: &[MemoryPart], mut carried: Value<'t>) -> Value<'t> {
    let mut all = Vec::new();
    if let Some(parts) = read(&carried) {
        let name = |part: &MemoryPart| (part.kind.clone(), part.text.clone());
        let known: HashSet<_> = memories.iter().map(name).collect();
        all.extend(parts.into_iter().filter(|part| !known.contains(&name(part))));
        carried = take_carried(&mut carried).unwrap_or_default();
    }
    all.extend_from_slice(memories);
    let of_kind = |kind: &str| -> Value<'t> {
        let part = all.iter().filter(|memory| memory.kind == kind);
        let part = part.map(|memory| {
            Object::from_iter([
                ("text", Value::from(memory.text.clone())),
                ("created_at", Value::from(memory.created_at.to_string())),
            ])
        });
        part.collect()
    };
    let mut payload =
        Object::from_iter([("semantic", of_kind("semantic")), ("episodic", of_kind("episodic"))]);
    // Omitted if empty: gateways without procedural memory can then read the rest.
    if all.iter().any(|memory| memory.kind == "procedural") {
        payload.insert("procedural", of_kind("procedural"));
    }
    let memory = [("schema_id", Value::from(MEMORY_SCHEMA)), ("payload", payload.into())];
    let mut memory = Object::from_iter(memory);
    if !carried.is_null() {
        memory.insert(OURS, Object::from_iter([("carried", carried)]));
    }
    Value::Object(memory)
}
