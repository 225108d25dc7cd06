//! Frames as bytes: what is sent has to be wrong in any way that a check wants, and what comes is looked at
//! as it is. Only the numbers of the codes are shared with the relay's own crates.

use std::fmt::{self, Display};

use bowline_sbrp::control::{Code, ControlCode};
use bytes::Bytes;

pub(super) const HANDSHAKE_INIT: u8 = 0x01;
pub(super) const HANDSHAKE_ACCEPT: u8 = 0x02;
pub(super) const DATA: u8 = 0x03;
pub(super) const SIGNAL: u8 = 0x04;
pub(super) const PING: u8 = 0x10;
pub(super) const PONG: u8 = 0x11;
pub(super) const CONTROL: u8 = 0x20;

/// The longest payload.
pub(super) const LONGEST: usize = 65_536;
const HEADER: usize = 13;

/// One frame.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) session: u64,
    pub(super) payload: Bytes,
}

impl Frame {
    pub(super) fn new(kind: u8, session: u64, payload: impl Into<Bytes>) -> Self {
        Self { kind, session, payload: payload.into() }
    }

    /// A sealed message as an endpoint would send it: a nonce, these bytes, and a tag.
    pub(super) fn data(session: u64, text: impl AsRef<[u8]>) -> Self {
        let mut payload = vec![0; 12];
        payload.extend(text.as_ref());
        payload.extend([0; 16]);
        Self::new(DATA, session, payload)
    }

    pub(super) fn signal(session: u64, signal: [u8; 2]) -> Self {
        Self::new(SIGNAL, session, signal.to_vec())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        raw(self.kind, self.payload.len() as u32, self.session, &self.payload)
    }

    /// Reads a message; `None`: it is not exactly one frame.
    pub(super) fn decode(message: &Bytes) -> Option<Self> {
        let header = message.get(..HEADER)?;
        let length = u32::from_be_bytes(header[1..5].try_into().ok()?);
        let session = u64::from_be_bytes(header[5..].try_into().ok()?);
        let payload = message.slice(HEADER..);
        (payload.len() == length as usize).then_some(Self { kind: header[0], session, payload })
    }

    /// The code of a control frame.
    pub(super) fn code(&self) -> Option<Code> {
        let number = self.payload.get(..2).filter(|_| self.kind == CONTROL)?;
        Some(Code::from_wire(u16::from_be_bytes(number.try_into().ok()?)))
    }

    /// The text of a control frame.
    pub(super) fn text(&self) -> &[u8] {
        self.payload.get(2..).filter(|_| self.kind == CONTROL).unwrap_or_default()
    }

    /// Whether it tells a daemon that one of its sessions has ended.
    pub(super) fn is_ending(&self) -> bool {
        self.is(ControlCode::SessionEnded, self.session)
    }

    pub(super) fn is(&self, code: ControlCode, session: u64) -> bool {
        self.code() == Some(Code::Known(code)) && self.session == session
    }
}

/// A message with any header.
pub(super) fn raw(kind: u8, length: u32, session: u64, payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + payload.len());
    message.push(kind);
    message.extend(length.to_be_bytes());
    message.extend(session.to_be_bytes());
    message.extend(payload);
    message
}

/// The beginning of a message in hexadecimal, and how long it is.
pub(super) fn shown(message: &[u8]) -> String {
    let most = &message[..message.len().min(HEADER + 16)];
    let hex: String = most.iter().map(|byte| format!("{byte:02x}")).collect();
    let more = if most.len() < message.len() { "…" } else { "" };
    match Frame::decode(&Bytes::copy_from_slice(message)) {
        Some(frame) => format!("{frame} [{hex}{more}]"),
        None => format!("{} bytes [{hex}{more}]", message.len()),
    }
}

/// A code as a report names it.
pub(super) fn coded(code: ControlCode, session: u64) -> String {
    format!("Control {} (0x{:04x}), {}", code.name(), code.to_wire(), of(session))
}

fn of(session: u64) -> String {
    match session {
        0 => "session id 0".to_owned(),
        session => format!("session {session:016x}"),
    }
}

impl Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            HANDSHAKE_INIT => "HandshakeInit",
            HANDSHAKE_ACCEPT => "HandshakeAccept",
            DATA => "Data",
            SIGNAL => "Signal",
            PING => "Ping",
            PONG => "Pong",
            CONTROL => "Control",
            other => return write!(f, "frame of type 0x{other:02x}, {}", of(self.session)),
        };
        match self.code() {
            Some(Code::Known(code)) => f.write_str(&coded(code, self.session)),
            Some(Code::Unknown(number)) => {
                write!(f, "Control 0x{number:04x}, {}", of(self.session))
            }
            None => write!(f, "{name}, {}, {} bytes", of(self.session), self.payload.len()),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_bytes_of_the_protocol() {
        let frame = Frame::signal(0x0000_0B3A_73CE_2FF2, [1, 2]);
        let bytes = frame.encode();
        assert_eq!(
            bytes,
            [4, 0, 0, 0, 2, 0, 0, 0x0B, 0x3A, 0x73, 0xCE, 0x2F, 0xF2, 1, 2],
            "type, length, session id, payload"
        );
        assert_eq!(Frame::decode(&Bytes::from(bytes)), Some(frame));
        assert_eq!(Frame::decode(&Bytes::from(raw(3, 2, 7, b"x"))), None, "a byte is missing");
        assert_eq!(Frame::decode(&Bytes::from_static(b"short")), None);
    }

    #[test]
    fn a_report_names_frames_and_codes() {
        let paused = Frame::new(CONTROL, 7, vec![0x10, 0x01]);
        assert!(paused.is(ControlCode::SessionPaused, 7));
        let expected = "Control session_paused (0x1001), session 0000000000000007";
        assert_eq!(paused.to_string(), expected);
        assert_eq!(shown(&raw(0x99, 1, 0, b"")), "13 bytes [99000000010000000000000000]");
        assert_eq!(
            shown(&Frame::new(PING, 0, &b"abc"[..]).encode()),
            "Ping, session id 0, 3 bytes [10000000030000000000000000616263]"
        );
    }
}
