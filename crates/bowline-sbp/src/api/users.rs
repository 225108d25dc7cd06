//! Users, their keys, and shared sessions (*ours*).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::access::{CredentialId, Role, Scopes, Share};
use crate::budget::{LimitChanges, OwnLimits};
use crate::id::{SessionId, UserId};

/// Body of `POST /v1/users`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AddUser {
    /// 1 to 64 letters, digits and `-_.@`; unique, whatever its case.
    pub name: String,
    /// `member` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its own limits, in place of those of the configuration: `tokens_per_day` and others; `"none"`
    /// for no limit.
    #[serde(default, skip_serializing_if = "OwnLimits::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub limits: OwnLimits,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UserView {
    pub id: UserId,
    pub name: String,
    pub role: Role,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub created_at: Timestamp,
    /// From then on none of its keys opens anything.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub disabled_at: Option<Timestamp>,
    /// Its own limits.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub limits: OwnLimits,
}

/// Answer to `POST /v1/users`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UserAdded {
    /// Callers on the gateway's own machine needed no key before, and need one now.
    pub loopback_closed: bool,
    #[serde(flatten)]
    pub view: UserView,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UserList {
    pub users: Vec<UserView>,
}

/// Body of `PATCH /v1/users/{name}`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UserPatch {
    pub disabled: Option<bool>,
    /// A number sets a limit, `"none"` lifts it, `null` goes back to what the configuration says.
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub limits: Option<LimitChanges>,
}

/// Body of `POST /v1/keys`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MakeKey {
    /// The name of the user; the owner if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What the key is called: `laptop`.
    pub name: String,
    /// `turns`, `read`, `approve`, `tools`, `export`, `admin`; all but `admin` if they are not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<String>>))]
    pub scopes: Option<Scopes>,
    /// Patterns of agents and models that it may be used for; none: all.
    pub agents: Vec<String>,
    pub models: Vec<String>,
    /// How long it is valid, in seconds; for ever if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// Its own limits, in place of those of the configuration.
    #[serde(skip_serializing_if = "OwnLimits::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub limits: OwnLimits,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeyView {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub id: CredentialId,
    /// The name of its user.
    pub user: String,
    pub name: String,
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub scopes: Scopes,
    pub agents: Vec<String>,
    pub models: Vec<String>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub created_at: Timestamp,
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub expires_at: Option<Timestamp>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub revoked_at: Option<Timestamp>,
    /// Recorded about once a minute.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub last_used_at: Option<Timestamp>,
    /// Its own limits.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub limits: OwnLimits,
    /// The fingerprint of the paired device's public key, if it is a device and not a key: `SHA256:0A:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// Answer to `POST /v1/keys`: the only time that the key itself is shown.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeyMade {
    pub key: String,
    #[serde(flatten)]
    pub view: KeyView,
}

impl std::fmt::Debug for KeyMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyMade({})", self.view.id)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeyList {
    pub keys: Vec<KeyView>,
}

/// Body of `PUT /v1/sessions/{id}/shares/{user}`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ShareRequest {
    pub scope: Share,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ShareView {
    /// The name of the user.
    pub user: String,
    pub scope: Share,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ShareList {
    pub session_id: SessionId,
    pub shares: Vec<ShareView>,
}

/// A token of a session that was just made.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionTokenMade {
    pub session_id: SessionId,
    /// Absent if the key that asked for it may do less than the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<String>,
    /// Absent: it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl std::fmt::Debug for SessionTokenMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionTokenMade({})", self.session_id)
    }
}
