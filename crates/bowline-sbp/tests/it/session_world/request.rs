//! Requests of clients, and the copies of them in the network.

use std::sync::Arc;

use bowline_sbp::id::TurnId;
use bowline_sbp::message::Message;
use bowline_sbp::session::{Command, Fact, IdempotencyKey, Origin, Reply, Submit, TurnRequest};

/// A command that a client wants answered.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) client: usize,
    pub(super) command: Command,
    /// When it was first sent.
    pub(super) sent_at: u64,
    /// Copies that still exist: in the network, an inbox, an actor, or as a reply in the network.
    pub(super) copies: usize,
    /// How many were ever sent.
    pub(super) sent: usize,
    /// All copies were lost: the client retries.
    pub(super) lost: bool,
    /// When the client received its answer.
    pub(super) answered_at: Option<u64>,
    /// The client was told that nothing was stored, and did not retry.
    pub(super) told_not_stored: bool,
}

impl Request {
    /// Whether the bus may carry it twice. A call of a device is sent again by its handle alone; and
    /// "whichever turn runs" means another one later.
    pub(super) fn may_double(&self) -> bool {
        !matches!(
            self.command,
            Command::CallDevice { .. }
                | Command::ResumeCall { .. }
                | Command::Cancel { running: true, .. }
        )
    }

    pub(super) fn submit(&self) -> Option<&Submit> {
        match &self.command {
            Command::Submit(submit) => Some(submit),
            _ => None,
        }
    }
}

/// A message in the network.
#[derive(Debug)]
pub(super) enum Travel {
    Command {
        request: usize,
        to: usize,
    },
    Reply {
        request: usize,
        /// The replica and actor that sent it.
        from: (usize, u64),
        reply: Reply,
    },
    /// For the actor that the replica has when it arrives.
    Fact {
        to: usize,
        fact: Fact,
    },
}

pub(super) fn submit(turn: TurnId, origin: Origin, key: Option<IdempotencyKey>) -> Submit {
    let request = TurnRequest {
        model: "m".into(),
        params: Vec::new(),
        messages: vec![Message::text("user", &turn.to_string())],
        stream: false,
        checkpoint_every: 2,
        tether: true,
        origin,
        agent_id: None,
        recall: false,
        remember: false,
        caller: None,
        history: None,
        digest: None,
        author: None,
        wait_for_approval: false,
        spender: None,
    };
    let request = Arc::new(request);
    Submit { turn, request, key, resume: false, sender: None, wait: false, blobs: Vec::new() }
}
