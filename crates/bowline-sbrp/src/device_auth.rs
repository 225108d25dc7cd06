//! A paired device asks the control plane for a session token with a signature of its own, so that
//! it needs no API key of the daemon's owner.
//!
//! The Ed25519 signature is over
//! `SHA256("sbrp-device-session-v1" ‖ daemonId ‖ 00 ‖ signedAt u64 BE)`. Whoever sees a request can
//! repeat it for [`MAX_SKEW`] seconds; it travels over TLS only, and the token that it yields reaches
//! the daemon, which still opens nothing without a proof for the channel (SBRP-PEER-01).
//!
//! Invariants
//! - A [`VerifiedRequest`] is made only by a fresh signature that verified strictly, for the daemon
//!   that it names.
//! - It does not say that the daemon knows the device: the registry says that.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::id::DaemonId;
use crate::identity::{IdentityKey, IdentitySecret};

/// How far `signedAt` may be from the control plane's clock, in seconds.
pub const MAX_SKEW: u64 = 300;
const SIGNED: &[u8] = b"sbrp-device-session-v1";

/// A device's request for a session token, not verified yet.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The daemon to open a session with.
    pub daemon: DaemonId,
    /// The device's key.
    pub key: IdentityKey,
    /// In seconds since 1970.
    pub signed_at: u64,
    /// Over daemon and time.
    pub signature: [u8; 64],
}

/// A device and the daemon that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedRequest {
    daemon: DaemonId,
    device: IdentityKey,
}

/// Why a request proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unproven {
    /// It was signed more than [`MAX_SKEW`] seconds before or after the time given.
    #[error("the request was signed more than {MAX_SKEW} s before or after this server's time")]
    ClockSkew,
    /// The request's signature is wrong.
    #[error("the request's signature is wrong")]
    Signature,
}

impl DeviceRequest {
    /// A request of this device. The time is in seconds since 1970.
    pub fn sign(device: &IdentitySecret, daemon: &DaemonId, signed_at: u64) -> Self {
        let signature = device.sign(&digest(daemon, signed_at));
        Self { daemon: daemon.clone(), key: device.public(), signed_at, signature }
    }

    /// Checks time and signature; `now` is in seconds since 1970.
    pub fn verify(self, now: u64) -> Result<VerifiedRequest, Unproven> {
        if self.signed_at.abs_diff(now) > MAX_SKEW {
            return Err(Unproven::ClockSkew);
        }
        match self.key.verifies(&digest(&self.daemon, self.signed_at), &self.signature) {
            true => Ok(VerifiedRequest { daemon: self.daemon, device: self.key }),
            false => Err(Unproven::Signature),
        }
    }
}

impl fmt::Debug for DeviceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceRequest").field("key", &self.key).finish_non_exhaustive()
    }
}

impl VerifiedRequest {
    /// The daemon to open a session with.
    pub fn daemon(&self) -> &DaemonId {
        &self.daemon
    }

    /// The device that asks.
    pub fn device(&self) -> &IdentityKey {
        &self.device
    }
}

fn digest(daemon: &DaemonId, signed_at: u64) -> [u8; 32] {
    let hash = Sha256::new().chain_update(SIGNED).chain_update(daemon.as_str());
    hash.chain_update([0]).chain_update(signed_at.to_be_bytes()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::{to_hex, unhex};

    const AT: u64 = 1_790_000_000;

    fn request() -> DeviceRequest {
        let device = IdentitySecret::from_seed(&[0x42; 32]);
        DeviceRequest::sign(&device, &DaemonId::new("daemon-1"), AT)
    }

    /// The bytes were made with another implementation of SHA-256 and Ed25519.
    #[test]
    fn sbrp_peer_01_a_device_signs_these_bytes() {
        let covered = unhex(
            "736272702d6465766963652d73657373696f6e2d76316461656d6f6e2d31\
             00000000006ab13b80",
        );
        let hashed = "ddd389f77279033c138c42a0496d59bb952349b139567039f987a11583d59cea";
        assert_eq!(to_hex(&Sha256::digest(covered)), hashed);
        assert_eq!(to_hex(&digest(&DaemonId::new("daemon-1"), AT)), hashed);
        let request = request();
        assert_eq!(
            to_hex(request.key.as_bytes()),
            "2152f8d19b791d24453242e15f2eab6cb7cffa7b6a5ed30097960e069881db12"
        );
        assert_eq!(
            to_hex(&request.signature),
            "5fa131d93672bdad236238a7400883cae46679445c7dfe84ec93d68922266207\
             73998c16b9594f2e605743aac90c40eb66a9aa6a417329f738ceaa4478207f0d"
        );
        let verified = request.clone().verify(AT).unwrap();
        assert_eq!((verified.daemon(), verified.device()), (&request.daemon, &request.key));
    }

    #[test]
    fn g22_a_signature_holds_for_one_device_daemon_and_time_only() {
        let other = IdentitySecret::from_seed(&[0x43; 32]).public();
        let changed = [
            DeviceRequest { daemon: DaemonId::new("daemon-2"), ..request() },
            DeviceRequest { daemon: DaemonId::new("daemon-1\0"), ..request() },
            DeviceRequest { key: other, ..request() },
            DeviceRequest { signed_at: AT + 1, ..request() },
        ];
        for request in changed {
            assert_eq!(request.verify(AT), Err(Unproven::Signature));
        }
        for at in 0..64 {
            let mut request = request();
            request.signature[at] ^= 1;
            assert_eq!(request.verify(AT), Err(Unproven::Signature), "{at}");
        }
    }

    #[test]
    fn g22_a_request_holds_for_five_minutes_either_way() {
        for now in [AT - MAX_SKEW, AT, AT + MAX_SKEW] {
            assert!(request().verify(now).is_ok(), "{now}");
        }
        for now in [0, AT - MAX_SKEW - 1, AT + MAX_SKEW + 1, u64::MAX] {
            assert_eq!(request().verify(now), Err(Unproven::ClockSkew), "{now}");
        }
    }
}
