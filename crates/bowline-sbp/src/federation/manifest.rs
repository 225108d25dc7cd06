//! The manifest of a gateway: `GET /.well-known/sbp` (SBP-L6-01).
//!
//! It says which key a gateway has and is signed with that key, so it proves nothing but that
//! whoever made it has the key. Whether the key is the gateway's is decided by a pin
//! ([`Manifest::trust`]).
//!
//! Invariants
//! - A `Manifest` that came from elsewhere was verified with the key that it names.
//! - A manifest never replaces a newer one of the same gateway. It may be a little older, if it has the same key: a
//!   gateway's replicas have clocks of their own, and caches keep manifests for a while.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::gateway_id::{BaseUrl, GatewayId};
use super::rotation::{self, MOST_PREVIOUS, PreviousKey};
use crate::SBP_VERSION;
use crate::gateway_key::{GatewayIdentity, GatewayKey, KeyFingerprint};
use crate::signed_object::{self, Purpose, UnverifiedObject};

/// The largest manifest that is read, in bytes.
pub const LARGEST_MANIFEST: usize = 64 << 10;
/// The longest name, in characters.
const LONGEST_NAME: usize = 128;
/// How far clocks may differ, of two gateways or of two replicas of one, in seconds. A manifest from
/// further in the future would keep the gateway's true ones from replacing it.
pub const CLOCK_DIFFERENCE: i64 = 300;

/// What a gateway says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub gateway_id: GatewayId,
    /// For people.
    pub gateway_name: String,
    pub role: Role,
    pub key: GatewayKey,
    pub url: BaseUrl,
    pub endpoints: Endpoints,
    /// Seconds since 1970.
    pub issued_at: i64,
    pub previous: Vec<PreviousKey>,
}

/// What a node of the federation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Gateway,
    Tracker,
    Both,
}

/// URLs with `{session_id}` and `{bundle_cid}` in them. A tracker has only `registry`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ws: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
}

impl Endpoints {
    /// Those of a gateway at that URL.
    pub fn of_gateway(url: &BaseUrl) -> Self {
        let ws = url.as_str().replacen("http", "ws", 1);
        Self {
            ws: Some(format!("{ws}/v1/sbp/ws/{{session_id}}")),
            export: Some(url.join("/v1/sbp/sessions/{session_id}/export")),
            import: Some(url.join("/v1/sbp/sessions/import")),
            bundle: Some(url.join("/v1/sbp/bundles/{bundle_cid}")),
            registry: None,
        }
    }

    /// Those of a tracker at that URL.
    pub fn of_tracker(url: &BaseUrl) -> Self {
        Self { registry: Some(url.join("/v1/sbp/registry")), ..Self::default() }
    }

    /// Those of a gateway at that URL that is a tracker, too.
    pub fn of_both(url: &BaseUrl) -> Self {
        Self { registry: Self::of_tracker(url).registry, ..Self::of_gateway(url) }
    }
}

/// Why a manifest is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest is no JSON object of at most 64 KiB with what a gateway must say")]
    Unreadable,
    #[error("the manifest's signature is not of the key that it names")]
    Signature,
    #[error("the manifest is of gateway {shown}, and {expected} was asked for")]
    OtherGateway { expected: GatewayId, shown: GatewayId },
    #[error("the manifest is from the future: the clocks differ by more than five minutes")]
    Future,
    #[error("the manifest is older than one that was seen before")]
    Older,
    #[error(
        "the gateway's key has changed without its old key's word: {pinned} was known, {shown} is shown"
    )]
    KeyChanged { pinned: KeyFingerprint, shown: KeyFingerprint },
}

/// What is remembered of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    pub key: GatewayKey,
    /// Of the newest manifest that was accepted; 0 if a person gave the key.
    pub issued_at: i64,
}

/// Why a manifest is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nothing was known of that gateway: whoever takes this pins the key.
    FirstUse,
    /// It has the pinned key.
    Pinned,
    /// The pinned key leads to the new one, which is pinned in its place.
    Rotated,
}

impl Manifest {
    /// The manifest's JSON, signed. `identity` is the one whose key it names.
    pub fn sign(&self, identity: &GatewayIdentity) -> String {
        debug_assert_eq!(self.key, identity.public());
        signed_object::sign(&Wire::from(self), Purpose::Manifest, identity)
    }

    /// Reads a manifest and verifies that the key which it names has signed it.
    pub fn read(text: &[u8]) -> Result<Self, ManifestError> {
        let object = UnverifiedObject::parse(text, LARGEST_MANIFEST);
        let object = object.ok_or(ManifestError::Unreadable)?;
        let wire: Wire = object.peek().ok_or(ManifestError::Unreadable)?;
        let manifest = wire.parsed().ok_or(ManifestError::Unreadable)?;
        let verified = object.verify(Purpose::Manifest, &manifest.key);
        verified.map_err(|_| ManifestError::Signature)?;
        Ok(manifest)
    }

    /// Reads a manifest, and the version of the protocol that it speaks: for people.
    pub fn read_with_version(text: &[u8]) -> Result<(Self, String), ManifestError> {
        let manifest = Self::read(text)?;
        let object = UnverifiedObject::parse(text, LARGEST_MANIFEST);
        let wire: Option<Wire> = object.and_then(|object| object.peek());
        let version = wire.map(|wire| wire.sbp_version).unwrap_or_default();
        Ok((manifest, version.chars().filter(|c| !c.is_control()).take(16).collect()))
    }

    /// Whether this may be believed to be the manifest of the gateway `expected`. `None` as `expected`:
    /// whoever asks learns from it whose it is.
    pub fn trust(
        &self,
        expected: Option<&GatewayId>,
        pin: Option<&Pin>,
        now: Timestamp,
    ) -> Result<Trust, ManifestError> {
        if let Some(expected) = expected.filter(|expected| **expected != self.gateway_id) {
            let (expected, shown) = (expected.clone(), self.gateway_id.clone());
            return Err(ManifestError::OtherGateway { expected, shown });
        }
        if self.issued_at > now.as_second().saturating_add(CLOCK_DIFFERENCE) {
            return Err(ManifestError::Future);
        }
        let Some(pin) = pin else { return Ok(Trust::FirstUse) };
        let trust = if pin.key == self.key {
            Trust::Pinned
        } else if rotation::leads(&self.previous, &self.gateway_id, &pin.key, &self.key, now) {
            Trust::Rotated
        } else {
            let (pinned, shown) = (pin.key.fingerprint(), self.key.fingerprint());
            return Err(ManifestError::KeyChanged { pinned, shown });
        };
        let may_lag = if trust == Trust::Pinned { CLOCK_DIFFERENCE } else { 0 };
        let is_older = self.issued_at.saturating_add(may_lag) < pin.issued_at;
        if is_older { Err(ManifestError::Older) } else { Ok(trust) }
    }

    /// The pin of an accepted manifest.
    pub fn pin(&self) -> Pin {
        Pin { key: self.key, issued_at: self.issued_at }
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    sbp_version: String,
    gateway_id: GatewayId,
    #[serde(default)]
    gateway_name: String,
    role: Role,
    federation: bool,
    public_key: String,
    url: BaseUrl,
    #[serde(default)]
    endpoints: Endpoints,
    issued_at: i64,
    #[serde(default)]
    previous: Vec<WirePrevious>,
}

#[derive(Serialize, Deserialize)]
struct WirePrevious {
    public_key: String,
    until: i64,
    signature: String,
}

impl From<&Manifest> for Wire {
    fn from(manifest: &Manifest) -> Self {
        let previous = manifest.previous.iter().map(|statement| WirePrevious {
            public_key: statement.key.to_spki(),
            until: statement.until,
            signature: statement.signature_text(),
        });
        Self {
            sbp_version: SBP_VERSION.to_owned(),
            gateway_id: manifest.gateway_id.clone(),
            gateway_name: manifest.gateway_name.clone(),
            role: manifest.role,
            federation: true,
            public_key: manifest.key.to_spki(),
            url: manifest.url.clone(),
            endpoints: manifest.endpoints.clone(),
            issued_at: manifest.issued_at,
            previous: previous.collect(),
        }
    }
}

impl Wire {
    fn parsed(self) -> Option<Manifest> {
        let previous = self.previous.into_iter().take(MOST_PREVIOUS).map(|statement| {
            Some(PreviousKey {
                key: GatewayKey::from_spki(&statement.public_key).ok()?,
                until: statement.until,
                signature: PreviousKey::signature_of(&statement.signature)?,
            })
        });
        let is_name = |text: &str| {
            text.chars().count() <= LONGEST_NAME && !text.chars().any(char::is_control)
        };
        if !self.federation || !is_name(&self.gateway_name) {
            return None;
        }
        Some(Manifest {
            key: GatewayKey::from_spki(&self.public_key).ok()?,
            // Statements of a form that we do not know lead nowhere.
            previous: previous.flatten().collect(),
            gateway_id: self.gateway_id,
            gateway_name: self.gateway_name,
            role: self.role,
            url: self.url,
            endpoints: self.endpoints,
            issued_at: self.issued_at,
        })
    }
}

#[cfg(test)]
mod tests;
