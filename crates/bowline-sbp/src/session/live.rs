//! What is going on in a session, for those who watch: one value, the newest wins.
//!
//! Level-triggered on purpose. Watchers compare what they see with what they saw, so nobody has a
//! queue, and nobody can miss an event by being slow.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::approval::Approval;
use crate::id::{AgentId, Seq, SessionId, TurnId};
use crate::lifecycle::Status;
use crate::surface::{SurfaceContext, SurfaceTool};

/// A session at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveState {
    pub status: Status,
    /// The newest log position.
    pub head: Seq,
    /// The session was deleted.
    pub gone: bool,
    /// The session that goes on in this one's place, and its agent.
    pub handed_to: Option<(SessionId, AgentId)>,
    /// The running turn first, then those that wait, in their order.
    pub turns: Vec<LiveTurn>,
    pub surfaces: Vec<LiveSurface>,
    /// Surfaces that were closed lately, and why.
    pub closed: Vec<(u64, Closed)>,
    /// Calls that wait for an attached device.
    pub calls: Vec<DeviceCall>,
    /// Questions that wait for a person, and those that lately did.
    pub approvals: Vec<Arc<Approval>>,
}

/// A turn that runs or waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveTurn {
    pub id: TurnId,
    pub attempt: u32,
    pub running: bool,
    /// Whether surfaces get to see it (SBP-L2-19).
    pub tethered: bool,
    /// The attachment that sent it.
    pub sender: Option<u64>,
    /// The question, for readers.
    pub question: Option<Arc<str>>,
}

/// An attached surface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveSurface {
    pub epoch: u64,
    pub joined: bool,
    pub context: Arc<SurfaceContext>,
    /// Those that may be called.
    pub tools: Arc<[SurfaceTool]>,
}

/// Why an attachment ended that its surface did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closed {
    /// Another surface took its place (SBP-L2-16).
    Replaced,
    /// The device's own token was taken back.
    Revoked,
}

/// A call for the surface of that epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceCall {
    pub call: Uuid,
    pub epoch: u64,
    pub tool: String,
    pub input: Arc<Value>,
    /// How long the answer is waited for; only where the clock is the owner's.
    #[serde(skip)]
    pub deadline: Option<Instant>,
}
