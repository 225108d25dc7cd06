//! The read path of a connection without its socket, for fuzzing; not part of the API.

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::frame::{HeaderVerdict, Violation};
use bowline_sbrp::id::SessionId;

use super::ws::decode::{Decoded, Decoder, Item};
use super::ws::encode;
use super::ws::mask::Masked;

/// The result of one decoded piece of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A message for the paired peer, and the bytes that are written to that peer's socket.
    Forward {
        session: SessionId,
        message: Vec<u8>,
        written: Vec<u8>,
    },
    /// A message for the relay itself.
    Relay {
        message: Vec<u8>,
    },
    /// A WebSocket ping, and the pong that is written.
    Ping {
        written: Vec<u8>,
    },
    Pong,
    /// The peer sent a close frame. Nothing is read after it.
    Closed(Option<u16>),
    /// The peer broke a rule: the control code it gets. Nothing is read after it.
    Refused {
        code: ControlCode,
        session: Option<SessionId>,
        message: Option<Vec<u8>>,
    },
}

/// The input of one connection, read piece by piece.
#[derive(Debug)]
pub struct FuzzReader {
    role: Role,
    decoder: Decoder,
    input: Vec<u8>,
    over: bool,
}

impl FuzzReader {
    pub fn new(role: Role) -> Self {
        Self { role, decoder: Decoder::default(), input: Vec::new(), over: false }
    }

    /// Reads more bytes; returns what they completed.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut at = 0;
        while !self.over {
            let rest = &input[at..];
            let used = match self.decoder.look(rest) {
                Ok(Decoded::Needs(needs)) => {
                    assert!(needs > rest.len(), "it waits for what it has");
                    break;
                }
                Ok(Decoded::Message { message, used }) => {
                    seen.push(self.message(message));
                    used
                }
                Ok(Decoded::Other { head, used }) => {
                    match self.decoder.take(head, rest) {
                        Ok(Item::Part) => {}
                        Ok(Item::Gathered(whole)) => {
                            seen.push(self.message(Masked::plain(&whole)));
                        }
                        Ok(Item::Ping(payload)) => {
                            let mut written = Vec::new();
                            encode::pong(payload, &mut written);
                            seen.push(Seen::Ping { written });
                        }
                        Ok(Item::Pong) => seen.push(Seen::Pong),
                        Ok(Item::Close(code)) => seen.push(Seen::Closed(code)),
                        Err(fault) => seen.push(refused(fault.violation(), None)),
                    }
                    used
                }
                Err(fault) => {
                    seen.push(refused(fault.violation(), None));
                    0
                }
            };
            at += used;
            self.over = matches!(seen.last(), Some(Seen::Closed(_) | Seen::Refused { .. }));
        }
        input.drain(..at);
        self.input = input;
        seen
    }

    fn message(&self, masked: Masked<'_>) -> Seen {
        let mut message = Vec::new();
        masked.append_to(&mut message);
        let (start, known) = masked.start();
        match HeaderVerdict::at(self.role, &start[..known], masked.len()) {
            Ok(HeaderVerdict::Forward { session }) => {
                let mut written = Vec::new();
                encode::forward(masked, &mut written);
                Seen::Forward { session, message, written }
            }
            Ok(HeaderVerdict::Relay) => Seen::Relay { message },
            Err(violation) => refused(violation, Some(message)),
        }
    }
}

fn refused(violation: Violation, message: Option<Vec<u8>>) -> Seen {
    let (code, session) = violation.answer();
    Seen::Refused { code, session, message }
}
