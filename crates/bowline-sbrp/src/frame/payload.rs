//! The payloads that are not encrypted or part of the handshake: signals, pings and control
//! messages.

use super::header::{MAX_PAYLOAD, Violation};
use crate::control::{Code, ControlCode};

/// A daemon's message to the relay about one of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    kind: SignalKind,
    reason: Reason,
}

/// What a signal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalKind {
    /// The daemon still has the session's keys and counters: resume.
    Ready = 0x00,
    /// The session is over.
    Close = 0x01,
}

/// Why a daemon closes a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No reason.
    None = 0x00,
    /// The keys or counters of the session are lost.
    StateLost = 0x01,
    /// The daemon stops.
    Shutdown = 0x02,
    /// The daemon does not permit the session.
    Policy = 0x03,
    /// Something failed.
    Error = 0x04,
}

impl Signal {
    /// Ready carries no reason (SBRP-DAEMON-06).
    pub const READY: Signal = Signal { kind: SignalKind::Ready, reason: Reason::None };

    /// The session is over.
    pub const fn close(reason: Reason) -> Self {
        Self { kind: SignalKind::Close, reason }
    }

    /// What it says.
    pub fn kind(self) -> SignalKind {
        self.kind
    }

    /// Why.
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
            // An unknown reason from a newer daemon must not make its signal invalid.
            _ => Reason::None,
        };
        Ok(Self { kind, reason })
    }

    pub(super) fn encode(self) -> [u8; 2] {
        [self.kind as u8, self.reason as u8]
    }
}

/// The bytes that a ping carries and its pong repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PingPayload {
    bytes: [u8; PingPayload::MAX],
    length: u8,
}

impl PingPayload {
    pub(super) const MAX: usize = 8;

    /// `None` if there are more than eight bytes.
    pub fn new(payload: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..payload.len())?.copy_from_slice(payload);
        Some(Self { bytes, length: payload.len() as u8 })
    }

    /// The bytes, at most eight.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, Violation> {
        Self::new(payload).ok_or(Violation::PayloadTooLarge)
    }
}

/// A relay's control message. The text is for people and decides nothing (SBRP-CLIENT-07).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The code, by which everything is decided.
    pub code: Code,
    text: String,
}

impl Control {
    /// A code without text.
    pub fn new(code: ControlCode) -> Self {
        Self { code: Code::Known(code), text: String::new() }
    }

    /// Adds a text for the developer at the other endpoint, truncated to fit the frame. It must
    /// contain no identifiers (SBRP-RELAY-15).
    pub fn with_text(code: ControlCode, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_PAYLOAD - 2)];
        Self { code: Code::Known(code), text: text.to_owned() }
    }

    /// The text, for people; empty in production.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let (code, text) = payload.split_first_chunk::<2>().ok_or(Violation::MalformedFrame)?;
        let mut text = String::from_utf8_lossy(text).into_owned();
        // An invalid byte becomes a three-byte replacement character: truncate, so that the text
        // fits into a frame again.
        text.truncate(text.floor_char_boundary(MAX_PAYLOAD - 2));
        Ok(Self { code: Code::from_wire(u16::from_be_bytes(*code)), text })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        [&self.code.to_wire().to_be_bytes(), self.text.as_bytes()].concat()
    }
}
