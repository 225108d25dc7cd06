//! A turn in progress: what its rounds report, the tool calls they plan, and the outcome.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::log::NewEntry;
use super::row::Tokens;
use crate::api::SbpInfo;
use crate::approval::Approval;
use crate::completion::ToolCall;
use crate::context::LeftOut;
use crate::error::Failure;

/// How a turn ended, for the commands that wait for it.
pub type Outcome = Result<Done, Failure>;

/// A turn whose answer is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The `chat.completion` object, without `sbp`.
    pub completion: String,
    pub info: SbpInfo,
    /// The last chunk of the stream, if the turn streamed. Held back until the turn is committed,
    /// because it carries `sbp`.
    pub closing: Option<String>,
}

impl Done {
    /// As text, to be replayed under an idempotency key. The cost is stored as bits, too: parsed
    /// from decimal it may differ in its last digit, and a replay must be identical (G3).
    pub fn to_json(&self) -> String {
        let cost = self.info.cost_usd.to_bits();
        serde_json::to_string(&(&self.completion, &self.info, cost)).expect("results serialise")
    }

    pub fn from_json(text: &str) -> Option<Self> {
        let (completion, mut info, cost): (_, SbpInfo, u64) = serde_json::from_str(text).ok()?;
        info.cost_usd = f64::from_bits(cost);
        Some(Self { completion, info, closing: None })
    }
}

/// How one round of a turn ended. A round is one request to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RoundEnd {
    /// The model called tools that the gateway runs.
    Calls {
        /// Log entries to append before the calls run; the last one holds the calls.
        entries: Vec<NewEntry>,
        calls: Vec<PlannedCall>,
        /// What the round cost.
        cost_usd: f64,
        tokens: Tokens,
        /// The turn's answer, if the model also called tools of its caller: those end the turn.
        then: Option<Box<Answered>>,
    },
    /// The model answered, completely or in part.
    Answered(Box<Answered>),
    /// The model did not answer. `asked`: request messages that are not in the log yet; `failure`:
    /// the reason for the caller; `note`: the note for the log.
    Refused { asked: Vec<NewEntry>, failure: Failure, note: String },
}

/// An answer, ready to be committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// Request messages that are not in the log yet.
    pub asked: Vec<NewEntry>,
    /// The answer's own entry; its status says how the model ended (G18).
    pub entry: NewEntry,
    pub tokens: Tokens,
    /// By estimate, what the round used and cost, if the server did not say: it may have been cut off
    /// before. Counted for budgets only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<(Tokens, f64)>,
    /// The `chat.completion` object, without `sbp`.
    pub completion: String,
    /// The last chunk of the stream, if the turn streams.
    pub closing: Option<String>,
    /// The upstream that answered.
    pub routed_to: String,
    /// What the model was not sent, because the conversation is too long for it.
    #[serde(default)]
    pub left_out: Option<LeftOut>,
    /// Why the answer is partial, unless it was cancelled.
    pub failure: Option<Failure>,
}

/// The result of a call that was interrupted and is not repeated.
pub const CALL_INTERRUPTED: &str =
    "the call was interrupted; whether it was carried out is unknown";

/// A tool call to be made, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// The gateway's id for it: `call_id` of a `TOOL_CALL`.
    pub id: Uuid,
    /// Index among the calls of the same log entry.
    pub n: u32,
    pub call: ToolCall,
    pub work: Work,
    /// Set if a person has to approve the call first.
    pub permission: Option<Permission>,
    /// The call is idempotent: after a crash it is made again. Any other is reported as interrupted.
    pub again: bool,
}

/// The approval that a call needs, unless somebody allowed it for good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permission {
    pub approval: Approval,
    /// The definition of a server's tool. That of a device's tool is the device's.
    #[serde(default)]
    pub definition: String,
    /// A device that asks its user by itself needs no approval.
    #[serde(default)]
    pub unless_device_asks: bool,
    /// Wait for a decision although nobody who may give it is attached.
    #[serde(default)]
    pub wait: bool,
    /// The call was made before a restart, if it needed no question then.
    #[serde(default)]
    pub replanned: bool,
}

impl Permission {
    /// For this approval, in any case.
    pub fn of(approval: Approval) -> Self {
        Self {
            approval,
            definition: String::new(),
            unless_device_asks: false,
            wait: true,
            replanned: false,
        }
    }

    /// How long a person may take to decide.
    pub fn time(&self) -> Duration {
        let time = self.approval.created_at.duration_until(self.approval.expires_at);
        Duration::try_from(time).unwrap_or_default()
    }
}

impl PlannedCall {
    /// Whether it takes a device, or a person who allows it: those may be away while the gateway stops.
    pub(super) fn needs_somebody(&self) -> bool {
        self.permission.is_some() || matches!(self.work, Work::Device { .. })
    }

    /// Whether a person may have allowed it before a restart, and it may have been made: that decides.
    pub(super) fn may_be_used(&self) -> bool {
        !self.again && self.permission.as_ref().is_some_and(|permission| permission.replanned)
    }

    /// Whether it may have been made before a restart, and must not be made again.
    pub(super) fn may_have_run(&self) -> bool {
        let is_made = !matches!(self.work, Work::Known(_));
        is_made && !self.again && self.permission.is_none()
    }
}

/// Who makes a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// No call is needed: this is its result.
    Known(Result<Value, String>),
    /// An attached device.
    Device {
        tool: String,
        input: Value,
        /// Timeout of the whole call.
        patience: Duration,
        /// How long to wait for a disconnected device to come back.
        wait: Duration,
    },
    /// A task of the gateway: an MCP server, or the agent's memory.
    Task { tool: String, input: Value },
}

/// The rest of a turn whose owner ended after its tool calls were logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replanned {
    /// The log position of the entry that holds the calls.
    pub seq: u64,
    /// The calls without a logged result.
    pub calls: Vec<PlannedCall>,
    /// Rounds so far, and their cost.
    pub rounds: u32,
    pub spent_usd: f64,
}
