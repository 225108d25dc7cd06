//! Bodies of the HTTP interface: paired devices.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::access::{CredentialId, Scopes};

/// Body of `POST /v1/devices/pairing`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OfferPairing {
    /// The name of the user whose device it will be; the owner if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// `turns`, `read`, `approve`, `tools`, `export`, `admin`; all but `admin` if they are not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<String>>))]
    pub scopes: Option<Scopes>,
}

/// Answer to `POST /v1/devices/pairing`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PairingOffered {
    /// What the device needs to pair itself. A secret until then.
    pub text: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for PairingOffered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PairingOffered")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// One paired device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeviceView {
    /// The id of its credential.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub id: CredentialId,
    /// What it called itself.
    pub name: String,
    /// The name of its user.
    pub user: String,
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub scopes: Scopes,
    /// Of its public key: `SHA256:0A:…`.
    pub fingerprint: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub paired_at: Timestamp,
    /// Recorded about once a minute.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub last_used_at: Option<Timestamp>,
}

/// Answer to `GET /v1/devices`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeviceList {
    pub devices: Vec<DeviceView>,
}
