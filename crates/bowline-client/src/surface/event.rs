//! Events of a surface.

use std::fmt;
use std::time::Duration;

use bowline_sbp::approval::{Approval, ApprovalState};
use bowline_sbp::frame::{AttachedSurface, TetherTurn, TurnComplete};
use bowline_sbp::id::{ApprovalId, SessionId, TurnId};
use serde_json::Value;

/// An event, delivered in order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The surface is attached; `pending` whole turns follow.
    Attached {
        /// How many turns were missed and follow now.
        pending: u64,
        /// The protocol level of the gateway.
        sbp_level: String,
        /// This surface was attached before: messages not yet accepted are sent again.
        reconnected: bool,
    },
    /// A whole turn. It replaces the text of earlier chunks of the turn.
    Turn(TetherTurn),
    /// More text of a running turn. If `restarted`, discard the text so far: `text` is the whole
    /// text.
    Chunk {
        /// The turn.
        turn_id: TurnId,
        /// The next part of it.
        text: String,
        /// The text begins anew: what came before is void.
        restarted: bool,
    },
    /// All chunks of a turn were delivered.
    Complete(TurnComplete),
    /// A user message from another surface, or over HTTP. Only if this surface joined, or another
    /// one did.
    /// `author`: the name of who said it, if it was not the session's user.
    Asked {
        /// The turn.
        turn_id: TurnId,
        /// What was said.
        content: String,
        /// The surface that it came from, if it says so.
        surface_id: Option<String>,
        /// The user who said it, if there are several.
        author: Option<String>,
    },
    /// The attached surfaces. Only for a surface that joined.
    Surfaces(Vec<AttachedSurface>),
    /// The gateway stored a message and will answer it.
    Accepted {
        /// The id that the message was sent with.
        client_turn_id: String,
        /// The turn that it became.
        turn_id: TurnId,
    },
    /// A message was refused, or its turn failed. It is not resent.
    Failed {
        /// The id that the message was sent with.
        client_turn_id: Option<String>,
        /// The turn, if it began.
        turn_id: Option<TurnId>,
        /// The error code.
        code: String,
        /// A sentence for people.
        message: String,
    },
    /// A call of a tool that the surface declared. Answer it with
    /// [`Surface::answer`](super::Surface::answer). Delivered once, however often the gateway sends
    /// it. `timeout`: how long the gateway waits for the result, if it says.
    ToolCall {
        /// To answer with.
        call_id: String,
        /// The name of the tool.
        tool: String,
        /// Its arguments.
        input: Value,
        /// How long the gateway waits for the answer.
        timeout: Option<Duration>,
    },
    /// A tool call waits for approval; decide with [`Surface::decide`](super::Surface::decide).
    ApprovalAsked(Box<Approval>),
    /// The approval is no longer pending.
    Resolved {
        /// The approval.
        approval_id: ApprovalId,
        /// How it was decided.
        state: ApprovalState,
    },
    /// The connection failed; the next attempt begins after `retry_in`.
    Lost {
        /// What happened.
        why: String,
        /// When the next attempt begins.
        retry_in: Duration,
    },
    /// The session goes on at another gateway, under another id there. The surface attaches there by itself.
    Moved {
        /// Its id there.
        session: SessionId,
        /// The id of that gateway.
        gateway: String,
        /// Where that gateway serves.
        url: String,
    },
    /// The session of the roaming token has come to this gateway, where it has this id.
    Arrived {
        /// Its id here.
        session: SessionId,
    },
    /// The surface is closed and does not reconnect. The last event.
    Closed(CloseReason),
}

/// Why a surface does not reconnect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The token or the key is wrong (4003, or HTTP 401 or 403).
    Forbidden,
    /// The gateway has no such session (4004).
    NotFound,
    /// Another surface replaced this one (4009). Reconnecting would replace that one in turn (G6).
    Replaced,
    /// The session was handed off to another agent, as a new session.
    HandedOff {
        /// The session that goes on.
        session: String,
        /// The agent that it was handed to.
        agent: String,
    },
    /// The session goes on at another gateway, and the surface does not follow it: it was told not to, was not let in,
    /// or the address there is not one to which a token may be sent.
    Moved {
        /// Its id there.
        session: String,
        /// The id of that gateway.
        gateway: String,
        /// Where that gateway serves.
        url: String,
    },
    /// The gateway reported a protocol error (1003).
    Protocol {
        /// What is wrong.
        detail: String,
    },
    /// The program called `detach`, or dropped the handle.
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
            CloseReason::Moved { session, gateway, url } => {
                write!(
                    f,
                    "the session has moved to the gateway {gateway} at {url} and goes on there as {session}"
                )
            }
            CloseReason::Protocol { detail } => {
                write!(f, "the gateway reported a protocol error: {detail}")
            }
            CloseReason::Detached => f.write_str("detached"),
        }
    }
}
