//! `/v1/peers`: other gateways and trackers, as this gateway knows them.

use serde::{Deserialize, Serialize};

use super::manifest::Role;
use super::policy::Allow;

/// Answer to `GET /v1/peers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerList {
    /// This gateway.
    pub gateway_id: String,
    pub url: String,
    pub fingerprint: String,
    /// Those of the configuration, and those whose key is remembered.
    pub peers: Vec<PeerView>,
}

/// Another gateway, or a tracker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerView {
    pub id: String,
    pub url: String,
    /// What the configuration names it.
    pub named: PeerNamed,
    /// What it may have; none for a tracker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub allow: Option<Allow>,
    pub pin: PinState,
    /// Of the key that is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Of another key that it has shown, and that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// How much longer it is left alone, because it failed or lied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backed_off_seconds: Option<u64>,
}

/// How the configuration names a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum PeerNamed {
    /// In `federation.peers`.
    Peer,
    /// In `federation.trackers`.
    Tracker,
    /// Not at all: it was met.
    No,
}

/// What is known of a peer's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum PinState {
    /// The configuration says it.
    Configured,
    /// The first one that it showed, or one that was approved.
    Remembered,
    /// It shows another one, which is refused until a person approves it.
    Changed,
    /// It was never asked.
    Unknown,
}

/// Answer to `POST /v1/peers/{id}/check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerChecked {
    #[serde(flatten)]
    pub peer: PeerView,
    /// It answered, and its key is accepted.
    pub ok: bool,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub role: Option<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sbp_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
}

/// Body of `POST /v1/peers/{id}/approve`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApprovePeer {
    /// Of the key that it shows now, as its operator reads it from `bowline identity show`.
    pub fingerprint: String,
}
