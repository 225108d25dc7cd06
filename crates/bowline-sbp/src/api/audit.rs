//! What was done at the gateway, and by whom (*ours*).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::UserId;

/// Answer to `GET /v1/audit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditList {
    /// Newest first.
    pub entries: Vec<AuditView>,
}

/// One thing that was done: ids only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditView {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub at: Timestamp,
    /// The user's id.
    pub user_id: Option<UserId>,
    /// The user's name now, if there is one.
    pub user: Option<String>,
    /// the id of a key, `local`, `configured`, `open`, `session`, `device`, `none`, `wrong` or `gateway`.
    pub credential: String,
    pub action: String,
    /// Ids of what it was done to.
    pub object: String,
    pub result: String,
    /// Where the request came from.
    pub address: String,
    /// How often in that hour; more than 1 only for what is tallied.
    pub times: u64,
}
