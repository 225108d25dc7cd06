//! The 13-byte header, and the rules that hold for every frame at every reader.

use crate::control::{ControlCode, Role};
use crate::id::SessionId;

/// The length of a frame's header.
pub const HEADER_LEN: usize = 13;
/// The longest payload.
pub const MAX_PAYLOAD: usize = 65_536;
/// The longest message, header included: the size limit for a WebSocket reader.
pub const MAX_FRAME: usize = HEADER_LEN + MAX_PAYLOAD;

/// The frame types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameType {
    /// The client's half of the handshake.
    HandshakeInit = 0x01,
    /// The daemon's half.
    HandshakeAccept = 0x02,
    /// A sealed message.
    Data = 0x03,
    /// A daemon's word about a session.
    Signal = 0x04,
    /// Asks for a Pong.
    Ping = 0x10,
    /// The answer, with the same bytes.
    Pong = 0x11,
    /// A code of the relay.
    Control = 0x20,
}

impl FrameType {
    #[inline]
    fn from_wire(byte: u8) -> Option<Self> {
        Some(match byte {
            0x01 => Self::HandshakeInit,
            0x02 => Self::HandshakeAccept,
            0x03 => Self::Data,
            0x04 => Self::Signal,
            0x10 => Self::Ping,
            0x11 => Self::Pong,
            0x20 => Self::Control,
            _ => return None,
        })
    }

    /// Whether a relay accepts this type from that sender (SBRP-RELAY-04).
    #[inline]
    pub(super) fn allowed_from(self, sender: Role) -> bool {
        match self {
            Self::HandshakeInit => sender == Role::Client,
            Self::HandshakeAccept | Self::Signal => sender == Role::Daemon,
            Self::Data | Self::Ping | Self::Pong => true,
            Self::Control => false,
        }
    }

    #[inline]
    fn max_payload(self) -> usize {
        match self {
            Self::Ping | Self::Pong => super::PingPayload::MAX,
            _ => MAX_PAYLOAD,
        }
    }

    #[inline]
    fn takes(self, session: Option<SessionId>) -> bool {
        match self {
            Self::Ping | Self::Pong => session.is_none(),
            Self::Control => true,
            _ => session.is_some(),
        }
    }
}

/// The rule that a message breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The message is not exactly one well-formed frame.
    #[error("the message is not exactly one well-formed frame")]
    MalformedFrame,
    /// The payload is longer than its frame may carry.
    #[error("the payload is longer than its frame may carry")]
    PayloadTooLarge,
    /// No frame has this type.
    #[error("no frame has this type")]
    InvalidFrameType,
    /// The session id is missing, or stands where there is none.
    #[error("the session id is missing, or stands where there is none")]
    InvalidSessionId,
    /// This sender may not send this frame.
    #[error("this sender may not send this frame")]
    DisallowedSender(Option<SessionId>),
}

impl Violation {
    /// The control code to answer with, and the session it refers to.
    pub fn answer(self) -> (ControlCode, Option<SessionId>) {
        match self {
            Self::MalformedFrame => (ControlCode::MalformedFrame, None),
            Self::PayloadTooLarge => (ControlCode::PayloadTooLarge, None),
            Self::InvalidFrameType => (ControlCode::InvalidFrameType, None),
            Self::InvalidSessionId => (ControlCode::InvalidSessionId, None),
            Self::DisallowedSender(session) => (ControlCode::DisallowedSender, session),
        }
    }
}

/// A header as read from the wire. Only its length is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The type, as it is on the wire.
    pub kind: u8,
    /// The length of the payload.
    pub length: u32,
    /// `None`: the connection (zero on the wire).
    pub session: Option<SessionId>,
}

impl Header {
    /// Parses the first 13 bytes.
    #[inline]
    pub fn parse(message: &[u8]) -> Result<Self, Violation> {
        let (head, _) =
            message.split_first_chunk::<HEADER_LEN>().ok_or(Violation::MalformedFrame)?;
        let [kind, l0, l1, l2, l3, session @ ..] = *head;
        Ok(Self {
            kind,
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            session: SessionId::from_wire(u64::from_be_bytes(session)),
        })
    }

    /// All checks of SBRP-RELAY-05 except the direction, in the specified order.
    pub(super) fn check(message: &[u8]) -> Result<(Self, FrameType), Violation> {
        Self::check_start(message, message.len())
    }

    /// The same checks for a message of `total` bytes of which only the start has been received: no
    /// rule depends on bytes after the header.
    #[inline(always)]
    pub(super) fn check_start(start: &[u8], total: usize) -> Result<(Self, FrameType), Violation> {
        let header = Self::parse(start)?;
        // The declared length is checked against the limit before it is compared with the received
        // length: a header that declares 4 GiB is too large even if no payload follows.
        let length = usize::try_from(header.length).map_err(|_| Violation::PayloadTooLarge)?;
        if length > MAX_PAYLOAD {
            return Err(Violation::PayloadTooLarge);
        }
        if total.checked_sub(HEADER_LEN) != Some(length) {
            return Err(Violation::MalformedFrame);
        }
        let kind = FrameType::from_wire(header.kind).ok_or(Violation::InvalidFrameType)?;
        if length > kind.max_payload() {
            return Err(Violation::PayloadTooLarge);
        }
        if !kind.takes(header.session) {
            return Err(Violation::InvalidSessionId);
        }
        Ok((header, kind))
    }

    pub(crate) fn encode(
        kind: FrameType,
        length: u32,
        session: Option<SessionId>,
    ) -> [u8; HEADER_LEN] {
        let mut head = [0; HEADER_LEN];
        head[0] = kind as u8;
        head[1..5].copy_from_slice(&length.to_be_bytes());
        head[5..].copy_from_slice(&session.map_or(0, SessionId::to_wire).to_be_bytes());
        head
    }
}
