//! Memory blocks, which Letta puts into every prompt; imported as memories.

use std::collections::{HashMap, HashSet};

use bowline_pyjson::{Object, Text, Value};
use bowline_sbp::bundle::{LONGEST_MEMORY, MemoryPart};
use jiff::Timestamp;

use super::super::draft::is_nothing;
use super::super::report::{EVERYWHERE, Report};
use super::super::words::{pieces, said, shortened, shown, time};

/// The blocks that agents of a file share, by id.
pub(super) struct Blocks {
    shared: HashMap<Box<[u8]>, Shared>,
    /// How many bytes of shared blocks may still be copied. Without a limit, a small file could
    /// have a large block copied for any number of agents.
    room: usize,
}

struct Shared {
    block: Block,
    is_taken: bool,
}

struct Block {
    label: String,
    value: String,
    at: Option<Timestamp>,
}

impl Blocks {
    pub(super) fn none() -> Self {
        Self { shared: HashMap::new(), room: 0 }
    }

    /// Removes the values of the blocks that any agent uses from the file.
    pub(super) fn shared_by(
        agents: &[Value<'_>],
        file: &mut Object<'_>,
        room: usize,
        report: &mut Report,
    ) -> Self {
        let mut blocks = Self { room, ..Self::none() };
        let wanted: HashSet<&Text<'_>> =
            agents.iter().filter_map(Value::as_object).flat_map(block_ids).collect();
        let in_file = file.get_mut("blocks").and_then(Value::as_array_mut);
        for value in in_file.into_iter().flatten() {
            let id = said(value.get("id")).filter(|id| wanted.contains(id));
            match id.map(|id| id.as_wtf8().into()) {
                Some(id) => match Block::take(value) {
                    Some(block) => {
                        blocks.shared.insert(id, Shared { block, is_taken: false });
                    }
                    None => tell_unfit(EVERYWHERE, value, report),
                },
                None => {
                    let label = Block::label_of(value);
                    let what = format!(
                        "the memory block `{label}` belongs to no agent; it is kept but not imported"
                    );
                    report.say(EVERYWHERE, what);
                }
            }
        }
        blocks
    }

    /// The memories of an agent; none if it has no blocks.
    pub(super) fn remembered_by(
        &mut self,
        agent: &mut Object<'_>,
        place: &str,
        since: Timestamp,
        report: &mut Report,
    ) -> Option<Vec<MemoryPart>> {
        let mut memory = Vec::new();
        for name in ["core_memory", "memory_blocks", "blocks"] {
            match agent.get_mut(name) {
                Some(Value::Array(blocks)) => {
                    for value in blocks {
                        match Block::take(value) {
                            Some(block) => block.remember(&mut memory, since),
                            None => tell_unfit(place, value, report),
                        }
                    }
                }
                Some(other) if !is_nothing(other) => {
                    report.say(
                        place,
                        format!("its `{name}` is kept but not imported: unknown format"),
                    );
                }
                _ => {}
            }
        }
        let mut seen = HashSet::new();
        for id in block_ids(agent).filter(|id| seen.insert(*id)) {
            let Some(shared) = self.shared.get_mut(id.as_wtf8()) else { continue };
            let Block { label, value, .. } = &shared.block;
            if shared.is_taken && value.len() > self.room {
                let what = format!("the memory block `{label}` is imported only with other agents");
                report.say(place, what);
                continue;
            }
            if shared.is_taken {
                self.room -= value.len();
            }
            shared.is_taken = true;
            shared.block.remember(&mut memory, since);
        }
        (!memory.is_empty()).then_some(memory)
    }
}

impl Block {
    /// Removes the text from a block; its other members stay.
    fn take(value: &mut Value<'_>) -> Option<Self> {
        let text = said(value.get("value"))?.as_str()?.to_owned();
        let label = Self::label_of(value);
        let at = time(value.get("created_at"));
        value.as_object_mut()?.remove("value");
        Some(Self { label, value: text, at })
    }

    fn label_of(value: &Value<'_>) -> String {
        said(value.get("label")).map_or("memory".into(), |label| shortened(&shown(label)))
    }

    fn remember(&self, memory: &mut Vec<MemoryPart>, since: Timestamp) {
        let before = format!("{}: ", self.label);
        for piece in pieces(&self.value, LONGEST_MEMORY - before.len()) {
            memory.push(MemoryPart {
                kind: "semantic".into(),
                // Gateways store memories without surrounding white space.
                text: format!("{before}{piece}").trim().to_owned(),
                created_at: self.at.unwrap_or(since),
            });
        }
    }
}

/// Reports a block that could not be imported, unless it is empty.
fn tell_unfit(place: &str, value: &Value<'_>, report: &mut Report) {
    if !value.get("value").is_none_or(is_nothing) {
        let label = Block::label_of(value);
        report.say(
            place,
            format!("the memory block `{label}` is not text; it is kept but not imported"),
        );
    }
}

fn block_ids<'v, 't>(agent: &'v Object<'t>) -> impl Iterator<Item = &'v Text<'t>> {
    let ids = agent.get("block_ids").and_then(Value::as_array).unwrap_or_default();
    ids.iter().filter_map(Value::as_text)
}
