//! Effects: what the driver carries out after the commit. Includes the replies to commands.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::input::{Attached, CommandId, HandOff};
use super::open_call::SentCall;
use super::turn::{Outcome, Work};
use crate::approval::Approval;
use crate::id::{ExportId, Seq, SessionId, TurnId};
use crate::lifecycle::{IllegalChange, Status};

/// Work for the driver outside the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    Reply {
        to: CommandId,
        reply: Reply,
    },
    /// Ask the model.
    StartRound {
        turn: TurnId,
        attempt: u32,
        round: u32,
        spent_usd: f64,
    },
    /// Find out which logged tool calls of a turn that was taken over have no result; reported as
    /// [`Fact::Replanned`](super::Fact::Replanned).
    Replan {
        turn: TurnId,
        attempt: u32,
    },
    /// Cancel the model's answer; the round still reports its end.
    StopRound {
        turn: TurnId,
    },
    /// Make a tool call that a task of the gateway runs.
    RunCall {
        call: Uuid,
        turn: Option<TurnId>,
        work: Work,
        /// The tool's definition that a person said yes to: another one is not called.
        #[serde(default)]
        definition: Option<String>,
    },
    /// Abort the task of a call whose result is no longer needed.
    StopCall {
        call: Uuid,
    },
    /// Build the bundle of a handoff at this log position.
    Pack {
        handoff: HandOff,
        last_seq: Seq,
    },
    /// For metrics: the duration of a device call, answered or not.
    DeviceTook(Duration),
    /// The session was deleted: the actor ends.
    End,
}

/// The reply to a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The turn is committed; it runs now or later.
    Accepted {
        turn: TurnId,
    },
    /// The turn has ended.
    Ended {
        turn: TurnId,
        outcome: Box<Outcome>,
    },
    /// The session is suspended and was not resumed: nothing was stored (SBP-L2-15).
    Suspended,
    Cancelled {
        turns: Vec<TurnId>,
    },
    Attached(Box<Attached>),
    /// The approval after the decision; none if the session has no such approval.
    Decided(Option<Box<Approval>>),
    HandedOff {
        id: SessionId,
        export_id: ExportId,
    },
    /// What a device answered.
    Called(Result<Value, String>),
    /// The owner stops before the device has answered: the next owner goes on with the call.
    CallLeftOpen(Box<SentCall>),
    Done,
    Refused(Refusal),
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("there is no such session here")]
    NoSession,
    #[error("the session is {0} and takes no more turns")]
    Ended(Status),
    #[error("the session was handed over to {0} and takes no more turns")]
    HandedOver(SessionId),
    #[error("{0} turns already wait in this session; wait for one to end, or cancel it")]
    Full(usize),
    #[error("another gateway takes the session over; until {0} it takes no turns here")]
    Held(Timestamp),
    #[error("the idempotency key was used for another request")]
    KeyReused,
    #[error("this turn was accepted before, but its outcome is no longer known")]
    TurnUnknown,
    #[error(transparent)]
    Illegal(IllegalChange),
    #[error("a session has at most {0} surfaces at once")]
    TooManySurfaces(usize),
    #[error("the device's token was revoked or has expired")]
    Revoked,
    #[error("a session has at most {0} devices with tokens")]
    TooManyDevices(usize),
    #[error("the session has no device with this name")]
    NoDevice,
    #[error("the session is being handed over already")]
    HandoffWaits,
    #[error("this call takes the approval of another user than the one who asked for it")]
    SecondPerson,
    #[error("the key that made the call may not approve it")]
    OwnCall,
    #[error("the handoff failed: {0}")]
    Failed(crate::error::Failure),
    #[error("the gateway is stopping; try again soon")]
    Stopping,
    /// The store failed permanently; whether this was stored is unknown.
    #[error("the gateway's store failed; whether this was stored is unknown")]
    StoreFailed,
    /// Its owner is another gateway process, which does not answer.
    #[error(
        "the gateway process that runs the session does not answer, and whether this was done is \
         unknown; try again with the same Idempotency-Key"
    )]
    Unreachable,
    /// The commit failed; nothing was stored.
    #[error("the gateway cannot store right now; try again with the same Idempotency-Key")]
    NotStored,
}
