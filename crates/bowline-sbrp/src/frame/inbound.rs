//! What a relay does with a message, decided by header alone.
//!
//! Apart from [`Frame`](super::Frame), because a relay must not look into what endpoints say to
//! each other (SBRP-RELAY-02): a handshake of the wrong size is forwarded like any other.

use bytes::Bytes;

use super::header::{FrameType, HEADER_LEN, Header, Violation};
use super::payload::{PingPayload, Signal};
use crate::control::Role;
use crate::id::SessionId;

/// A message that passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound {
    /// For the other end, as it came.
    Forward { session: SessionId, message: Bytes },
    /// For the relay: the daemon says how a session stands.
    Signal { session: SessionId, signal: Signal },
    /// To be answered with a pong of the same bytes (SBRP-RELAY-14).
    Ping(PingPayload),
    /// Proof of life, nothing more.
    Pong(PingPayload),
}

/// What can be said of a message by its first 13 bytes and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderVerdict {
    /// For the other end, as it came.
    Forward { session: SessionId },
    /// For the relay itself: to be read with [`Inbound::read`].
    Relay,
}

impl HeaderVerdict {
    /// Judges a message from `sender` before its payload is at hand: a relay that forwards needs
    /// no more. `start` is the message, or at least its header; `total` its length. Refuses what
    /// [`Inbound::read`] refuses, but for the words of a signal.
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
    /// Judges a message from `sender`. The order of checks is that of SBRP-RELAY-05; what a
    /// signal says is read last.
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
            // The header's verdict has dealt with these.
            FrameType::HandshakeInit
            | FrameType::HandshakeAccept
            | FrameType::Data
            | FrameType::Control => Err(Violation::DisallowedSender(header.session)),
        }
    }
}
