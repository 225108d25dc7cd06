//! The client's side: one session with one daemon, over one relay connection at a time.
//!
//! Pure: sockets, tokens and random ephemerals come with the events. Decisions go by codes alone;
//! the text of a control message is never looked at (SBRP-CLIENT-07).
//!
//! Invariants
//! - Nothing is sealed before the handshake is done (SBRP-CLIENT-09).
//! - A new connection is a new session with new keys (SBRP-CLIENT-04); only a resumed one goes on
//!   with what it has (SBRP-CLIENT-05).
//! - What is not sent is given back, never dropped silently.

mod send_queue;
mod state;

use std::time::Instant;

use bytes::Bytes;

use state::ClientState;

use crate::control::{Code, ControlCode, SdkCode};
use crate::frame::Frame;
use crate::handshake::{Ephemeral, KeyChange, Trust, VerifiedIdentity};
use crate::id::{DaemonId, SessionId};
use crate::impossible::Impossible;
use crate::sealed::{Opened, Plaintext};

#[derive(Debug)]
pub enum ClientInput {
    /// The program wants a session, or the wait before the next try is over.
    Connect,
    /// The relay let us in with a token for this session.
    Opened {
        session: SessionId,
        ephemeral: Ephemeral,
    },
    /// The relay could not be reached.
    Unreachable,
    /// From the current connection.
    Frame(Frame),
    /// The connection of this session is gone. That of another one changes nothing.
    Lost {
        session: SessionId,
    },
    Send(Plaintext),
    Close,
    Tick,
}

/// To be carried out in order.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientAction {
    /// Get a new token and connect with it.
    Connect,
    /// The same, after a wait.
    ConnectLater,
    Send(Bytes),
    /// Also gives up a connection that is only being made.
    CloseSocket,
    /// The daemon proved this identity: keep it (SBRP-CLIENT-01).
    Pin(VerifiedIdentity),
    Established,
    Deliver(Opened),
    Show(Notice),
    /// Something was refused; the session goes on.
    Refused(SdkCode),
    /// Messages that no one has seen, for the program to send again or to give up.
    Unsent(Vec<Plaintext>),
    Failed(ClientFailure),
}

/// For the user's eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    Paused,
    Pending,
    Resumed,
    /// The relay discarded a message that was on its way when the daemon left.
    Discarded,
    Told(Code),
}

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFailure {
    /// Show both fingerprints; go on only if the user approves (SBRP-CLIENT-02).
    KeyChanged(Box<KeyChange>),
    Sdk(SdkCode),
    Relay(Code),
}

#[derive(Debug)]
pub struct Client {
    daemon: DaemonId,
    trust: Trust,
    state: ClientState,
}

impl Client {
    pub fn new(daemon: DaemonId, trust: Trust) -> Self {
        Self { daemon, trust, state: ClientState::Idle }
    }

    pub fn handle(
        &mut self,
        event: ClientInput,
        now: Instant,
    ) -> Result<Vec<ClientAction>, Impossible> {
        match event {
            ClientInput::Frame(Frame::Ping(ping)) => {
                Ok(vec![ClientAction::Send(Frame::Pong(ping).encode())])
            }
            ClientInput::Frame(Frame::Pong(_)) => Ok(vec![]),
            event => self.step(event, now),
        }
    }

    /// The name of the state, for people.
    pub fn state(&self) -> &'static str {
        self.state.name()
    }

    /// Whether a message that is handed over now is sent now.
    pub fn is_active(&self) -> bool {
        matches!(self.state, ClientState::Active { .. })
    }

    /// The session of the current connection.
    pub fn session(&self) -> Option<SessionId> {
        self.state.session()
    }

    /// When `Tick` is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            ClientState::Handshaking { until, .. } => Some(until),
            _ => None,
        }
    }
}

/// What a terminal code means: try again with a new token, or ask a human.
fn worth_a_new_try(code: Code) -> bool {
    match code {
        Code::Known(
            ControlCode::SessionExpired
            | ControlCode::SessionNotFound
            | ControlCode::DaemonOffline
            | ControlCode::InternalError
            | ControlCode::Backpressure,
        ) => true,
        Code::Known(_) | Code::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests;
