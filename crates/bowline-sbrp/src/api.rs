//! What the control plane, and the relay beside its socket, say over HTTP.
//!
//! Names are the wire's. Whoever reads ignores what it does not know, so that either side may learn
//! more without the other.

mod read;

use serde::{Deserialize, Serialize};

pub use read::{BadBody, LONGEST_ID, LONGEST_NAME, Registration};

/// The body of `POST /api/daemons/register`. A key may be registered again by its owner, who gets
/// the same id and a new presence token: that is also how a lost id is found.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Register {
    /// The user's key. It may stand in `Authorization: Bearer` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// 32 bytes in base64url without padding; standard base64 is read too.
    pub identity_public_key: String,
    /// What people call the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its sessions may outlive its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
}

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Register").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The answer to a registration, and to `POST /api/daemons/{id}/presence`, which renews.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    pub daemon_id: String,
    pub presence_token: String,
    /// Where the daemon connects: `wss://host/relay`.
    pub relay_url: String,
    /// When the token was made and ends, in seconds since 1970.
    pub issued_at: u64,
    pub expires_at: u64,
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("daemon_id", &self.daemon_id).finish_non_exhaustive()
    }
}

/// An entry of `GET /api/daemons`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonView {
    pub id: String,
    pub identity_public_key: String,
    pub status: DaemonStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Whether a daemon is connected to the relay. Unknown when the relay cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonStatus {
    Online,
    Offline,
    #[serde(other)]
    Unknown,
}

/// The answer to `GET /status` at a relay, shown any token for the daemon that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    pub daemon: DaemonStatus,
}

/// The body of `POST /api/sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenSession {
    pub daemon_id: String,
}

/// The answer to it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionOpened {
    /// Where the client connects: `wss://host/relay`.
    pub relay_url: String,
    pub token: String,
    /// The session id of the token, so that clients need not read tokens.
    pub session_id: String,
    /// In seconds since 1970.
    pub expires_at: u64,
}

impl std::fmt::Debug for SessionOpened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionOpened(…)")
    }
}

/// Every refusal of the control plane: `{"error": {"code": "…", "message": "…"}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub error: RefusalDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalDetail {
    /// A name for programs: `unauthorized`, `forbidden`, `not_found`, `invalid_request`,
    /// `rate_limited`, `internal`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}
