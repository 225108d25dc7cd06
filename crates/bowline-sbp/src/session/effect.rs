//! What goes out, after the commit.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::input::{Attached, CommandId, HandOff};
use super::turn::{Outcome, Work};
use crate::approval::Approval;
use crate::id::{ExportId, Seq, SessionId, TurnId};
use crate::lifecycle::{IllegalChange, Status};

/// Something to be done outside.
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
    /// Look at what a crash left of a turn whose calls are on record.
    Replan {
        turn: TurnId,
        attempt: u32,
    },
    /// Have the model stop; the round still reports its end.
    StopRound {
        turn: TurnId,
    },
    /// Make a call that is the gateway's to make.
    RunCall {
        call: Uuid,
        turn: Option<TurnId>,
        work: Work,
    },
    /// Nobody waits for it any more.
    StopCall {
        call: Uuid,
    },
    /// Make the bundle of a handoff, at this position.
    Pack {
        handoff: HandOff,
        last_seq: Seq,
    },
    /// A device took this long to answer, or not to.
    DeviceTook(Duration),
    /// The session is gone: the actor ends.
    End,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The turn is on disk and will run, or runs.
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
    /// How the approval stands; none if nobody here knows it.
    Decided(Option<Box<Approval>>),
    HandedOff {
        id: SessionId,
        export_id: ExportId,
    },
    /// What a device answered.
    Called(Result<Value, String>),
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
    #[error("the idempotency key was used for another request")]
    KeyReused,
    #[error("this turn was accepted before and is not known here any more")]
    TurnUnknown,
    #[error(transparent)]
    Illegal(IllegalChange),
    #[error("a session has at most {0} surfaces at once")]
    TooManySurfaces(usize),
    #[error("the device's token was revoked or has expired")]
    Revoked,
    #[error("a session has at most {0} devices with tokens")]
    TooManyDevices(usize),
    #[error("the session knows no such device")]
    NoDevice,
    #[error("the session is being handed over already")]
    HandoffWaits,
    #[error("the handoff failed: {0}")]
    Failed(crate::error::Failure),
    #[error("the gateway is stopping; try again soon")]
    Stopping,
    /// The store failed for good; whether this was stored is not known.
    #[error("the gateway's store failed; whether this was stored is unknown")]
    StoreFailed,
    /// The store did not take it; nothing was stored.
    #[error("the gateway cannot store right now; try again with the same Idempotency-Key")]
    NotStored,
}
