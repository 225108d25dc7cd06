//! Request and response bodies of the HTTP interface.

mod audit;
mod devices;
mod names;
mod pairing;
mod roaming;
mod usage;
mod users;

pub use audit::*;
pub use devices::*;
pub use names::*;
pub use pairing::*;
pub use roaming::*;
pub use usage::*;
pub use users::*;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approval::ApprovalsMode;
use crate::context::{HistoryMode, LeftOut};
use crate::frame::TurnStatus;
use crate::id::{AgentId, MemoryId, Seq, SessionId, SnapshotId, TurnId};
use crate::lifecycle::Status;
use crate::surface::SurfaceContext;

/// Body of `POST /v1/sessions`. Everything is optional (SBP-L1-01).
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreateSession {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The caller's own token, at least 32 characters; generated if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_token: Option<String>,
    /// Any JSON object, returned as it is; at most 16 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub metadata: Option<Map<String, Value>>,
}

/// Answer to `POST /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionCreated {
    pub session_id: SessionId,
    pub session_token: String,
    pub agent_id: AgentId,
    pub status: Status,
    pub step_count: u64,
    pub created_at: Timestamp,
}

/// One session, as `GET /v1/sessions/{id}` returns it (SBP-L1-03).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionView {
    pub session_id: SessionId,
    /// The title that a person gave, or the first words that were said; null before the first
    /// message (ours).
    pub title: Option<String>,
    pub status: Status,
    /// Whether a turn runs now. `running` alone only says that the session accepts turns (ours).
    pub turn_running: bool,
    /// Tool calls that wait for a person's decision (ours).
    pub approvals_pending: u64,
    pub step_count: u64,
    pub agent_id: AgentId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub message_count: u64,
    pub cost_usd: f64,
    pub tether_turns_pending: u64,
    /// The newest attached surface, if one is attached.
    pub surface: Option<SurfaceContext>,
    /// All surfaces that are attached now, oldest first (ours).
    pub attached: Vec<AttachedSurface>,
    /// The session that continues this one after a handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handed_off_to: Option<SessionId>,
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub metadata: Map<String, Value>,
}

/// Answer to `GET /v1/sessions`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionList {
    /// Newest first.
    pub sessions: Vec<SessionView>,
    /// Pass it as `before` to get the next page; absent on the last one.
    pub next: Option<SessionId>,
}

/// One entry of a session's log, as `GET /v1/sessions/{id}/messages` returns it.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MessageView {
    pub seq: Seq,
    /// `message` (from a caller), `turn` (from the agent), `action` (a tool call that the gateway
    /// made for the agent, or its result) or `note` (from the gateway).
    pub kind: &'static str,
    pub turn_id: Option<TurnId>,
    /// The message exactly as it was stored.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub message: Box<serde_json::value::RawValue>,
    pub model_used: Option<String>,
    pub cost_usd: f64,
    pub status: TurnStatus,
    /// The agent that took the turn, if not the session's own agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The name of who said it, if it was not the session's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    pub created_at: Timestamp,
}

/// Answer to `GET /v1/sessions/{id}/messages`.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MessageList {
    /// Oldest first.
    pub messages: Vec<MessageView>,
    /// Whether there are more entries in the requested direction.
    pub more: bool,
}

/// Body of `PATCH /v1/sessions/{id}/status`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StatusPatch {
    pub status: Status,
}

/// Body of `POST /v1/sessions/{id}/cancel`. Without it the running turn is cancelled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CancelTurns {
    /// Turns to cancel, running or waiting.
    pub turns: Vec<TurnId>,
}

/// Answer to `GET /v1/sessions/{id}/turns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TurnList {
    pub session_id: SessionId,
    /// The running turn first, then the waiting ones, in order.
    pub turns: Vec<TurnView>,
}

/// A running or waiting turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TurnView {
    pub turn_id: TurnId,
    pub running: bool,
    /// The number of this run; more than 1 after a crash.
    pub attempt: u32,
    /// The text of the last user message.
    pub question: Option<String>,
}

/// Answer to `POST /v1/sessions/{id}/cancel`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Cancelled {
    pub session_id: SessionId,
    /// Whether a turn was cancelled.
    pub cancelled: bool,
    pub turn_id: Option<TurnId>,
    /// All cancelled turns.
    #[serde(default)]
    pub turns: Vec<TurnId>,
}

/// The `sbp` object of a completion request (SBP-L1-06). Unknown keys are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SbpOptions {
    pub force_new_session: bool,
    /// Take a snapshot every this many turns, at least 1.
    pub checkpoint_every: u32,
    /// Whether the agent's memory is searched for the answer; it is unless this is false.
    /// An explicit `true` also offers the model the tool `remember`.
    pub memory_retrieval: Option<bool>,
    /// Continue this session, resuming it if it is suspended.
    pub session_id: Option<String>,
    /// An idempotency key for this turn: the same key and body give the same result (ours).
    pub client_turn_id: Option<String>,
    /// Who decides what the model is sent (ours). `mine`: the request's messages. `stored`: the
    /// stored history and what is new in the request. Without it, the gateway recognises callers
    /// that resend their conversation.
    pub history: Option<HistoryMode>,
    /// Whether tool calls wait for an approval although nobody who may give it is attached (ours).
    pub approvals: Option<ApprovalsMode>,
    /// `false`: only the HTTP caller gets the answer; the turn is never delivered to a surface
    /// (ours).
    pub tether: bool,
}

impl SbpOptions {
    /// Whether the agent's memory is searched for the turn.
    pub fn recalls(&self) -> bool {
        self.memory_retrieval.unwrap_or(true)
    }

    /// Whether tool calls wait for an approval; `default` if the request does not say.
    pub fn waits_for_approval(&self, default: ApprovalsMode) -> bool {
        self.approvals.unwrap_or(default) == ApprovalsMode::Wait
    }
}

impl Default for SbpOptions {
    fn default() -> Self {
        Self {
            force_new_session: false,
            checkpoint_every: 1,
            memory_retrieval: None,
            session_id: None,
            client_turn_id: None,
            history: None,
            approvals: None,
            tether: true,
        }
    }
}

/// The `sbp` object of a completion answer (SBP-L1-07).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SbpInfo {
    pub session_id: SessionId,
    /// Only if this request created the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<String>,
    pub snapshot_id: Option<SnapshotId>,
    pub resume_available: bool,
    pub resume_prompt: Option<String>,
    pub last_checkpoint: Option<Timestamp>,
    pub step_count: u64,
    pub cost_usd: f64,
    /// The upstream that answered.
    pub model_routed_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The turn's position in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// `cancelled` if the turn was cancelled before its end.
    pub turn_status: TurnStatus,
    /// What the model was not sent, because the session has outgrown it (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
}

impl SbpInfo {
    /// As JSON, with the session token for the caller that created the session.
    pub fn to_json(&self, token: Option<&str>) -> String {
        let info = Self { session_token: token.map(str::to_owned), ..self.clone() };
        serde_json::to_string(&info).expect("it is made of plain values")
    }
}

/// Body of `PUT` and `POST /v1/agents/{id}/memory`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewMemories {
    pub memories: Vec<MemoryText>,
}

/// A memory to be stored.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemoryText {
    pub text: String,
    /// `semantic` (a fact, the default), `episodic` (something that happened) or `procedural` (a
    /// rule or steps to follow).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// The memories of an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemoryList {
    pub agent_id: AgentId,
    pub memories: Vec<MemoryView>,
}

/// One memory of an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemoryView {
    pub id: MemoryId,
    pub kind: &'static str,
    pub text: String,
    /// The session in which it was stored.
    pub session_id: Option<SessionId>,
    pub created_at: Timestamp,
}

/// `{"error":{…}}`. `type` and `param` are there so that OpenAI SDKs can read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// What happened, why, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorDetail {
    pub code: String,
    pub message: String,
    pub detail: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub param: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbp_l1_06_options_have_the_protocols_defaults_and_ignore_unknown_keys() {
        let read = |text: &str| serde_json::from_str::<SbpOptions>(text).unwrap();
        assert_eq!(read("{}"), SbpOptions::default());
        assert_eq!(read(r#"{"future":[1],"checkpoint_every":5}"#).checkpoint_every, 5);
        let defaults = SbpOptions::default();
        assert!(defaults.recalls() && defaults.tether && !defaults.force_new_session);
        assert!(!read(r#"{"memory_retrieval":false}"#).recalls());
        assert_eq!(defaults.checkpoint_every, 1);
    }

    #[test]
    fn sbp_l1_07_an_answers_info_is_written_as_its_fields_say() {
        let id = |n| uuid::Uuid::from_u128(n);
        let least = SbpInfo {
            session_id: SessionId(id(1)),
            session_token: None,
            snapshot_id: None,
            resume_available: false,
            resume_prompt: None,
            last_checkpoint: None,
            step_count: 0,
            cost_usd: 0.0,
            model_routed_to: None,
            turn_id: None,
            seq: None,
            turn_status: TurnStatus::Complete,
            left_out: None,
        };
        let most = SbpInfo {
            session_token: Some("t\"".into()),
            snapshot_id: Some(SnapshotId(id(2))),
            resume_available: true,
            resume_prompt: Some("go\non?".into()),
            last_checkpoint: Some(Timestamp::from_millisecond(1_790_000_000_120).unwrap()),
            step_count: u64::MAX,
            cost_usd: 0.1 + 0.2,
            model_routed_to: Some("m".into()),
            turn_id: Some(TurnId(id(3))),
            seq: Some(7),
            turn_status: TurnStatus::Cancelled,
            ..least.clone()
        };
        let nil = "00000000-0000-0000-0000-00000000000";
        let text = format!(
            r#"{{"session_id":"{nil}1","snapshot_id":null,"resume_available":false,"resume_prompt":null,"last_checkpoint":null,"step_count":0,"cost_usd":0.0,"model_routed_to":null,"turn_status":"complete"}}"#
        );
        assert_eq!(least.to_json(None), text);
        let text = format!(
            r#"{{"session_id":"{nil}1","session_token":"t\"","snapshot_id":"{nil}2","resume_available":true,"resume_prompt":"go\non?","last_checkpoint":"2026-09-21T14:13:20.12Z","step_count":18446744073709551615,"cost_usd":0.30000000000000004,"model_routed_to":"m","turn_id":"{nil}3","seq":7,"turn_status":"cancelled"}}"#
        );
        assert_eq!(most.to_json(Some("t\"")), text);
        assert_eq!(serde_json::from_str::<SbpInfo>(&text).unwrap(), most);
    }
}
