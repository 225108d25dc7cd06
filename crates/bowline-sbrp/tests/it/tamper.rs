//! What a relay can do that hates its users: everything but computing their keys.

use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::{Frame, HEADER_LEN};
use bowline_sbrp::handshake::answer;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::identity::IdentitySecret;
use bytes::Bytes;

use crate::socket::{Item, Owner, Socket};
use crate::world::{World, daemon_id};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Tamper {
    Drop,
    Repeat,
    Swap,
    Truncate,
    Flip,
    /// An old frame, of any session and direction, as if it belonged here.
    Replay,
    /// A control code nobody should send now.
    Control,
    /// Answer a client's init with an identity of the relay's own.
    Impersonate,
}

impl World {
    pub(crate) fn tamper(&mut self, how: Tamper, socket: u8, at: u8, detail: u8) {
        let archived = self.archived(detail);
        let ephemeral = self.ephemeral();
        let Some(socket) =
            self.pick(socket).and_then(|connection| self.sockets.get_mut(&connection))
        else {
            return;
        };
        let session = match socket.owner {
            Owner::Client { session, .. } => Some(session),
            Owner::Daemon => archived.as_ref().and_then(session_of),
        };
        match how {
            Tamper::Replay => {
                if let (Some(frame), Some(session)) = (archived, session) {
                    let frame = as_of(session, &frame);
                    insert(socket, at, frame);
                }
            }
            Tamper::Control => {
                let codes = ControlCode::ALL;
                let code = codes[usize::from(detail) % codes.len()];
                let frame = Frame::control(code, session.filter(|_| at.is_multiple_of(2)));
                socket.send_down(frame.encode());
            }
            Tamper::Impersonate => {
                let Some(Frame::HandshakeInit { payload, session }) =
                    archived.and_then(|frame| Frame::decode(frame).ok())
                else {
                    return;
                };
                let evil = IdentitySecret::from_seed(&[66; 32]);
                if let Ok(done) = answer(session, &payload, &daemon_id(), &evil, ephemeral) {
                    socket.send_down(done.accept.encode());
                }
            }
            how => damage(how, socket, at, detail),
        }
    }
}

/// Changes what is under way: upwards if `detail` is even.
fn damage(how: Tamper, socket: &mut Socket, at: u8, detail: u8) {
    let mut frames: Vec<Bytes> = Vec::new();
    let up = detail.is_multiple_of(2);
    if up {
        frames.extend(socket.up.drain(..));
    } else {
        // The acceptance of a connection is not a frame: it stays where it is.
        let opened = matches!(socket.down.front(), Some(Item::Open));
        let from = usize::from(opened);
        frames.extend(socket.down.drain(from..).filter_map(|item| match item {
            Item::Frame(frame) => Some(frame),
            Item::Open => None,
        }));
    }
    if !frames.is_empty() {
        let at = usize::from(at) % frames.len();
        match how {
            Tamper::Drop => drop(frames.remove(at)),
            Tamper::Repeat => frames.insert(at, frames[at].clone()),
            Tamper::Swap => frames.swap(0, at),
            Tamper::Truncate => frames[at] = cut(&frames[at], detail),
            _ => frames[at] = flip(&frames[at], detail),
        }
    }
    if up {
        socket.up.extend(frames);
    } else {
        socket.down.extend(frames.into_iter().map(Item::Frame));
    }
}

fn insert(socket: &mut Socket, at: u8, frame: Bytes) {
    if at.is_multiple_of(2) {
        socket.up.push_back(frame);
    } else {
        socket.send_down(frame);
    }
}

fn session_of(frame: &Bytes) -> Option<SessionId> {
    let session = frame.get(5..HEADER_LEN)?.try_into().ok()?;
    SessionId::from_wire(u64::from_be_bytes(session))
}

/// The same frame under another session's name.
fn as_of(session: SessionId, frame: &Bytes) -> Bytes {
    let mut bytes = frame.to_vec();
    if let Some(place) = bytes.get_mut(5..HEADER_LEN) {
        place.copy_from_slice(&session.to_wire().to_be_bytes());
    }
    bytes.into()
}

/// A shorter payload in a frame that is whole.
fn cut(frame: &Bytes, by: u8) -> Bytes {
    let length = frame.len().saturating_sub(usize::from(by)).max(HEADER_LEN);
    let mut bytes = frame[..length.min(frame.len())].to_vec();
    let payload = (bytes.len().saturating_sub(HEADER_LEN)) as u32;
    if let Some(place) = bytes.get_mut(1..5) {
        place.copy_from_slice(&payload.to_be_bytes());
    }
    bytes.into()
}

fn flip(frame: &Bytes, detail: u8) -> Bytes {
    let mut bytes = frame.to_vec();
    let length = bytes.len();
    // Mostly in the payload, where only the ends can notice.
    let from = if detail < 32 { 0 } else { HEADER_LEN.min(length - 1) };
    let at = from + usize::from(detail) * 7 % (length - from);
    bytes[at] ^= 1 << (detail % 8);
    bytes.into()
}
