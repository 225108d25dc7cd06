//! Bodies of the HTTP interface: export, import, handoff, fork and lineage (SBP-L3). Where the
//! protocol and its test suite name a field differently, an answer has both names.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::bundle::BundleSignature;
use crate::cid::Cid;
use crate::gateway_key::GatewayKey;
use crate::id::{AgentId, ExportId, SessionId};

/// Body of `POST /v1/sbp/sessions/{id}/export` (SBP-L3-01).
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExportRequest {
    /// Lifetime of the token: 60 to 604800 seconds, one day if absent.
    pub ttl_seconds: Option<u32>,
    /// At most 120 characters.
    pub label: Option<String>,
    /// Whether what the agent remembers goes along; if absent, it does if the credential may read it
    /// (ours).
    pub with_memory: Option<bool>,
    /// The gateway that it is for: that one may fetch the bundle, with its memory if there is some (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_gateway: Option<String>,
    /// Tell the trackers of the configuration which gateway has it, so that its token finds it even after this
    /// gateway has moved to another address; they learn its content id, and nothing of what is in it (ours).
    #[serde(default)]
    pub announce: bool,
}

/// Answer to `POST /v1/sbp/sessions/{id}/export`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Exported {
    pub export_id: ExportId,
    /// Allows one import of the bundle. Keep it secret, like a password.
    pub roaming_token: String,
    pub session_id: SessionId,
    pub expires_at: Timestamp,
    pub bundle_cid: Cid,
    pub bundle_hash: Cid,
    pub message_count: u64,
    pub label: Option<String>,
    /// Whether there is memory in the bundle (ours).
    pub with_memory: bool,
}

/// Answer to `POST /v1/sbp/sessions/import` (SBP-L3-05).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Imported {
    pub session_id: SessionId,
    pub new_session_id: SessionId,
    pub session_token: String,
    pub agent_id: AgentId,
    pub step_count: u64,
    pub message_count: u64,
    pub messages_restored: u64,
    pub origin_export_id: String,
    /// Whether the bundle's memory is now in the agent's memory: it is in a format this gateway knows,
    /// and `with_memory` asked for it.
    pub memory_restored: bool,
    /// How many memories the bundle has in a format this gateway knows (ours).
    pub memory_count: u64,
    /// Who signed the bundle (ours).
    pub signature: SignatureView,
    pub provenance: Provenance,
}

/// What the signature of a bundle says (SBP-L3-16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SignatureView {
    pub state: SignatureState,
    /// The public key of the gateway that signed it.
    pub key: Option<String>,
    /// The fingerprint of that key, for people.
    pub fingerprint: Option<String>,
    /// Whether the key is this gateway's own.
    pub known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SignatureState {
    Signed,
    Unsigned,
    /// The bundle was changed after it was signed.
    Broken,
}

impl SignatureView {
    /// `own`: the key of this gateway.
    pub fn new(signature: BundleSignature, own: Option<&GatewayKey>) -> Self {
        let state = match signature {
            BundleSignature::Signed(_) => SignatureState::Signed,
            BundleSignature::Unsigned => SignatureState::Unsigned,
            BundleSignature::Broken => SignatureState::Broken,
        };
        let key = signature.key();
        Self {
            state,
            key: key.map(|key| key.to_string()),
            fingerprint: key.map(|key| key.fingerprint().to_string()),
            known: key.is_some() && key.as_ref() == own,
        }
    }
}

/// Answer to `GET /v1/sbp/identity` (ours): the key with which the gateway signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IdentityView {
    /// `ed25519`.
    pub algorithm: String,
    /// The public key, as base64url.
    pub key: String,
    /// For people to compare.
    pub fingerprint: String,
}

/// Where an imported session comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Provenance {
    pub origin_session_id: String,
    pub origin_agent_id: String,
    pub origin_export_id: String,
    pub bundle_cid: Cid,
    pub exported_at: Timestamp,
    pub imported_at: Timestamp,
}

/// Answer to `GET /v1/sbp/token/{token}` (SBP-L3-09).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TokenView {
    pub export_id: ExportId,
    pub session_id: SessionId,
    pub label: Option<String>,
    pub message_count: u64,
    pub bundle_cid: Cid,
    /// Whether there is memory in the bundle: then an import takes a key that may read it (ours).
    pub with_memory: bool,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub expired: bool,
    pub consumed: bool,
    /// Whether an import would succeed now.
    pub valid: bool,
}

/// Body of `POST /v1/sbp/sessions/{id}/handoff` (SBP-L3-10).
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HandoffRequest {
    pub to_agent_id: String,
    /// A message for the next agent, at most 2000 characters.
    #[serde(default)]
    pub handoff_message: Option<String>,
    /// The reason for the handoff, at most 500 characters.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Answer to `POST /v1/sbp/sessions/{id}/handoff`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HandedOff {
    pub session_id: SessionId,
    pub new_session_id: SessionId,
    pub session_token: String,
    pub new_session_token: String,
    pub from_session_id: SessionId,
    pub source_session_id: SessionId,
    pub to_agent_id: AgentId,
    pub export_id: ExportId,
    pub origin_export_id: ExportId,
}

/// Body of `POST /v1/sbp/sessions/{id}/fork` (SBP-L3-11).
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ForkRequest {
    /// At most 120 characters.
    pub label: Option<String>,
    /// Fork after this many steps; at the end of the log if absent (ours).
    pub at_step: Option<u64>,
}

/// Answer to `POST /v1/sbp/sessions/{id}/fork`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Forked {
    pub fork_session_id: SessionId,
    pub session_token: String,
    pub fork_session_token: String,
    pub origin_session_id: SessionId,
    pub fork_label: Option<String>,
    /// How many messages both sessions share.
    pub fork_point_msg: u64,
    /// How many steps both sessions share.
    pub fork_point_step: u64,
}

/// One export in a list or a lineage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExportView {
    pub export_id: ExportId,
    pub label: Option<String>,
    pub bundle_cid: Cid,
    pub message_count: u64,
    /// Whether there is memory in the bundle (ours).
    pub with_memory: bool,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub imported_at: Option<Timestamp>,
    pub import_session_id: Option<SessionId>,
}

/// Answer to `GET /v1/sbp/sessions/{id}/exports`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExportList {
    pub session_id: SessionId,
    /// Newest first.
    pub exports: Vec<ExportView>,
}

/// How one session was derived from another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LineageEdge {
    /// `import`, `fork` or `handoff`.
    pub kind: String,
    /// The source session; it may belong to another gateway.
    pub from_session_id: String,
    pub to_session_id: String,
    pub export_id: Option<ExportId>,
    pub created_at: Timestamp,
    /// Further details: label, agents, reason, fork point.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub detail: serde_json::Map<String, serde_json::Value>,
    /// The gateway of the source session, if it is another one (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_gateway: Option<GatewayRef>,
    /// The gateway of the other session, if it is another one (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_gateway: Option<GatewayRef>,
    /// The id of the gateway that says so, if this one does not know it itself (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_by: Option<String>,
}

/// Another gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GatewayRef {
    pub gateway_id: String,
    pub url: String,
}

/// Answer to `GET /v1/sbp/sessions/{id}/lineage` (SBP-L3-12).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Lineage {
    pub session_id: SessionId,
    pub exports: Vec<ExportView>,
    pub outgoing_handoffs: Vec<LineageEdge>,
    pub incoming_handoffs: Vec<LineageEdge>,
    pub forks: Vec<LineageEdge>,
    /// How this session was derived, if it came from another.
    pub origin: Option<LineageEdge>,
    /// The whole lineage tree, oldest first: every session related to this one (ours).
    pub tree: Vec<LineageEdge>,
    /// The tree is larger than what is returned.
    pub truncated: bool,
    /// The cost of each session of the tree, this one first. With only the session token, the cost
    /// of this one (ours).
    #[serde(default)]
    pub sessions: Vec<SessionCost>,
}

/// The cost of one session of a lineage tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionCost {
    pub session_id: String,
    /// The cost of its own turns: of a fork since the fork point, of an import since the import.
    /// Null if unknown: the session was deleted, or belongs to another gateway.
    pub cost_usd: Option<f64>,
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    /// The same, including all sessions derived from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchCost>,
}

/// The total cost of a session and all sessions derived from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BranchCost {
    /// The number of sessions.
    pub sessions: u64,
    pub cost_usd: f64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Whether the cost of all of them is known.
    pub complete: bool,
}

impl BranchCost {
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.cost_usd += other.cost_usd;
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.complete &= other.complete;
    }
}

/// Answer to `POST /v1/sbp/keys/rotate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeyRotated {
    /// The key that signs from now on.
    pub key_id: String,
    /// Keys whose tokens are still accepted.
    pub known_keys: Vec<String>,
}
