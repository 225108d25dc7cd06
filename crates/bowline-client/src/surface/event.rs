//! What a surface tells its program.

use std::fmt;
use std::time::Duration;

use bowline_sbp::approval::{Approval, ApprovalState};
use bowline_sbp::frame::{AttachedSurface, TetherTurn, TurnComplete};
use bowline_sbp::id::{ApprovalId, TurnId};
use serde_json::Value;

/// One thing that happened, in the order it happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The gateway took the surface on; `pending` whole turns follow.
    Attached {
        pending: u64,
        sbp_level: String,
        /// This surface was attached before: messages not yet accepted are sent again.
        reconnected: bool,
    },
    /// A whole turn. It replaces what chunks may have shown of it.
    Turn(TetherTurn),
    /// More text of a turn being generated. If `restarted`, `text` is all there is of the turn
    /// and what was shown of it is void.
    Chunk { turn_id: TurnId, text: String, restarted: bool },
    /// The chunks of a turn are all there.
    Complete(TurnComplete),
    /// What somebody asked on another surface, or over HTTP. Only for a surface that joined, or beside
    /// one that did.
    Asked { turn_id: TurnId, content: String, surface_id: Option<String> },
    /// Who is attached. Only for a surface that joined.
    Surfaces(Vec<AttachedSurface>),
    /// A message is on the gateway's disk and will be answered.
    Accepted { client_turn_id: String, turn_id: TurnId },
    /// A message was refused, or its turn failed. It is not sent again.
    Failed {
        client_turn_id: Option<String>,
        turn_id: Option<TurnId>,
        code: String,
        message: String,
    },
    /// The agent asks for one of the tools that the surface declared. Answer it with
    /// [`Surface::answer`](super::Surface::answer); it comes once, however often the gateway asks.
    /// `timeout` is for how long it is waited for, if the gateway says.
    ToolCall { call_id: String, tool: String, input: Value, timeout: Option<Duration> },
    /// A tool waits for a person's permission, which [`Surface::decide`](super::Surface::decide) gives.
    ApprovalAsked(Approval),
    /// It does not wait any more.
    Resolved { approval_id: ApprovalId, state: ApprovalState },
    /// The connection is gone; the next attempt begins after `retry_in`.
    Lost { why: String, retry_in: Duration },
    /// The surface is closed for good. Nothing follows.
    Closed(CloseReason),
}

/// Why a surface does not come back by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// The token or the key is wrong (4003, or HTTP 401 or 403).
    Forbidden,
    /// The gateway has no such session (4004).
    NotFound,
    /// Another surface took the session over (4009). Coming back would start a fight (G6).
    Replaced,
    /// The session goes on as another one, with another agent.
    HandedOff { session: String, agent: String },
    /// The gateway and this program do not understand each other (1003).
    Protocol { detail: String },
    /// The program left.
    Detached,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Forbidden => f.write_str("the gateway refuses this token"),
            CloseReason::NotFound => f.write_str("the gateway has no such session"),
            CloseReason::Replaced => f.write_str("another surface took the session over"),
            CloseReason::HandedOff { session, agent } => {
                write!(f, "the session was handed over to agent {agent} and goes on as {session}")
            }
            CloseReason::Protocol { detail } => {
                write!(f, "the gateway does not understand this program: {detail}")
            }
            CloseReason::Detached => f.write_str("detached"),
        }
    }
}
