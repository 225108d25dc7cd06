//! A turn between its acceptance and its end: what rounds report, and what callers get.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::log::NewEntry;
use super::row::Tokens;
use crate::api::SbpInfo;
use crate::approval::Approval;
use crate::completion::ToolCall;
use crate::error::Failure;

/// How a turn ended, for whoever waits for it.
pub type Outcome = Result<Done, Failure>;

/// A turn that ended with an answer on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The `chat.completion` object, without `sbp`.
    pub completion: String,
    pub info: SbpInfo,
    /// The last chunk of its stream, if it was one, kept back until the turn was on disk: it
    /// carries `sbp`.
    pub closing: Option<String>,
}

impl Done {
    /// As text, to be given again under an idempotency key. The cost is there as bits, too: read
    /// back as a number it may differ in its last digit, and a replay must not (G3).
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

/// How one round of a turn ended: the model was asked once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RoundEnd {
    /// The model wants tools run that are the gateway's to run.
    Calls {
        /// What the turn adds to the log before they run; the last entry makes the calls.
        entries: Vec<NewEntry>,
        calls: Vec<PlannedCall>,
        /// What the round cost.
        cost_usd: f64,
        tokens: Tokens,
        /// The turn's answer, if the model also called tools of its caller's: those end the turn.
        then: Option<Box<Answered>>,
    },
    /// There is an answer, whole or partial.
    Answered(Box<Answered>),
    /// There is none: what was asked and the log does not have yet, the reason for the caller, and
    /// the note for the log.
    Refused { asked: Vec<NewEntry>, failure: Failure, note: String },
}

/// An answer, ready to be written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// What was asked and the log does not have yet.
    pub asked: Vec<NewEntry>,
    /// The answer's own entry; its status says how the model ended (G18).
    pub entry: NewEntry,
    pub tokens: Tokens,
    /// The `chat.completion` object, without `sbp`.
    pub completion: String,
    /// The last chunk of its stream, if it is one.
    pub closing: Option<String>,
    /// The upstream that answered.
    pub routed_to: String,
    /// Why it is not complete, if nobody asked for that.
    pub failure: Option<Failure>,
}

/// A call to be made, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// Our name for it: `call_id` of a `TOOL_CALL`.
    pub id: Uuid,
    /// Which of the calls that were made together.
    pub n: u32,
    pub call: ToolCall,
    pub work: Work,
    /// A person has to agree first.
    pub permission: Option<Permission>,
    /// Done twice it is done once: after a crash it is made again.
    pub again: bool,
}

/// The question to be asked before a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permission {
    pub approval: Approval,
}

/// Who makes a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Nobody: this is its result.
    Known(Result<Value, String>),
    /// An attached device.
    Device {
        tool: String,
        input: Value,
        /// How long it may take in all.
        patience: Duration,
        /// How long a device that is not there may take to come back.
        wait: Duration,
    },
    /// A task of the gateway's: an MCP server, or the agent's memory.
    Task { tool: String, input: Value },
}

/// What a crash left of a turn whose calls are on record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replanned {
    /// Where the calls are on record.
    pub seq: u64,
    /// Those without a result.
    pub calls: Vec<PlannedCall>,
    /// How often the model was asked before, and what that cost.
    pub rounds: u32,
    pub spent_usd: f64,
}
