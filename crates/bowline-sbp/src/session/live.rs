//! The observable state of a live session, published as one value: watchers read the newest.
//!
//! Level-triggered on purpose. A watcher compares the new value with the previous one, so there is
//! no queue per watcher, and a slow watcher cannot miss an event.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::approval::Approval;
use crate::id::{AgentId, Seq, SessionId, TurnId, UserId};
use crate::lifecycle::Status;
use crate::surface::{SurfaceContext, SurfaceTool};

/// A session at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveState {
    /// Whose session it is.
    pub user: UserId,
    pub status: Status,
    /// The newest log position.
    pub head: Seq,
    /// The number of completed steps; the running turn is the next one.
    #[serde(default)]
    pub step_count: u64,
    /// The session was deleted.
    pub gone: bool,
    /// The session that continues this one after a handoff, and its agent.
    pub handed_to: Option<(SessionId, AgentId)>,
    /// The running turn first, then the waiting ones, in order.
    pub turns: Vec<LiveTurn>,
    pub surfaces: Vec<LiveSurface>,
    /// Recently closed attachments by epoch, and why.
    pub closed: Vec<(u64, Closed)>,
    /// Tool calls that wait for the result of an attached device.
    pub calls: Vec<DeviceCall>,
    /// Pending approvals, and recently decided ones.
    pub approvals: Vec<Arc<Approval>>,
}

/// A running or waiting turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveTurn {
    pub id: TurnId,
    pub attempt: u32,
    pub running: bool,
    /// Whether it is delivered to surfaces (SBP-L2-19).
    pub tethered: bool,
    /// The epoch of the attachment that sent it.
    pub sender: Option<u64>,
    /// The last user message, for display.
    pub question: Option<Arc<str>>,
    /// The name of who asked, if it was not the session's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Arc<str>>,
    /// The model that is asked.
    #[serde(default)]
    pub model: Arc<str>,
}

/// An attached surface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveSurface {
    pub epoch: u64,
    pub joined: bool,
    pub context: Arc<SurfaceContext>,
    /// The tools that may be called.
    pub tools: Arc<[SurfaceTool]>,
}

/// Why the session closed an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closed {
    /// Another surface replaced it (SBP-L2-16).
    Replaced,
    /// The device token was revoked.
    Revoked,
}

/// A tool call sent to the surface of that epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceCall {
    pub call: Uuid,
    pub epoch: u64,
    pub tool: String,
    pub input: Arc<Value>,
    /// When the call times out. Not serialised: an `Instant` means nothing to another process.
    #[serde(skip)]
    pub deadline: Option<Instant>,
}
