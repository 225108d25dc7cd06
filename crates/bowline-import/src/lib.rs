//! Import of foreign formats: ChatGPT exports, OpenAI-style messages, Letta agent files.
//!
//! Apart, because these formats belong to others and change without notice: only this crate knows
//! them, the rest of the project knows bundles. Pure: text in, contents out; the caller passes
//! `now`. The format is detected from the content, never from a file name.
//!
//! Invariants
//! - Nothing is dropped silently: what a bundle has no field for is carried with it, and what can
//!   be neither imported nor carried has a line in the report.
//! - Every conversation can be sealed into a bundle that opens again.
//! - No text, however hostile, costs more than O(n log n) time, or much more memory than its size.

mod chatgpt;
mod draft;
mod letta;
mod messages;
mod report;
mod words;

use std::fmt;

use bowline_pyjson::{DEFAULT_DEPTH, Object, ParseError, Problem, Value};
use bowline_sbp::bundle::Contents;
use jiff::Timestamp;

use self::report::Report;
use self::words::{shortened, shown};

/// The detected format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Bundle,
    ChatGpt,
    Messages,
    Letta,
}

/// The result of reading a file.
#[derive(Debug)]
pub struct Found {
    pub format: Format,
    /// Empty for a bundle, which is sent to the gateway unchanged.
    pub sessions: Vec<Conversation>,
    pub report: Vec<Unplaced>,
}

/// One conversation, ready to be sealed.
#[derive(Debug)]
pub struct Conversation {
    pub title: Option<String>,
    /// Without an export id, since it was not exported by a gateway.
    pub contents: Contents,
}

/// Something that was not imported unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unplaced {
    /// Where it was: `conversation "Trip", message 3`.
    pub place: String,
    /// What it was, and what was done with it.
    pub what: String,
}

/// Why a text has none of the formats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotUnderstood {
    Empty,
    NotJson(ParseError),
    /// JSON of an unknown format, with a description of it.
    Other(String),
}

/// Parses a file of any of the formats.
pub fn read(text: &str, now: Timestamp) -> Result<Found, NotUnderstood> {
    let bare = text.strip_prefix('\u{feff}').unwrap_or(text);
    if bare.trim().is_empty() {
        return Err(NotUnderstood::Empty);
    }
    let mut report = Report::default();
    let (unit, items) = match Value::parse_within(bare, DEPTH) {
        Ok(Value::Object(file)) => return whole(file, text.len(), now),
        Ok(Value::Array(items)) => (Unit::Element, (1..).zip(items).collect()),
        Ok(other) => return Err(NotUnderstood::Other(nature(&other))),
        Err(error) if is_deep_bundle(bare, error) => return Ok(Found::bundle()),
        Err(error) => match lines(bare, &mut report) {
            Some(items) => (Unit::Line, items),
            None => {
                let at = error.at + (text.len() - bare.len());
                return Err(NotUnderstood::NotJson(ParseError { at, ..error }));
            }
        },
    };
    listed(unit, items, report, now)
}

/// Parses a file that is one object.
fn whole(file: Object<'_>, length: usize, now: Timestamp) -> Result<Found, NotUnderstood> {
    let mut report = Report::default();
    let shape = Shape::of(&file);
    let sessions = match shape {
        Some(Shape::Bundle) => return Ok(Found::bundle()),
        Some(Shape::Tree) => vec![chatgpt::conversation(file, 1, now, &mut report)],
        Some(Shape::Dialogue) => {
            vec![messages::dialogue(file, String::new(), now, &mut report)]
        }
        Some(Shape::Message) => {
            vec![messages::list(Unit::Line, vec![(1, file.into())], now, &mut report)]
        }
        Some(Shape::Agent) => vec![letta::agent(file, now, &mut report)],
        Some(Shape::Agents) => letta::file(file, length, now, &mut report),
        None => return Err(NotUnderstood::Other(nature(&file.into()))),
    };
    let format = shape.map_or(Format::Messages, Shape::format);
    Ok(Found { format, sessions, report: report.finish() })
}

/// Parses a file that is a list, as an array or one item per line. The first item of a known shape
/// decides what the others have to be.
fn listed(
    unit: Unit,
    items: Vec<(usize, Value<'_>)>,
    mut report: Report,
    now: Timestamp,
) -> Result<Found, NotUnderstood> {
    let known = |(_, item): &(usize, Value<'_>)| {
        let shape = Shape::of(item.as_object()?)?;
        matches!(shape, Shape::Tree | Shape::Dialogue | Shape::Message).then_some(shape)
    };
    let Some(shape) = items.iter().find_map(known) else {
        return Err(NotUnderstood::Other(match items.into_iter().next() {
            None => "an empty JSON array".into(),
            Some((_, first)) => format!("a list that begins with {}", nature(&first)),
        }));
    };
    let format = shape.format();
    if shape == Shape::Message {
        let sessions = vec![messages::list(unit, items, now, &mut report)];
        return Ok(Found { format, sessions, report: report.finish() });
    }
    let mut sessions = Vec::with_capacity(items.len());
    for (number, item) in items {
        match item {
            Value::Object(item) if Shape::of(&item) == Some(shape) => sessions.push(match shape {
                Shape::Tree => chatgpt::conversation(item, number, now, &mut report),
                _ => messages::dialogue(item, unit.place(number), now, &mut report),
            }),
            other => {
                let what =
                    format!("is not a conversation but {}, and was left out", nature(&other));
                report.say(unit.place(number), what);
            }
        }
    }
    Ok(Found { format, sessions, report: report.finish() })
}

/// The lines of a text with one object per line; none if it does not begin like that.
fn lines<'t>(text: &'t str, report: &mut Report) -> Option<Vec<(usize, Value<'t>)>> {
    let mut items = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        match Value::parse_within(line, DEPTH) {
            Ok(item) if !items.is_empty() || item.as_object().is_some() => {
                items.push((number, item));
            }
            Err(error) if !items.is_empty() => {
                let what = format!("is not JSON and was left out: {error} of the line");
                report.say(Unit::Line.place(number), what);
            }
            _ => return None,
        }
    }
    Some(items)
}

/// The shape of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Bundle,
    /// A conversation of ChatGPT: a tree of messages.
    Tree,
    /// An object with a list of messages.
    Dialogue,
    /// One message.
    Message,
    /// A Letta agent.
    Agent,
    /// Several agents, with shared parts.
    Agents,
}

impl Shape {
    fn of(object: &Object<'_>) -> Option<Self> {
        let list = |name: &str| object.get(name).and_then(Value::as_array);
        let has_any = |names: &[&str]| names.iter().any(|name| object.get(name).is_some());
        let shape = if list("messages").is_some() && has_any(&["sbp_version"]) {
            Self::Bundle
        } else if matches!(object.get("mapping"), Some(Value::Object(_))) {
            Self::Tree
        } else if has_any(&letta::SHARED) && list("agents").is_some_and(are_any(&letta::OF_AGENTS))
        {
            Self::Agents
        } else if has_any(&["agent_type", "core_memory"]) && has_any(&["messages", "llm_config"]) {
            Self::Agent
        } else if list("messages").is_some_and(are_any(&["role"])) {
            Self::Dialogue
        } else if object.get("role").and_then(Value::as_str).is_some() {
            Self::Message
        } else {
            return None;
        };
        Some(shape)
    }

    fn format(self) -> Format {
        match self {
            Self::Bundle => Format::Bundle,
            Self::Tree => Format::ChatGpt,
            Self::Dialogue | Self::Message => Format::Messages,
            Self::Agent | Self::Agents => Format::Letta,
        }
    }
}

/// Whether a list is empty, or one of its objects has one of these members.
fn are_any(names: &[&str]) -> impl Fn(&[Value<'_>]) -> bool {
    let has_any = |item: &Value<'_>| names.iter().any(|name| item.get(name).is_some());
    move |items| items.is_empty() || items.iter().any(has_any)
}

/// What a list is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Line,
    Element,
}

impl Unit {
    fn place(self, number: usize) -> String {
        match self {
            Self::Line => format!("line {number}"),
            Self::Element => format!("element {number}"),
        }
    }
}

impl Found {
    fn bundle() -> Self {
        Self { format: Format::Bundle, sessions: Vec::new(), report: Vec::new() }
    }
}

/// Bundles may be nested deeper than other files, which still have to be wrapped in one.
fn is_deep_bundle(text: &str, error: ParseError) -> bool {
    matches!(error.problem, Problem::TooDeep { .. })
        && Value::parse(text)
            .is_ok_and(|file| file.as_object().and_then(Shape::of) == Some(Shape::Bundle))
}

/// A description of an unexpected value.
fn nature(value: &Value<'_>) -> String {
    match value {
        Value::Null => "a JSON null".into(),
        Value::Bool(_) => "a JSON boolean".into(),
        Value::Int(_) | Value::Float(_) => "a JSON number".into(),
        Value::String(_) => "a JSON string".into(),
        Value::Array(items) if items.is_empty() => "an empty JSON array".into(),
        Value::Array(_) => "a JSON array".into(),
        Value::Object(members) if members.is_empty() => "an empty JSON object".into(),
        Value::Object(members) => {
            let names = members.iter().take(NAMED_MEMBERS);
            let names: Vec<_> = names.map(|(name, _)| shortened(&shown(name))).collect();
            let more = match members.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("a JSON object with the members {}{more}", names.join(", "))
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bundle => "an SBP bundle",
            Self::ChatGpt => "a ChatGPT export",
            Self::Messages => "OpenAI-style messages",
            Self::Letta => "a Letta agent file",
        })
    }
}

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "it is neither an SBP bundle, a ChatGPT export, OpenAI-style messages nor a Letta \
             agent file, but ",
        )?;
        match self {
            Self::Empty => f.write_str("empty"),
            Self::NotJson(error) => write!(f, "not JSON at byte {}: {}", error.at, error.problem),
            Self::Other(nature) => f.write_str(nature),
        }
    }
}

impl std::error::Error for NotUnderstood {}

/// A few levels less than the limit of bundles, since the content is wrapped in one.
const DEPTH: usize = DEFAULT_DEPTH - 8;
/// How many members of an unknown object are named.
const NAMED_MEMBERS: usize = 8;

#[cfg(test)]
mod tests;
