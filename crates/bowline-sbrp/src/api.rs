//! The HTTP bodies of the control plane, and of the relay's status endpoint.
//!
//! Field names are those on the wire. Readers ignore unknown fields, so that either side can add
//! fields first.

mod devices;
mod read;

use serde::{Deserialize, Serialize};

pub use devices::{DeviceEntry, DeviceKey, DeviceSignature, OpenDeviceSession, SetDevices};
pub use read::{BadBody, LONGEST_ID, LONGEST_NAME, MOST_DEVICES, MOST_UNREACHABLE, Registration};

/// The body of `POST /api/daemons/register`. The owner of a key may register it again and gets the
/// same id with a new presence token; this also recovers a lost id.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Register {
    /// The user's API key. It may be sent in `Authorization: Bearer` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// 32 bytes in base64url without padding; standard base64 is accepted too.
    pub identity_public_key: String,
    /// The display name of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether sessions can be resumed after the daemon's connection is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
    /// The process that registers.
    #[serde(flatten)]
    pub process: DaemonProcess,
}

/// What a daemon's process says about itself. Our own fields: others need not send them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonProcess {
    /// A random name of the process. Each registration of one begins a new epoch of the daemon's
    /// presence, and a renewal of another process than the last registered is refused.
    #[serde(default, rename = "process", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The region in which it prefers a relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// URLs of relays that it could not reach, or that sent it away: it asks for another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<String>,
}

/// The body of `POST /api/daemons/{id}/presence`, which may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewPresence {
    /// Whether sessions can be resumed from now on; as before if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
    /// The process that asks.
    #[serde(flatten)]
    pub process: DaemonProcess,
}

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Register").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The answer to a registration, and to `POST /api/daemons/{id}/presence`, which renews the token.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    /// The daemon's id.
    pub daemon_id: String,
    /// The token for the daemon's own connection.
    pub presence_token: String,
    /// The relay URL that the daemon connects to: `wss://host/relay`.
    pub relay_url: String,
    /// When the token was issued and when it expires, in seconds since 1970.
    pub issued_at: u64,
    /// When the token expires.
    pub expires_at: u64,
    /// The epoch of the presence, which the token names, too. 0: the control plane counts none.
    #[serde(default)]
    pub epoch: u64,
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
    /// The daemon's id.
    pub id: String,
    /// The daemon's id.
    pub identity_public_key: String,
    /// Whether it is connected.
    pub status: DaemonStatus,
    /// Its display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Whether a daemon is connected to the relay. Unknown when the relay cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DaemonStatus {
    /// Connected.
    Online,
    /// Not connected.
    Offline,
    /// The relay could not be asked.
    #[serde(other)]
    Unknown,
}

/// The body of `PATCH /api/daemons/{id}`: what of the daemon is to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rename {
    /// The new name.
    pub name: String,
}

/// The answer to `GET /status` at a relay. Any valid token for the daemon authorizes the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// Whether the token's daemon is connected.
    pub daemon: DaemonStatus,
}

/// The body of `POST /api/sessions` from the owner of a daemon, whose API key is in the header. A
/// paired device sends an [`OpenDeviceSession`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenSession {
    /// The daemon to open a session with.
    pub daemon_id: String,
}

/// The answer to `POST /api/sessions`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionOpened {
    /// The relay URL that the client connects to: `wss://host/relay`.
    pub relay_url: String,
    /// The token for one connection.
    pub token: String,
    /// The session id of the token, so that clients need not parse tokens.
    pub session_id: String,
    /// In seconds since 1970.
    pub expires_at: u64,
}

impl std::fmt::Debug for SessionOpened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionOpened(…)")
    }
}

/// The body of every error response of the control plane: `{"error": {"code": "…", "message":
/// "…"}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong.
    pub error: RefusalDetail,
}

/// What a control plane says when it refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalDetail {
    /// A machine-readable code: `unauthorized`, `forbidden`, `not_found`, `invalid_request`,
    /// `rate_limited`, `internal`; for daemons also [`Self::REPLACED`] and [`Self::NO_RELAY`]; for devices also [`Self::UNKNOWN_DEVICE`] and
    /// [`Self::CLOCK_SKEW`].
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// The server's time in seconds since 1970, with `clock_skew`: what to sign the request with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

impl RefusalDetail {
    /// The daemon has no such device, or there is no such daemon.
    pub const UNKNOWN_DEVICE: &str = "unknown_device";
    /// Another process of the daemon registered later: this one has to step aside.
    pub const REPLACED: &str = "replaced";
    /// No relay takes new daemons now.
    pub const NO_RELAY: &str = "no_relay";
    /// A device signed for another time than the server's, which is in `now`.
    pub const CLOCK_SKEW: &str = "clock_skew";
}
