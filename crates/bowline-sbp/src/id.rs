//! Ids of sessions, turns, snapshots, exports, users, memories, approvals and agents; log positions.
//!
//! Newtypes, so that a turn id can never be passed where a session id is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "schema", schema(value_type = String, format = "uuid"))]
        pub struct $name(pub Uuid);

        impl $name {
            /// The sixteen bytes, for keys and storage.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// The inverse of `as_bytes`.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidUuid;

            fn from_str(text: &str) -> Result<Self, InvalidUuid> {
                // Only the hyphenated form: `Uuid` also accepts braces, URNs and bare hex, and
                // then one session would have several spellings.
                if text.len() != 36 {
                    return Err(InvalidUuid);
                }
                Uuid::from_str(text).map(Self).map_err(|_| InvalidUuid)
            }
        }
    };
}

uuid_id!(
    /// One continuous, durable conversation.
    SessionId
);
uuid_id!(
    /// One assistant output; on the wire also the `chunk_id` of its stream.
    TurnId
);
uuid_id!(
    /// One durable snapshot of a session.
    SnapshotId
);
uuid_id!(
    /// One export of a session as a bundle.
    ExportId
);
uuid_id!(
    /// A person who uses the gateway.
    UserId
);
uuid_id!(
    /// One memory of an agent.
    MemoryId
);
uuid_id!(
    /// One approval request for a tool call.
    ApprovalId
);

/// The text is not a UUID in its usual hyphenated form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID in the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")]
pub struct InvalidUuid;

/// A position in a session's log. The first entry is 1; 0 is before the first entry.
pub type Seq = u64;

/// The agent that answers in a session: a name the caller chose, 1 to 128 printable characters.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = String))]
pub struct AgentId(String);

impl From<AgentId> for String {
    fn from(agent: AgentId) -> Self {
        agent.0
    }
}

impl TryFrom<String> for AgentId {
    type Error = InvalidAgentId;

    fn try_from(text: String) -> Result<Self, InvalidAgentId> {
        text.parse()
    }
}

impl AgentId {
    /// The agent of callers that name none (SBP-L1-05).
    pub fn fallback() -> Self {
        Self("default".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text is not a valid agent id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an agent id is 1 to 128 characters without control characters")]
pub struct InvalidAgentId;

impl FromStr for AgentId {
    type Err = InvalidAgentId;

    fn from_str(text: &str) -> Result<Self, InvalidAgentId> {
        let length = text.chars().count();
        if length == 0 || length > 128 || text.chars().any(char::is_control) {
            return Err(InvalidAgentId);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_exactly_one_spelling_apart_from_case() {
        let text = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
        assert_eq!(text.parse::<SessionId>().unwrap().to_string(), text);
        for other in [
            "0191f2c03b5e7a108a551d2b3c4d5e6f",
            "{0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f}",
            "urn:uuid:0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f",
            "",
            "not-a-uuid",
        ] {
            assert_eq!(other.parse::<SessionId>(), Err(InvalidUuid), "{other}");
        }
    }

    #[test]
    fn agent_ids_are_bounded_and_printable() {
        assert_eq!("travel-desk".parse::<AgentId>().unwrap().as_str(), "travel-desk");
        assert!("ü".repeat(128).parse::<AgentId>().is_ok());
        assert_eq!("".parse::<AgentId>(), Err(InvalidAgentId));
        assert_eq!("a".repeat(129).parse::<AgentId>(), Err(InvalidAgentId));
        assert_eq!("a\nb".parse::<AgentId>(), Err(InvalidAgentId));
    }
}
