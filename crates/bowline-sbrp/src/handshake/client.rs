//! The client's side: send an ephemeral key, verify the answer.

use bytes::Bytes;

use super::ephemeral::Ephemeral;
use super::transcript::{ChannelBinding, Transcript};
use super::{ACCEPT_LEN, HandshakeError};
use crate::frame::Frame;
use crate::id::{DaemonId, SessionId};
use crate::identity::{Fingerprint, IdentityKey};
use crate::sealed::{Channel, Direction};

/// What the client knows of the daemon's identity before the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// No pin yet: pin the first key whose signature verifies (SBRP-CLIENT-01).
    FirstUse,
    /// Only this key: it is pinned.
    Key(IdentityKey),
    /// Only the key with this fingerprint: a person vouches for it, by a pairing code or after a key
    /// change (SBRP-CLIENT-02).
    Fingerprint(Fingerprint),
}

/// A key whose owner has signed this handshake. A pin store accepts nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedIdentity(IdentityKey);

impl VerifiedIdentity {
    /// The key.
    pub fn key(&self) -> &IdentityKey {
        &self.0
    }
}

/// The daemon presented another key than the one that is pinned or vouched for (SBRP-CLIENT-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyChange {
    /// The key that was expected.
    pub pinned: Fingerprint,
    /// The key that was shown.
    pub offered: Fingerprint,
}

/// The result of a completed handshake.
#[derive(Debug)]
#[non_exhaustive]
pub struct Established {
    /// The daemon's key, to be pinned.
    pub identity: VerifiedIdentity,
    /// Encrypts and decrypts the session's messages.
    pub channel: Channel,
    /// What a proof inside the session is bound to.
    pub binding: ChannelBinding,
}

/// The HandshakeInit was sent; the HandshakeAccept has not arrived yet.
#[derive(Debug)]
pub struct AwaitAccept {
    session: SessionId,
    daemon: DaemonId,
    ephemeral: Ephemeral,
}

impl AwaitAccept {
    /// Starts a handshake: returns the state that waits for the answer, and the frame to send.
    pub fn start(session: SessionId, daemon: DaemonId, ephemeral: Ephemeral) -> (Self, Frame) {
        let payload = Bytes::copy_from_slice(&ephemeral.public());
        (Self { session, daemon, ephemeral }, Frame::HandshakeInit { session, payload })
    }

    /// Verifies the payload of a HandshakeAccept. The pin is compared before the signature is
    /// verified, because a changed key is what the user must be told about.
    pub fn accept(self, payload: &[u8], trust: &Trust) -> Result<Established, HandshakeError> {
        let accept = Accept::read(payload).ok_or(HandshakeError::Malformed)?;
        let offered = Fingerprint::of(&accept.identity);
        let fit =
            || IdentityKey::from_bytes(&accept.identity).map_err(|_| HandshakeError::UnfitIdentity);
        let key = match trust {
            Trust::Key(pinned) => {
                check(pinned.fingerprint(), offered)?;
                *pinned
            }
            Trust::Fingerprint(vouched) => {
                check(*vouched, offered)?;
                fit()?
            }
            Trust::FirstUse => fit()?,
        };
        let transcript = Transcript {
            daemon: &self.daemon,
            client_ephemeral: self.ephemeral.public(),
            daemon_ephemeral: accept.ephemeral,
        };
        if !key.verifies(&transcript.signed(), &accept.signature) {
            return Err(HandshakeError::BadSignature);
        }
        let shared = self.ephemeral.agree(&accept.ephemeral);
        let shared = shared.ok_or(HandshakeError::WeakEphemeral)?;
        let keys = transcript.keys(&shared, &accept.signature);
        let channel = keys.channel(self.session, Direction::ClientToDaemon);
        let binding = transcript.binding(&accept.signature);
        Ok(Established { identity: VerifiedIdentity(key), channel, binding })
    }
}

fn check(pinned: Fingerprint, offered: Fingerprint) -> Result<(), HandshakeError> {
    match pinned == offered {
        true => Ok(()),
        false => Err(HandshakeError::KeyChanged(KeyChange { pinned, offered })),
    }
}

/// The fields of a HandshakeAccept, unverified.
struct Accept {
    identity: [u8; 32],
    ephemeral: [u8; 32],
    signature: [u8; 64],
}

impl Accept {
    fn read(payload: &[u8]) -> Option<Self> {
        let payload: &[u8; ACCEPT_LEN] = payload.try_into().ok()?;
        let (identity, rest) = payload.split_first_chunk()?;
        let (ephemeral, rest) = rest.split_first_chunk()?;
        Some(Self { identity: *identity, ephemeral: *ephemeral, signature: *rest.first_chunk()? })
    }
}
