//! Where a chat is shown: on a terminal, or as plain text or JSON in a pipe.

use std::io::IsTerminal;

use bowline_client::surface::Event;
use bowline_sbp::id::SessionId;
use serde_json::Value;

use super::plain_view::PlainView;
use super::terminal_view::{PromptText, TerminalView};
use crate::terminal::live::Size;
use crate::terminal::{has_colour, note};

#[derive(Debug)]
pub(super) enum View {
    Plain(PlainView),
    Terminal(Box<TerminalView>),
}

impl View {
    /// `with_prompt`: keys are read one by one, and a prompt is shown.
    pub(super) fn new(json: bool, with_prompt: bool) -> Self {
        let size = crossterm::terminal::size().ok();
        match size.filter(|_| !json && can_redraw()) {
            Some((columns, rows)) => {
                let size = Size::reported(columns, rows);
                View::Terminal(Box::new(TerminalView::new(size, has_colour(), with_prompt)))
            }
            None => View::Plain(PlainView::new(json)),
        }
    }

    pub(super) fn begin(&mut self, id: SessionId, title: Option<&str>, interactive: bool) {
        let words = match title {
            Some(title) => format!("{title}  (session {id})"),
            None => format!("session {id}"),
        };
        let help = "/help lists commands; /quit disconnects, the agent continues";
        match self {
            View::Terminal(view) if interactive => view.note(&format!("{words}\n{help}\n")),
            View::Terminal(_) => {}
            View::Plain(view) => view.begin(id, interactive.then_some((words.as_str(), help))),
        }
    }

    pub(super) fn show(&mut self, event: &Event) {
        match self {
            View::Plain(view) => view.show(event),
            View::Terminal(view) => view.show(event),
        }
    }

    /// A message was typed or given.
    pub(super) fn sent(&mut self, client_turn_id: &str, text: &str) {
        if let View::Terminal(view) = self {
            view.sent(client_turn_id, text);
        }
    }

    /// A notice of the program.
    pub(super) fn note(&mut self, text: &str) {
        match self {
            View::Plain(view) => view.note(text),
            View::Terminal(view) => view.note(text),
        }
    }

    /// An earlier entry of the log; `line` is its plain form.
    pub(super) fn earlier(&mut self, entry: &Value, line: &str) {
        match self {
            View::Plain(view) => view.earlier(entry, line),
            View::Terminal(view) => {
                let message = &entry["message"];
                match (message["role"].as_str(), message["content"].as_str()) {
                    (Some(role @ ("user" | "assistant")), Some(text)) => view.earlier(role, text),
                    _ => view.note(line),
                }
            }
        }
    }

    pub(super) fn is_json(&self) -> bool {
        matches!(self, View::Plain(view) if view.is_json())
    }

    /// Whether an answer is being shown or waited for.
    pub(super) fn is_working(&self) -> bool {
        matches!(self, View::Terminal(view) if view.is_working())
    }

    pub(super) fn set_prompt(&mut self, prompt: PromptText) {
        if let View::Terminal(view) = self {
            view.set_prompt(prompt);
        }
    }

    pub(super) fn resize(&mut self, size: Size) {
        if let View::Terminal(view) = self {
            view.resize(size);
        }
    }

    pub(super) fn clear(&mut self) {
        if let View::Terminal(view) = self {
            view.clear();
        }
    }

    pub(super) fn close(&mut self) {
        match self {
            View::Plain(view) => view.end_line(),
            View::Terminal(view) => view.close(),
        }
    }

    /// How to continue: by this command. Call it last, in the terminal's normal mode.
    pub(super) fn farewell(&self, command: &str) {
        if !self.is_json() {
            note!("continue with: {command}");
        }
    }
}

/// Whether stdout is a terminal that knows escape sequences.
pub(super) fn can_redraw() -> bool {
    let knows = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    knows && std::io::stdout().is_terminal()
}
