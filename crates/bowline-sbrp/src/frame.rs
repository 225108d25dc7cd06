//! Frames: one WebSocket message each, a 13-byte header and a payload.
//!
//! `type u8 | length u32 BE | session_id u64 BE | payload`. Two readers share one set of checks: a
//! relay reads with [`Inbound::read`], which checks what the sender may send and forwards messages
//! unchanged; an endpoint reads with [`Frame::decode`], which parses the payload. Neither copies a
//! payload.
//!
//! Invariants
//! - A message is exactly one frame: missing or trailing bytes are `malformed_frame`.
//! - The first broken rule is the one reported, in the order of SBRP-RELAY-05.

mod header;
mod inbound;
mod payload;

use bytes::{BufMut as _, Bytes, BytesMut};

pub use header::{FrameType, HEADER_LEN, Header, MAX_FRAME, MAX_PAYLOAD, Violation};
pub use inbound::{HeaderVerdict, Inbound};
pub use payload::{Control, PingPayload, Reason, Signal, SignalKind};

use crate::id::SessionId;

/// A whole frame. Payloads are parsed, except those that are encrypted or part of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The client's half of the handshake.
    HandshakeInit {
        /// The session.
        session: SessionId,
        /// The client's ephemeral key.
        payload: Bytes,
    },
    /// The daemon's half of the handshake.
    HandshakeAccept {
        /// The session.
        session: SessionId,
        /// The daemon's identity and ephemeral keys, and its signature.
        payload: Bytes,
    },
    /// A sealed message.
    Data {
        /// The session.
        session: SessionId,
        /// Nonce, ciphertext and tag.
        payload: Bytes,
    },
    /// A daemon's word about a session.
    Signal {
        /// The session.
        session: SessionId,
        /// What it says.
        signal: Signal,
    },
    /// Asks for a Pong.
    Ping(PingPayload),
    /// The answer to a Ping, with the same bytes.
    Pong(PingPayload),
    /// A code of the relay.
    Control {
        /// The session that it is about; `None`: the connection.
        session: Option<SessionId>,
        /// The code, and perhaps a text.
        control: Control,
    },
}

impl Frame {
    /// Decodes one message. The caller checks whether the sender may send this type.
    pub fn decode(message: Bytes) -> Result<Self, Violation> {
        let (header, kind) = Header::check(&message)?;
        let payload = message.slice(HEADER_LEN..);
        let session = || header.session.ok_or(Violation::InvalidSessionId);
        Ok(match kind {
            FrameType::HandshakeInit => Self::HandshakeInit { session: session()?, payload },
            FrameType::HandshakeAccept => Self::HandshakeAccept { session: session()?, payload },
            FrameType::Data => Self::Data { session: session()?, payload },
            FrameType::Signal => {
                Self::Signal { session: session()?, signal: Signal::decode(&payload)? }
            }
            FrameType::Ping => Self::Ping(PingPayload::decode(&payload)?),
            FrameType::Pong => Self::Pong(PingPayload::decode(&payload)?),
            FrameType::Control => {
                Self::Control { session: header.session, control: Control::decode(&payload)? }
            }
        })
    }

    /// Encodes the frame as one message.
    ///
    /// # Panics
    /// If a payload is longer than [`MAX_PAYLOAD`]. Callers build frames from payloads of checked
    /// length.
    pub fn encode(&self) -> Bytes {
        match self {
            Self::HandshakeInit { session, payload } => {
                message(FrameType::HandshakeInit, Some(*session), payload)
            }
            Self::HandshakeAccept { session, payload } => {
                message(FrameType::HandshakeAccept, Some(*session), payload)
            }
            Self::Data { session, payload } => message(FrameType::Data, Some(*session), payload),
            Self::Signal { session, signal } => {
                message(FrameType::Signal, Some(*session), &signal.encode())
            }
            Self::Ping(ping) => message(FrameType::Ping, None, ping.as_bytes()),
            Self::Pong(ping) => message(FrameType::Pong, None, ping.as_bytes()),
            Self::Control { session, control } => {
                message(FrameType::Control, *session, &control.encode())
            }
        }
    }

    /// A control frame without text, as sent in production (SBRP-RELAY-15).
    pub fn control(code: crate::control::ControlCode, session: Option<SessionId>) -> Self {
        Self::Control { session, control: Control::new(code) }
    }
}

fn message(kind: FrameType, session: Option<SessionId>, payload: &[u8]) -> Bytes {
    assert!(payload.len() <= MAX_PAYLOAD, "a payload of {} bytes", payload.len());
    let mut message = BytesMut::with_capacity(HEADER_LEN + payload.len());
    message.put_slice(&Header::encode(kind, payload.len() as u32, session));
    message.put_slice(payload);
    message.freeze()
}

#[cfg(test)]
mod tests;
