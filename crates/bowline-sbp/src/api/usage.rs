//! What users and keys have used (*ours*).

use serde::{Deserialize, Serialize};

use crate::access::CredentialId;
use crate::budget::OwnLimits;

/// Answer to `GET /v1/usage`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UsageReport {
    /// The first day, in UTC: `2026-11-18`.
    pub since: String,
    pub users: Vec<UserUsage>,
}

/// What one user has used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UserUsage {
    pub user: String,
    /// The user's own limits, in place of those of the configuration.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub limits: OwnLimits,
    /// What the user's sessions hold now.
    pub stored_bytes: u64,
    /// Newest first; days without use are left out.
    pub days: Vec<DayUsage>,
}

/// One day, or the part of it that was done with one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DayUsage {
    pub day: String,
    /// The key; without one: the user in all, with and without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub key: Option<CredentialId>,
    pub turns: u64,
    pub model_calls: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub usd: f64,
    pub exports: u64,
}
