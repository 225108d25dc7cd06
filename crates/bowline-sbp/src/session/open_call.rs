//! Tool calls that a device has not answered when the session's owner stops in good order: the next owner
//! goes on with them, under the same id.
//!
//! Only for a planned stop. After a crash nobody knows what the last owner sent, and such a call is reported
//! to the model as interrupted.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::input::Now;

/// What an owner that stopped left open of the turn that it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCalls {
    /// The run of the turn that was left. What a later run began, and left by a crash, is not in here.
    pub attempt: u32,
    /// How many runs of the turn ended by such a stop: they do not count as tries.
    pub stops: u32,
    pub calls: Vec<OpenCall>,
}

impl OpenCalls {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("open calls serialise")
    }

    /// None: it cannot be read, and nothing is known, as after a crash.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// A call of a turn whose owner stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// Index among the calls of the same log entry.
    pub n: u32,
    /// None if no device has it yet: it can begin anew.
    pub sent: Option<SentCall>,
}

/// A call that was sent to a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentCall {
    /// The `call_id` under which the device knows it.
    pub id: Uuid,
    /// The device's `surface_id`. None: it is the one surface that did not join others.
    pub device: Option<String>,
    /// It comes back with an attachment whose epoch is greater than this.
    pub older: u64,
    /// When its time is over.
    pub until: Timestamp,
    /// It stays allowed as it was.
    pub consent: Consent,
}

impl SentCall {
    pub(super) fn is_over(&self, now: Now) -> bool {
        self.until <= now.at
    }

    /// When its time is over by the clock of this process; none if it is over. `longest`: how long a new
    /// call would have, which bounds what a wrong clock can do (G14).
    pub(super) fn deadline(&self, longest: Duration, now: Now) -> Option<Instant> {
        let left = Duration::try_from(now.at.duration_until(self.until)).ok()?;
        (!left.is_zero()).then(|| now.instant + left.min(longest))
    }
}

/// What allows a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Consent {
    /// A rule of the configuration, or the gateway's own tool.
    Rule,
    /// The device asks its user.
    DeviceAsks,
    Person(Allowed),
}

/// What a person was shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Allowed {
    pub device: Option<String>,
    pub definition: String,
    /// The attachment of the device; 0 if that is not known any more.
    pub epoch: u64,
    /// A device without a name may come back with an epoch greater than this.
    pub newer_than: u64,
}
