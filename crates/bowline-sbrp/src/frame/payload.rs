//! The payloads that are neither sealed nor hashed: signals, pings and control messages.

use super::header::{MAX_PAYLOAD, Violation};
use crate::control::{Code, ControlCode};

/// What a daemon says of one of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    kind: SignalKind,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalKind {
    /// The session's keys and counters are there: go on.
    Ready = 0x00,
    /// The session is over.
    Close = 0x01,
}

/// Why a daemon closes a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    None = 0x00,
    StateLost = 0x01,
    Shutdown = 0x02,
    Policy = 0x03,
    Error = 0x04,
}

impl Signal {
    /// Ready carries no reason (SBRP-DAEMON-06).
    pub const READY: Signal = Signal { kind: SignalKind::Ready, reason: Reason::None };

    pub const fn close(reason: Reason) -> Self {
        Self { kind: SignalKind::Close, reason }
    }

    pub fn kind(self) -> SignalKind {
        self.kind
    }

    pub fn reason(self) -> Reason {
        self.reason
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let [kind, reason] = *payload else { return Err(Violation::MalformedFrame) };
        let kind = match kind {
            0x00 => SignalKind::Ready,
            0x01 => SignalKind::Close,
            _ => return Err(Violation::MalformedFrame),
        };
        let reason = match reason {
            0x01 => Reason::StateLost,
            0x02 => Reason::Shutdown,
            0x03 => Reason::Policy,
            0x04 => Reason::Error,
            // A reason from a newer daemon is no reason to lose its signal.
            _ => Reason::None,
        };
        Ok(Self { kind, reason })
    }

    pub(super) fn encode(self) -> [u8; 2] {
        [self.kind as u8, self.reason as u8]
    }
}

/// What a ping carries and its pong gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PingPayload {
    bytes: [u8; PingPayload::MAX],
    length: u8,
}

impl PingPayload {
    pub(super) const MAX: usize = 8;

    /// The bytes, unless they are more than eight.
    pub fn new(payload: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..payload.len())?.copy_from_slice(payload);
        Some(Self { bytes, length: payload.len() as u8 })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, Violation> {
        Self::new(payload).ok_or(Violation::PayloadTooLarge)
    }
}

/// What a relay says. The text is for people and decides nothing (SBRP-CLIENT-07).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    pub code: Code,
    text: String,
}

impl Control {
    pub fn new(code: ControlCode) -> Self {
        Self { code: Code::Known(code), text: String::new() }
    }

    /// With words for the developer at the other end, cut where the frame is full. They must hold
    /// no identifiers (SBRP-RELAY-15).
    pub fn with_text(code: ControlCode, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_PAYLOAD - 2)];
        Self { code: Code::Known(code), text: text.to_owned() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let (code, text) = payload.split_first_chunk::<2>().ok_or(Violation::MalformedFrame)?;
        let mut text = String::from_utf8_lossy(text).into_owned();
        // A replaced byte takes three: what was read must fit into a frame again.
        text.truncate(text.floor_char_boundary(MAX_PAYLOAD - 2));
        Ok(Self { code: Code::from_wire(u16::from_be_bytes(*code)), text })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        [&self.code.to_wire().to_be_bytes(), self.text.as_bytes()].concat()
    }
}
