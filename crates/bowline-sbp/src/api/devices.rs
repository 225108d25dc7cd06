//! Devices of a session, and what their tools are allowed to do.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::approval::Approval;
use crate::id::SessionId;
use crate::surface::SurfaceContext;

/// One device that a session knows (SBP-L4-05).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SurfaceView {
    /// What it last said of itself.
    #[serde(flatten)]
    pub context: SurfaceContext,
    pub first_seen: Timestamp,
    /// Null if it has a token and never used it.
    pub last_seen: Option<Timestamp>,
    /// Whether it is attached now.
    pub attached: bool,
    /// Until when its own token is good, if it has one.
    pub token_expires_at: Option<Timestamp>,
}

/// Answer to `GET /v1/sessions/{id}/surfaces`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SurfaceList {
    pub session_id: SessionId,
    /// Devices that gave themselves a name, the newest first.
    pub surfaces: Vec<SurfaceView>,
}

/// Body of `POST /v1/sessions/{id}/surfaces`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewSurface {
    /// What the device is called; a name is made if absent.
    pub surface_id: Option<String>,
    /// For how many seconds its token is good; 30 days if absent, a year at most.
    pub expires_in: Option<u64>,
}

/// Answer to it. The token is shown once.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SurfaceToken {
    pub session_id: SessionId,
    pub surface_id: String,
    /// Goes where `session_token` goes in `ATTACH_SESSION`, and opens nothing else.
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
}
