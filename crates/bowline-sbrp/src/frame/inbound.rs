//! What a relay does with a message, decided by the header alone.
//!
//! Separate from [`Frame`](super::Frame), because a relay must not inspect the payloads that
//! endpoints exchange (SBRP-RELAY-02): a handshake of the wrong size is forwarded like any other.

use bytes::Bytes;

use super::header::{FrameType, HEADER_LEN, Header, Violation};
use super::payload::{PingPayload, Signal};
use crate::control::Role;
use crate::id::SessionId;

/// A message that passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound {
    /// Forward to the other endpoint, unchanged.
    Forward {
        /// The session.
        session: SessionId,
        /// The whole frame, unchanged.
        message: Bytes,
    },
    /// For the relay: the daemon signals that a session is ready or closed.
    Signal {
        /// The session.
        session: SessionId,
        /// What the daemon says of it.
        signal: Signal,
    },
    /// Answer with a pong of the same bytes (SBRP-RELAY-14).
    Ping(PingPayload),
    /// Only a keepalive.
    Pong(PingPayload),
}

/// The decision from the header and the total length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderVerdict {
    /// Forward to the other endpoint, unchanged.
    Forward {
        /// The session.
        session: SessionId,
    },
    /// For the relay itself: read it with [`Inbound::read`].
    Relay,
}

impl HeaderVerdict {
    /// Checks a message from `sender` before its payload has arrived; forwarding needs no more.
    /// `start` is the message, or at least its header; `total` is its length. Refuses what
    /// [`Inbound::read`] refuses, except a malformed signal payload.
    #[inline(always)]
    pub fn at(sender: Role, start: &[u8], total: usize) -> Result<Self, Violation> {
        let (header, kind) = Header::check_start(start, total)?;
        if !kind.allowed_from(sender) {
            return Err(Violation::DisallowedSender(header.session));
        }
        match kind {
            FrameType::HandshakeInit | FrameType::HandshakeAccept | FrameType::Data => {
                let session = header.session.ok_or(Violation::InvalidSessionId)?;
                Ok(Self::Forward { session })
            }
            FrameType::Signal | FrameType::Ping | FrameType::Pong | FrameType::Control => {
                Ok(Self::Relay)
            }
        }
    }
}

impl Inbound {
    /// Checks a message from `sender`, in the order of SBRP-RELAY-05. The payload of a signal is
    /// parsed last.
    pub fn read(sender: Role, message: Bytes) -> Result<Self, Violation> {
        if let HeaderVerdict::Forward { session } =
            HeaderVerdict::at(sender, &message, message.len())?
        {
            return Ok(Self::Forward { session, message });
        }
        let (header, kind) = Header::check(&message)?;
        let payload = &message[HEADER_LEN..];
        match kind {
            FrameType::Ping => PingPayload::decode(payload).map(Self::Ping),
            FrameType::Pong => PingPayload::decode(payload).map(Self::Pong),
            FrameType::Signal => {
                let session = header.session.ok_or(Violation::InvalidSessionId)?;
                Ok(Self::Signal { session, signal: Signal::decode(payload)? })
            }
            // `HeaderVerdict::Forward` has handled these types.
            FrameType::HandshakeInit
            | FrameType::HandshakeAccept
            | FrameType::Data
            | FrameType::Control => Err(Violation::DisallowedSender(header.session)),
        }
    }
}
