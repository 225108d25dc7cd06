//! ChatGPT's data export: `conversations.json`, a tree of messages for each conversation.
//!
//! A message that was edited or regenerated has siblings. The path from `current_node` up to the
//! root, which ChatGPT displayed last, is the conversation; messages of other branches are counted.
//!
//! Other fields of a message are carried in its `chatgpt.message`. Messages that are not sent to
//! models (reasoning, empty messages) are carried in `chatgpt.before` of the next message, or in
//! `chatgpt.after` of the bundle if none follows.

mod content;
mod tree;

use bowline_pyjson::{Object, Text, Value};
use bowline_sbp::frame::TurnStatus;
use jiff::Timestamp;

use self::content::{Content, Piece};
use self::tree::Tree;
use super::Conversation;
use super::draft::{Beside, Draft, id_of, is_nothing, text_part, title_of};
use super::report::{Often, Report};
use super::words::{joined, said, shortened, shown, time, were};

pub(super) fn conversation(
    mut conversation: Object<'_>,
    number: usize,
    now: Timestamp,
    report: &mut Report,
) -> Conversation {
    let mut draft = Draft::new(FORMAT);
    draft.id = id_of(&conversation, &["conversation_id", "id"]);
    draft.title = title_of(&mut conversation, "title");
    draft.created_at = time(conversation.get("create_time"));
    let place = match &draft.title {
        Some(title) => format!("conversation \"{}\"", shortened(&shown(&title.as_str().into()))),
        None => format!("conversation {number}"),
    };
    let tree = Tree::new(conversation.remove("mapping"));
    let mut reader = Reader { draft, place, before: Vec::new(), report };
    let tree = reader.follow(tree, said(conversation.get("current_node")));
    reader.count_branches(&tree);
    let mut carried = Object::from_iter([("conversation", conversation)]);
    if !reader.before.is_empty() {
        carried.insert("after", reader.before);
    }
    reader.draft.finish(carried, now)
}

/// Reads one conversation.
struct Reader<'t, 'r> {
    draft: Draft,
    place: String,
    /// Messages not sent to models since the last message.
    before: Vec<Value<'t>>,
    report: &'r mut Report,
}

impl<'t> Reader<'t, '_> {
    /// Reads the path to the current message; returns the nodes that are not on it.
    fn follow(&mut self, mut tree: Tree<'t>, current: Option<&Text<'t>>) -> Tree<'t> {
        let path = tree.path_to(current);
        for problem in path.problems {
            self.report.say(&self.place, problem.to_string());
        }
        for node in path.nodes {
            if let Value::Object(message) = tree.take(node) {
                self.message(message);
            }
        }
        tree
    }

    fn count_branches(&mut self, rest: &Tree<'t>) {
        let left = rest.messages().filter(|message| !is_bare(message)).count();
        if left > 0 {
            let branches = "on other branches of the conversation";
            let one = format!("message {branches}");
            let messages = were(left, &one, &format!("messages {branches}"));
            self.report.say(&self.place, format!("{messages} left out"));
        }
    }

    fn message(&mut self, mut message: Object<'t>) {
        let content = Content::read(message.get("content"), message.get("metadata"));
        if content.is_thought || content.pieces.is_empty() {
            return self.keep_aside(message, content.is_thought);
        }
        if content.is_all_there_is {
            message.remove("content");
        }
        let place = format!("{}, message {}", self.place, self.draft.len() + 1);
        self.tell_missing(&place, &content);
        let (role, speaker) = self.speaker(&message, &content);
        let fields = [("role", role.into()), ("content", words(speaker, content.pieces))];
        let metadata = message.get("metadata");
        let model = metadata.and_then(|metadata| metadata.get("model_slug"));
        let beside = Beside {
            at: time(message.get("create_time")),
            model: model.and_then(Value::as_str).map(str::to_owned),
            status: match message.get("status").and_then(Value::as_str) {
                Some("finished_partial_completion") => TurnStatus::Cancelled,
                Some("in_progress") => TurnStatus::Interrupted,
                _ => TurnStatus::Complete,
            },
            carried: {
                let before = std::mem::take(&mut self.before);
                let before = Some(before).filter(|before| !before.is_empty());
                let before = before.map(|before| ("before", Value::Array(before)));
                [("message", message.into())].into_iter().chain(before).collect()
            },
        };
        let fields = Object::from_iter(fields);
        if let Err(why) = self.draft.add(&place, fields, beside, self.report) {
            self.report.say(place, format!("was left out: {why}"));
        }
    }

    /// The role for models, and the name to put before the content if the author has no such role.
    fn speaker(&mut self, message: &Object<'t>, content: &Content<'t>) -> (&'static str, String) {
        let author = message.get("author");
        let author = |name: &str| said(author.and_then(|author| author.get(name)));
        let role = author("role").and_then(Text::as_str).unwrap_or("unknown");
        if content.is_context {
            self.report.count(Often::Instructions);
            return ("system", String::new());
        }
        let metadata = message.get("metadata");
        if metadata.and_then(|metadata| metadata.get(HIDDEN)) == Some(&Value::Bool(true)) {
            self.report.count(Often::Hidden);
        }
        match role {
            "user" => ("user", String::new()),
            "system" => ("system", String::new()),
            "assistant" => match said(message.get("recipient")).filter(|to| *to != "all") {
                None => ("assistant", String::new()),
                Some(tool) => {
                    let tool = shortened(&shown(tool));
                    self.report.count(Often::ToolTold(tool.clone()));
                    ("assistant", format!("[to {tool}]"))
                }
            },
            // Not as a system message: the text of a web page must not have that authority.
            role => {
                let name = author("name").map_or_else(|| shortened(role), |n| shortened(&shown(n)));
                self.report.count(Often::ToolTold(name.clone()));
                ("user", format!("[{name}]"))
            }
        }
    }

    fn tell_missing(&mut self, place: &str, content: &Content<'t>) {
        for piece in &content.pieces {
            let what = match piece {
                Piece::Text(_) => continue,
                Piece::Elsewhere { kind, name } => {
                    format!("the {kind} {name} is not in the export; a note replaces it")
                }
                Piece::Unknown(kind) => {
                    format!(
                        "a part of the unknown kind {kind} is kept but not sent; a note replaces it"
                    )
                }
            };
            self.report.say(place, what);
        }
    }

    fn keep_aside(&mut self, message: Object<'t>, is_thought: bool) {
        if is_thought {
            self.report.count(Often::Thought);
        } else if is_bare(&message) {
            return;
        } else {
            self.report.count(Often::Silent);
        }
        self.before.push(message.into());
    }
}

/// The content for models: a string if it is all text, otherwise a list of parts.
fn words<'t>(speaker: String, pieces: Vec<Piece<'t>>) -> Value<'t> {
    let is_plain = pieces.iter().all(|piece| matches!(piece, Piece::Text(_)));
    let mut texts: Vec<Text<'t>> = pieces.into_iter().map(Piece::told).collect();
    if !speaker.is_empty() {
        texts[0] = joined(&[speaker.into(), texts[0].clone()], " ");
    }
    match &texts[..] {
        [text] if is_plain => text.clone().into(),
        texts if is_plain => joined(texts, "\n").into(),
        _ => texts.into_iter().map(text_part).collect(),
    }
}

/// Whether a message has no content and no metadata worth keeping.
fn is_bare(message: &Object<'_>) -> bool {
    let content = Content::read(message.get("content"), message.get("metadata"));
    let metadata = message.get("metadata").and_then(Value::as_object);
    let mut about = metadata.into_iter().flat_map(Object::iter);
    !content.is_thought
        && content.pieces.is_empty()
        && about.all(|(name, value)| name == HIDDEN || is_nothing(value))
}

const FORMAT: &str = "chatgpt";
/// The metadata field of a message that ChatGPT does not display.
const HIDDEN: &str = "is_visually_hidden_from_conversation";
