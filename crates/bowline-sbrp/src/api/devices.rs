//! The bodies about paired devices: which keys a daemon accepts, and a device's own request for a
//! session token.
//!
//! The control plane learns public keys and when they expire. Names stay with the daemon.
//!
//! Invariants
//! - Every key that is read is a valid identity key (SBRP-CRYPTO-03).
//! - A set that is read names each key once, and has at most [`MOST_DEVICES`].

use std::cmp::Reverse;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::read::{BadBody, LONGEST_ID, MOST_DEVICES, fields, key_bytes, object};
use crate::device_auth::DeviceRequest;
use crate::id::DaemonId;
use crate::identity::IdentityKey;

/// The last second of the year 9999. A later time is most likely in milliseconds.
const LATEST: u64 = 253_402_300_799;

/// The body of `PUT /api/daemons/{id}/devices`. It replaces all devices of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDevices {
    /// All of them: the set replaces the one before.
    pub devices: Vec<DeviceEntry>,
}

/// A device in [`SetDevices`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceEntry {
    /// 32 bytes in base64url without padding; standard base64 is accepted too.
    pub public_key: String,
    /// In seconds since 1970; from then on the device is unknown. Without it, it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// A validated [`DeviceEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceKey {
    /// The device's key.
    pub key: IdentityKey,
    /// Until when it gets tokens, in seconds since 1970; `None`: until it is removed.
    pub expires_at: Option<u64>,
}

/// The body of `POST /api/sessions` from a paired device, which has no API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenDeviceSession {
    /// The daemon to open a session with.
    pub daemon_id: String,
    /// Who asks, and the proof.
    pub device: DeviceSignature,
}

/// A device's signature of its request. It can be repeated while it is fresh, so `Debug` does not
/// show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceSignature {
    /// 32 bytes in base64url.
    pub public_key: String,
    /// In seconds since 1970, by the control plane's clock as far as the device knows it.
    pub signed_at: u64,
    /// 64 bytes in base64url.
    pub signature: String,
}

impl SetDevices {
    /// Reads the body of `PUT /api/daemons/{id}/devices`. A key that is named twice counts once,
    /// until the later of its times.
    pub fn read(body: &[u8]) -> Result<Vec<DeviceKey>, BadBody> {
        let asked: Self = object(body)?;
        if asked.devices.len() > MOST_DEVICES {
            return Err(BadBody::TooManyDevices);
        }
        let mut devices = asked.devices.iter().map(device_key).collect::<Result<Vec<_>, _>>()?;
        let until = |device: &DeviceKey| device.expires_at.unwrap_or(u64::MAX);
        devices.sort_by_key(|device| (*device.key.as_bytes(), Reverse(until(device))));
        devices.dedup_by_key(|device| device.key);
        Ok(devices)
    }
}

fn device_key(entry: &DeviceEntry) -> Result<DeviceKey, BadBody> {
    if entry.expires_at.is_some_and(|at| at > LATEST) {
        return Err(BadBody::ExpiresAt);
    }
    Ok(DeviceKey { key: identity(&entry.public_key)?, expires_at: entry.expires_at })
}

impl From<&DeviceKey> for DeviceEntry {
    fn from(device: &DeviceKey) -> Self {
        let public_key = URL_SAFE_NO_PAD.encode(device.key.as_bytes());
        Self { public_key, expires_at: device.expires_at }
    }
}

impl OpenDeviceSession {
    /// Reads the body of `POST /api/sessions` without an API key. `None` if it names no device.
    pub fn read(body: &[u8]) -> Result<Option<DeviceRequest>, BadBody> {
        let Ok(asked) = serde_json::from_slice::<Map<String, Value>>(body) else { return Ok(None) };
        if asked.get("device").is_none_or(Value::is_null) {
            return Ok(None);
        }
        let Self { daemon_id, device } = fields(asked)?;
        if !(1..=LONGEST_ID).contains(&daemon_id.len()) {
            return Err(BadBody::DaemonId);
        }
        Ok(Some(DeviceRequest {
            daemon: DaemonId::new(daemon_id),
            key: identity(&device.public_key)?,
            signed_at: device.signed_at,
            signature: signature_bytes(&device.signature).ok_or(BadBody::Signature)?,
        }))
    }
}

impl From<&DeviceRequest> for OpenDeviceSession {
    fn from(request: &DeviceRequest) -> Self {
        let device = DeviceSignature {
            public_key: URL_SAFE_NO_PAD.encode(request.key.as_bytes()),
            signed_at: request.signed_at,
            signature: URL_SAFE_NO_PAD.encode(request.signature),
        };
        Self { daemon_id: request.daemon.as_str().to_owned(), device }
    }
}

impl std::fmt::Debug for DeviceSignature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSignature")
            .field("signed_at", &self.signed_at)
            .finish_non_exhaustive()
    }
}

fn identity(text: &str) -> Result<IdentityKey, BadBody> {
    let bytes = key_bytes(text).ok_or(BadBody::DeviceKey)?;
    IdentityKey::from_bytes(&bytes).map_err(|_| BadBody::DeviceKey)
}

fn signature_bytes(text: &str) -> Option<[u8; 64]> {
    // 64 bytes are 86 base64 characters; longer texts are not decoded.
    (text.len() == 86).then(|| URL_SAFE_NO_PAD.decode(text).ok())??.try_into().ok()
}

#[cfg(test)]
mod tests;
