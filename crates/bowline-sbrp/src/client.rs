//! The client's state machine: one session with one daemon, over one relay connection at a time.
//!
//! Pure: frames, tokens and random ephemeral keys are passed in with the events. Decisions depend
//! on codes alone; the text of a control message is never inspected (SBRP-CLIENT-07).
//!
//! Invariants
//! - Nothing is sealed before the handshake is done (SBRP-CLIENT-09).
//! - A new connection is a new session with new keys (SBRP-CLIENT-04); only a resumed session
//!   continues with its existing keys (SBRP-CLIENT-05).
//! - What cannot be decrypted ends the session, a repeated message is refused, and another identity
//!   key stops the client (SBRP-SDK-01).
//! - Unsent messages are returned to the program, never dropped silently.

mod send_queue;
mod state;

use bytes::Bytes;

use state::ClientState;

use crate::control::{Code, ControlCode, SdkCode};
use crate::frame::Frame;
use crate::handshake::{ChannelBinding, Ephemeral, KeyChange, Trust, VerifiedIdentity};
use crate::id::{DaemonId, SessionId};
use crate::impossible::Impossible;
use crate::sealed::{Opened, Plaintext};
use crate::time::Instant;

/// What happens to a client.
#[derive(Debug)]
pub enum ClientInput {
    /// The program requests a session, or the back-off delay has passed.
    Connect,
    /// The relay accepted the connection with a token for this session.
    Opened {
        /// The session of the token.
        session: SessionId,
        /// A fresh key pair for the handshake.
        ephemeral: Ephemeral,
    },
    /// The relay could not be reached.
    Unreachable,
    /// A frame from the current connection.
    Frame(Frame),
    /// The connection of this session is lost. The event is ignored for any session but the current
    /// one.
    Lost {
        /// The session of the token.
        session: SessionId,
    },
    /// The program sends a message.
    Send(Plaintext),
    /// The program closes the client.
    Close,
    /// The time of [`Client::deadline`] has come.
    Tick,
}

/// Actions must be executed in order.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientAction {
    /// Request a new token and connect with it.
    Connect,
    /// As `Connect`, after a back-off delay.
    ConnectLater,
    /// Send this frame, as one message of the WebSocket.
    Send(Bytes),
    /// Also cancels a connection attempt in progress.
    CloseSocket,
    /// The daemon proved this identity: pin it (SBRP-CLIENT-01).
    Pin(VerifiedIdentity),
    /// The handshake is done; a proof inside the session is bound to this.
    Established(ChannelBinding),
    /// A message for the program.
    Deliver(Opened),
    /// Tell the program.
    Show(Notice),
    /// A message was refused, or the session failed. If the session is over, `CloseSocket` follows
    /// (SBRP-SDK-01).
    Refused(SdkCode),
    /// Messages that were never sent, for the program to send again or to drop.
    Unsent(Vec<Plaintext>),
    /// The client is over, until a person or the program acts.
    Failed(ClientFailure),
}

/// A state change to show to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The daemon is disconnected; messages are queued.
    Paused,
    /// The daemon is back and has not said yet whether it resumes the session.
    Pending,
    /// The session goes on with the same keys.
    Resumed,
    /// The relay discarded a message that was in flight when the daemon disconnected.
    Discarded,
    /// The relay sent this code.
    Told(Code),
}

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFailure {
    /// Show both fingerprints; continue only if the user approves the new key (SBRP-CLIENT-02).
    KeyChanged(KeyChange),
    /// The handshake failed.
    Sdk(SdkCode),
    /// The relay refuses, and a new attempt would not help.
    Relay(Code),
}

/// A client of one daemon.
#[derive(Debug)]
pub struct Client {
    daemon: DaemonId,
    trust: Trust,
    state: ClientState,
}

impl Client {
    /// A client that is not connected yet.
    pub fn new(daemon: DaemonId, trust: Trust) -> Self {
        Self { daemon, trust, state: ClientState::Idle }
    }

    /// What follows from an input. An input that does not fit the state changes nothing.
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

    /// The name of the state, for logs and errors.
    pub fn state(&self) -> &'static str {
        self.state.name()
    }

    /// Whether a message would be sent immediately.
    pub fn is_active(&self) -> bool {
        matches!(self.state, ClientState::Active { .. })
    }

    /// The session of the current connection.
    pub fn session(&self) -> Option<SessionId> {
        self.state.session()
    }

    /// When the next `Tick` is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            ClientState::Handshaking { until, .. } => Some(until),
            _ => None,
        }
    }
}

/// Whether to reconnect with a new token after this terminal code; otherwise the user must act.
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
