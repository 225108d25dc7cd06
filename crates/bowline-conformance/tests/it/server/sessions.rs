//! A session of the small server.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use uuid::Uuid;

use super::{Fault, State};

/// A frame for a surface, or the end.
#[derive(Debug)]
pub(crate) enum Out {
    Frame(Value),
    /// Turns before this one are confirmed by the pong.
    Barrier(usize),
    Close(u16),
}

/// An attached surface.
#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) epoch: Uuid,
    pub(crate) out: mpsc::UnboundedSender<Out>,
    pub(crate) context: Value,
    pub(crate) tools: Vec<String>,
    pub(crate) calls: HashMap<String, oneshot::Sender<Value>>,
    /// Only `TETHER_ACK` confirms, not the pong.
    pub(crate) acks: bool,
}

impl Surface {
    pub(crate) fn send(&self, frame: Value) {
        // A socket that has ended is noticed by its own task.
        let _ = self.out.send(Out::Frame(frame));
    }

    pub(crate) fn streams(&self) -> bool {
        match self.context["ui_capabilities"].as_array() {
            None => true,
            Some(list) => list.is_empty() || list.contains(&json!("streaming")),
        }
    }
}

/// A turn that a surface may still need.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) id: String,
    pub(crate) seq: usize,
    pub(crate) text: String,
    pub(crate) model: String,
}

/// A turn that is being made.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: String,
    pub(crate) text: String,
}

/// Where a session came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    New,
    /// By an export's id, if it was made here.
    Import {
        session: Option<String>,
    },
    Handoff {
        session: String,
    },
    Fork {
        session: String,
    },
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) agent: String,
    pub(crate) steps: u64,
    pub(crate) messages: Vec<Value>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) delivered: usize,
    pub(crate) live: Option<Live>,
    pub(crate) surface: Option<Surface>,
    /// Surfaces beside that one.
    pub(crate) joined: Vec<Surface>,
    pub(crate) had_surface: bool,
    pub(crate) resumed: bool,
    /// The next agent's session, after a handoff.
    pub(crate) next: Option<String>,
    /// Completed or failed: no more turns.
    pub(crate) ended: Option<String>,
    pub(crate) origin: Origin,
    /// Of an imported session, for a server that cannot let go of it.
    pub(crate) model: Option<String>,
    /// One turn at a time.
    pub(crate) running: Arc<Mutex<()>>,
    /// The running turn, and those that wait.
    pub(crate) room: Arc<Semaphore>,
    /// Sockets that are open and not attached, for a server that tells them too much.
    pub(crate) early: Vec<mpsc::UnboundedSender<Out>>,
}

impl Session {
    pub(crate) fn new(agent: &str, token: Option<&str>) -> Self {
        let made = || format!("token-{}", Uuid::new_v4().simple());
        Self {
            id: Uuid::new_v4().to_string(),
            token: token.map_or_else(made, str::to_owned),
            agent: agent.to_owned(),
            steps: 0,
            messages: Vec::new(),
            turns: Vec::new(),
            delivered: 0,
            live: None,
            surface: None,
            joined: Vec::new(),
            had_surface: false,
            resumed: false,
            next: None,
            ended: None,
            origin: Origin::New,
            model: None,
            running: Arc::default(),
            room: Arc::new(Semaphore::new(1 + WAITING)),
            early: Vec::new(),
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.turns.len() - self.delivered
    }

    pub(crate) fn is_suspended(&self) -> bool {
        let left = self.had_surface && self.surface.is_none() && self.joined.is_empty();
        (left || self.next.is_some()) && !self.resumed
    }

    pub(crate) fn status(&self) -> &str {
        match () {
            () if self.ended.is_some() => self.ended.as_deref().unwrap_or_default(),
            () if self.is_suspended() => "suspended",
            () if self.steps == 0 && !self.had_surface => "idle",
            () => "running",
        }
    }

    /// All that are attached.
    pub(crate) fn attached(&self) -> impl Iterator<Item = &Surface> {
        self.surface.iter().chain(&self.joined)
    }

    /// The frame of a turn that waits.
    pub(crate) fn tether_turn(&self, state: &State, index: usize, turn: &Turn) -> Value {
        let mut frame = json!({
            "turn_index": index, "turn_id": turn.id, "role": "assistant", "content": turn.text,
            "model_used": turn.model, "created_at": NOW, "seq": turn.seq,
        });
        if state.has(Fault::OlderNames) {
            frame = json!({ "turn": frame });
        }
        frame["type"] = json!("TETHER_TURN");
        frame["session_id"] = json!(self.id);
        frame
    }
}

/// This server has no clock.
pub(crate) const NOW: &str = "2026-01-01T00:00:00Z";
/// How many turns wait behind the one that runs.
const WAITING: usize = 64;
