//! Tools that an agent can call on the machine where a chat runs.
//!
//! `clipboard`, `open_url` and `notify` are offered if the machine has a program for them,
//! `read_file` only for the folder given by --read-folder, and `run` only with --allow-run. The user is
//! asked about each use of the clipboard, each page and each command (G21). Every tool has a timeout and a limit on the size of its
//! result.

mod clipboard;
mod notify;
mod open_url;
mod program;
mod read_file;
mod run;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bowline_client::surface::ToolOutcome;
use bowline_sbp::surface::SurfaceTool;
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// The tools of one chat.
#[derive(Debug, Clone)]
pub(super) struct ChatTools(Arc<Vec<Tool>>);

#[derive(Debug, PartialEq, Eq)]
enum Tool {
    Clipboard(clipboard::Programs),
    OpenUrl(&'static str),
    Notify(Option<&'static str>),
    ReadFile { folder: PathBuf },
    Run,
}

impl ChatTools {
    /// The tools that this machine can offer; none if `off`.
    pub(super) fn here(
        off: bool,
        folder: Option<&PathBuf>,
        may_run: bool,
    ) -> Result<Self, Failure> {
        let mut tools = Vec::new();
        if off {
            return Ok(Self(Arc::new(tools)));
        }
        tools.extend(clipboard::Programs::here().map(Tool::Clipboard));
        tools.extend(open_url::program().map(Tool::OpenUrl));
        tools.push(Tool::Notify(notify::program()));
        if let Some(folder) = folder {
            let folder = folder.canonicalize().map_err(|error| {
                Failure::new(format!("cannot read the folder {}: {error}", folder.display()))
                    .hint("give --read-folder a folder that exists")
            })?;
            tools.push(Tool::ReadFile { folder });
        }
        if may_run {
            tools.push(Tool::Run);
        }
        Ok(Self(Arc::new(tools)))
    }

    /// The declarations of the tools for the gateway.
    pub(super) fn declared(&self) -> Vec<SurfaceTool> {
        self.0.iter().map(Tool::declared).collect()
    }

    /// The text of the permission prompt; none if the call needs no permission.
    pub(super) fn question(&self, name: &str, input: &Value) -> Option<String> {
        let tool = self.0.iter().find(|tool| tool.name() == name)?;
        let said = |what: &str| text(input, what).unwrap_or("?").to_owned();
        match tool {
            Tool::Run => Some(format!("the agent wants to run: {}", said("command"))),
            Tool::OpenUrl(_) => Some(format!("the agent wants to open {}", said("url"))),
            Tool::Clipboard(_) => Some(match text(input, "text") {
                None => "the agent wants to read your clipboard".to_owned(),
                Some(text) => format!("the agent wants to put on your clipboard: {text}"),
            }),
            // It only shows text; and the folder was shared by --read-folder.
            Tool::Notify(_) | Tool::ReadFile { .. } => None,
        }
    }

    /// Executes a tool call.
    pub(super) async fn call(
        &self,
        name: &str,
        input: Value,
        until: Option<Instant>,
    ) -> ToolOutcome {
        let Some(tool) = self.0.iter().find(|tool| tool.name() == name) else {
            return Err(format!("there is no tool {name} here"));
        };
        match tool {
            Tool::Clipboard(programs) => programs.call(&input).await,
            Tool::OpenUrl(program) => open_url::open(program, &input).await,
            Tool::Notify(program) => notify::notify(*program, &input).await,
            Tool::ReadFile { folder } => read_file::read(folder, &input).await,
            Tool::Run => run::run(&input, until).await,
        }
    }
}

impl Tool {
    fn name(&self) -> &'static str {
        match self {
            Tool::Clipboard(_) => "clipboard",
            Tool::OpenUrl(_) => "open_url",
            Tool::Notify(_) => "notify",
            Tool::ReadFile { .. } => "read_file",
            Tool::Run => "run",
        }
    }

    fn declared(&self) -> SurfaceTool {
        let text = |what: &str| json!({ "type": "string", "description": what });
        let (description, properties, required) = match self {
            Tool::Clipboard(_) => (
                "Reads the clipboard of the user's computer, or puts `text` on it.",
                json!({ "text": text("What to put on it; leave it out to read.") }),
                json!([]),
            ),
            Tool::OpenUrl(_) => (
                "Opens a web page in the user's browser.",
                json!({ "url": text("An http or https address.") }),
                json!(["url"]),
            ),
            Tool::Notify(_) => (
                "Shows the user a short notice.",
                json!({ "title": text("A few words."), "text": text("A sentence.") }),
                json!(["text"]),
            ),
            Tool::ReadFile { .. } => (
                "Reads a text file from the folder that the user has shared, or lists a folder in it.",
                json!({ "path": text("Relative to the shared folder; \".\" lists it.") }),
                json!(["path"]),
            ),
            Tool::Run => (
                "Runs a shell command on the user's computer. The user is asked each time.",
                json!({ "command": text("One command line.") }),
                json!(["command"]),
            ),
        };
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties);
        schema.insert("required".into(), required);
        SurfaceTool {
            name: self.name().into(),
            description: Some(description.into()),
            input_schema: Some(schema),
            // The chat asks its user itself: see `question`.
            asks: true,
        }
    }
}

fn text<'a>(input: &'a Value, name: &str) -> Option<&'a str> {
    input.get(name).and_then(Value::as_str)
}

/// A required string argument.
fn required<'a>(input: &'a Value, name: &str) -> Result<&'a str, String> {
    text(input, name).filter(|text| !text.is_empty()).ok_or_else(|| format!("`{name}` is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_offered_when_tools_are_off_and_nothing_runs_unasked() {
        let off = ChatTools::here(true, None, true).unwrap();
        assert!(off.declared().is_empty());
        let on = ChatTools::here(false, None, false).unwrap();
        assert!(on.declared().iter().all(|tool| tool.name != "run" && tool.name != "read_file"));
        let runs = ChatTools::here(false, None, true).unwrap();
        assert!(runs.question("run", &json!({ "command": "ls" })).unwrap().contains("ls"));
        assert_eq!(runs.question("notify", &json!({})), None);
        assert!(runs.declared().iter().all(|tool| tool.asks));
    }

    #[test]
    fn g21_clipboard_pages_and_commands_ask() {
        let all =
            [Tool::Clipboard(clipboard::Programs::for_tests()), Tool::OpenUrl("true"), Tool::Run];
        let tools = ChatTools(Arc::new(all.into()));
        let asks = |tool: &str, input: Value| tools.question(tool, &input).unwrap();
        assert_eq!(asks("clipboard", json!({})), "the agent wants to read your clipboard");
        assert!(asks("clipboard", json!({ "text": "rm" })).ends_with(": rm"));
        assert!(
            asks("open_url", json!({ "url": "https://x.example/?q=1" })).contains("x.example/?q=1")
        );
        assert_eq!(tools.question("unknown", &json!({})), None);
    }
}
