//! Bodies of the HTTP interface: devices of a session, and approvals of tool calls.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::approval::Approval;
use crate::id::SessionId;
use crate::surface::SurfaceContext;

/// One device that a session knows (SBP-L4-05).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SurfaceView {
    /// What it last declared about itself.
    #[serde(flatten)]
    pub context: SurfaceContext,
    pub first_seen: Timestamp,
    /// Null if it was given a token and has never attached.
    pub last_seen: Option<Timestamp>,
    /// Whether it is attached now.
    pub attached: bool,
    /// When its device token expires, if it has one.
    pub token_expires_at: Option<Timestamp>,
}

/// Answer to `GET /v1/sessions/{id}/surfaces`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SurfaceList {
    pub session_id: SessionId,
    /// Devices with a `surface_id`, the newest first.
    pub surfaces: Vec<SurfaceView>,
}

/// Body of `POST /v1/sessions/{id}/surfaces`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewSurface {
    /// The id of the device; generated if absent.
    pub surface_id: Option<String>,
    /// Lifetime of the token in seconds; 30 days if absent, a year at most.
    pub expires_in: Option<u64>,
}

/// Answer to `POST /v1/sessions/{id}/surfaces`. The token is returned only once.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SurfaceToken {
    pub session_id: SessionId,
    pub surface_id: String,
    /// Use it as `session_token` in `ATTACH_SESSION`; it is valid for nothing else.
    pub surface_token: String,
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for SurfaceToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SurfaceToken").field("surface_id", &self.surface_id).finish_non_exhaustive()
    }
}

/// Answer to `GET /v1/sessions/{id}/approvals`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApprovalList {
    pub session_id: SessionId,
    /// The newest first.
    pub approvals: Vec<Approval>,
}

/// Body of `POST /v1/sessions/{id}/approvals/{approval_id}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Decision {
    pub approved: bool,
    /// Also allow later calls of the tool by the same device in this session.
    #[serde(default)]
    pub always: bool,
}
