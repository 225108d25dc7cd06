//! Letta's agent files (`.af`): one agent, or several with shared parts.
//!
//! Messages become the session, and memory blocks the bundle's memory. Tools, rules, model
//! settings and similar parts have no effect here; they are carried in the bundle's member `letta`:
//! the agent as `agent`, messages not sent to models as `aside` and, with the first agent of a
//! file, the shared parts as `file`.

mod memory;
mod message;

use bowline_pyjson::{Object, Text, Value};
use jiff::Timestamp;

use self::memory::Blocks;
use super::draft::{Beside, Draft, id_of};
use super::report::{EVERYWHERE, Report};
use super::words::{said, shortened, shown, time, were};
use super::{Conversation, nature};

/// The shared parts of a file. Every file with several agents has at least one of them.
pub(super) const SHARED: [&str; 6] =
    ["blocks", "tools", "groups", "files", "sources", "mcp_servers"];

/// Members that distinguish an agent from other objects.
pub(super) const OF_AGENTS: [&str; 3] = ["agent_type", "messages", "block_ids"];

/// A file that is one agent.
pub(super) fn agent(agent: Object<'_>, now: Timestamp, report: &mut Report) -> Conversation {
    read(agent, 1, &mut Blocks::none(), None, now, report)
}

/// A file with any number of agents. `length` is that of its text.
pub(super) fn file(
    mut file: Object<'_>,
    length: usize,
    now: Timestamp,
    report: &mut Report,
) -> Vec<Conversation> {
    let Some(Value::Array(agents)) = file.remove("agents") else { return Vec::new() };
    if agents.is_empty() {
        report.say(EVERYWHERE, "holds no agent, so nothing can be imported");
    }
    let mut blocks = Blocks::shared_by(&agents, &mut file, length, report);
    tell_kept(EVERYWHERE, &file, report);
    let mut shared = Some(file);
    let mut conversations = Vec::with_capacity(agents.len());
    for (number, agent) in (1..).zip(agents) {
        match agent {
            Value::Object(agent) => {
                let shared = shared.take();
                conversations.push(read(agent, number, &mut blocks, shared, now, report));
            }
            other => {
                let what = format!("is not an agent but {}, and was left out", nature(&other));
                report.say(format!("agent {number}"), what);
            }
        }
    }
    conversations
}

fn read(
    mut agent: Object<'_>,
    number: usize,
    blocks: &mut Blocks,
    shared: Option<Object<'_>>,
    now: Timestamp,
    report: &mut Report,
) -> Conversation {
    let mut draft = Draft::new(FORMAT);
    let name = said(agent.get("name"));
    let place = match name {
        Some(name) => format!("agent \"{}\"", shortened(&shown(name))),
        None => format!("agent {number}"),
    };
    draft.title = name.map(|name| name.to_string_lossy().into_owned());
    draft.agent = name.and_then(Text::as_str).and_then(|name| name.parse().ok());
    draft.id = id_of(&agent, &["id", "agent_id"]);
    draft.created_at = time(agent.get("created_at"));
    let since = draft.created_at.unwrap_or(now);
    draft.memory = blocks.remembered_by(&mut agent, &place, since, report);
    tell_kept(&place, &agent, report);

    let messages = match agent.remove("messages") {
        Some(Value::Array(messages)) => messages,
        _ => Vec::new(),
    };
    let system = said(agent.get("system"));
    if let Some(system) = system.filter(|system| !message::is_said(system, &messages)) {
        let fields = [("role", Value::from("system")), ("content", system.clone().into())];
        let beside = Beside { at: draft.created_at, ..Beside::default() };
        let added = draft.add(&place, Object::from_iter(fields), beside, report);
        if added.is_ok() {
            agent.remove("system");
        }
    }
    let mut aside = Vec::new();
    for (n, item) in (1..).zip(messages) {
        let place = format!("{place}, message {n}");
        aside.extend(message::add(&mut draft, &place, item, report));
    }
    let mut carried = Object::from_iter([("agent", agent)]);
    if !aside.is_empty() {
        carried.insert("aside", aside);
    }
    if let Some(shared) = shared {
        carried.insert("file", shared);
    }
    draft.finish(carried, now)
}

/// Reports parts that are carried but have no effect.
fn tell_kept(place: &str, object: &Object<'_>, report: &mut Report) {
    for (name, one, many, what) in KEPT {
        let count = match object.get(name) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(members)) => members.len(),
            _ => 0,
        };
        if count > 0 {
            report.say(place, format!("{} kept{what}", were(count, one, many)));
        }
    }
    for name in CONFIGS {
        if object.get(name).is_some_and(|config| !config.is_null()) {
            let what = format!("its {name} was kept; the gateway's own settings apply here");
            report.say(place, what);
        }
    }
}

const FORMAT: &str = "letta";
/// Carried parts: member name, singular, plural, and a remark for the report.
const KEPT: [(&str, &str, &str, &str); 9] = [
    ("tools", "tool", "tools", " but cannot run here"),
    ("tool_rules", "rule for tools", "rules for tools", " but without effect here"),
    (
        "tool_exec_environment_variables",
        "environment variable",
        "environment variables",
        " with the value, which is part of every export",
    ),
    ("secrets", "secret", "secrets", " with the value, which is part of every export"),
    ("files", "file", "files", " but not available to the agent here"),
    ("files_agents", "open file", "open files", " but not available to the agent here"),
    ("sources", "source of files", "sources of files", " but not available to the agent here"),
    ("groups", "group of agents", "groups of agents", " but without effect here"),
    ("mcp_servers", "MCP server", "MCP servers", " but not connected here"),
];
const CONFIGS: [&str; 2] = ["llm_config", "embedding_config"];
