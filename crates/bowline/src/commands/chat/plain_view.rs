//! A chat as plain text or JSON: the agent's answers on stdout, everything else on stderr.

use std::io::Write;

use bowline_client::surface::Event;
use bowline_sbp::frame::{TurnComplete, TurnStatus};
use bowline_sbp::id::{SessionId, TurnId};
use serde_json::{Value, json};

use super::json::as_json;
use crate::terminal::{note, one_line, printable, say};

#[derive(Debug)]
pub(super) struct PlainView {
    json: bool,
    /// The turn whose chunks are being printed.
    open: Option<TurnId>,
    /// The last line on stdout has no line break yet.
    mid_line: bool,
    lost: bool,
}

impl PlainView {
    pub(super) fn new(json: bool) -> Self {
        Self { json, open: None, mid_line: false, lost: false }
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Says which session it is: to a program, or to a person.
    pub(super) fn begin(&self, id: SessionId, words: Option<(&str, &str)>) {
        if self.json {
            say!("{}", json!({ "event": "session", "session_id": id }));
        } else if let Some((session, help)) = words {
            note!("{session}\n{help}\n");
        }
    }

    pub(super) fn show(&mut self, event: &Event) {
        if self.json {
            self.print(&format!("{}\n", as_json(event)));
            return;
        }
        match event {
            Event::Attached { pending, reconnected, .. } => {
                if *reconnected && self.lost {
                    self.note("reconnected");
                }
                self.lost = false;
                match pending {
                    0 => {}
                    1 => self.note("1 turn arrived while you were away:"),
                    n => self.note(&format!("{n} turns arrived while you were away:")),
                }
            }
            Event::Turn(turn) if turn.status == TurnStatus::Failed => {
                self.note(&printable(turn.content.trim_end()));
                self.open = None;
            }
            Event::Turn(turn) => {
                self.end_line();
                let mark = mark(turn.status);
                self.print(&format!("{}{mark}\n", printable(turn.content.trim_end())));
                self.open = None;
            }
            Event::Chunk { turn_id, text, restarted } => {
                if *restarted && self.open == Some(*turn_id) {
                    self.note("the answer starts over:");
                } else if self.open != Some(*turn_id) {
                    self.end_line();
                }
                self.open = Some(*turn_id);
                self.print(&printable(text));
            }
            Event::Complete(TurnComplete { status, .. }) => {
                self.print(mark(*status));
                self.end_line();
                self.open = None;
            }
            Event::Failed { message, .. } => self.note(&format!("not answered: {message}")),
            Event::Lost { why, .. } => {
                if !self.lost {
                    self.note(&format!(
                        "connection lost ({why}); the agent continues, reconnecting …"
                    ));
                }
                self.lost = true;
            }
            Event::Moved { session, gateway, url } => self.note(&format!(
                "the session has moved to the gateway {gateway} at {url} and goes on there as {session}"
            )),
            Event::Arrived { session } => {
                self.note(&format!("the session has come to this gateway, as {session}"));
            }
            Event::ToolCall { tool, input, .. } => {
                let input: String = one_line(&input.to_string()).chars().take(200).collect();
                self.note(&format!("the agent calls {tool} {input}"));
            }
            Event::Asked { content, surface_id, author, .. } => {
                let who = author.as_deref().or(surface_id.as_deref()).unwrap_or("someone");
                self.note(&format!("{} asks: {}", printable(who), printable(content.trim_end())));
            }
            _ => {}
        }
    }

    /// Shows an earlier entry of the log, for `/back`.
    pub(super) fn earlier(&mut self, entry: &Value, line: &str) {
        self.end_line();
        if self.json {
            self.print(&format!("{}\n", json!({ "event": "earlier", "entry": entry })));
        } else {
            self.print(&format!("{line}\n"));
        }
    }

    /// Prints a notice of the program on stderr.
    pub(super) fn note(&mut self, text: &str) {
        self.end_line();
        // It may quote an upstream or another device.
        note!("· {}", printable(text));
    }

    pub(super) fn end_line(&mut self) {
        if self.mid_line {
            self.print("\n");
        }
    }

    fn print(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut out = std::io::stdout().lock();
        // Write errors, such as a closed pipe, are ignored: the chat goes on.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.mid_line = !text.ends_with('\n');
    }
}

/// The suffix of a turn that did not complete.
fn mark(status: TurnStatus) -> &'static str {
    match status {
        TurnStatus::Complete => "",
        TurnStatus::Cancelled => " [stopped]",
        TurnStatus::Interrupted => " [interrupted]",
        TurnStatus::Failed => " [failed]",
    }
}
