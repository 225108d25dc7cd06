//! The daemon's state machine: many sessions over one connection to the relay.
//!
//! A [`DaemonSession`] is the state machine of one session; a [`Daemon`] passes each event to the
//! session it concerns. Pure: random ephemeral keys are passed in with the events that need them.
//!
//! Invariants
//! - Sessions share nothing but the connection (SBRP-DAEMON-02).
//! - What cannot be decrypted closes its session, and a repeated message is refused (SBRP-SDK-01).
//! - A second HandshakeInit never changes an existing session: otherwise a relay could reset
//!   sessions.
//! - After a reconnect the daemon signals ready or close for every session before it sends any
//!   other frame (SBRP-DAEMON-05).

mod session;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use session::{DaemonSession, SessionAction, SessionInput};

use crate::control::{Code, ControlCode, SdkCode};
use crate::frame::{Frame, Reason, Signal};
use crate::handshake::{ChannelBinding, Ephemeral};
use crate::id::{DaemonId, SessionId};
use crate::identity::IdentitySecret;
use crate::impossible::Impossible;
use crate::sealed::{Opened, Plaintext};
use crate::time::Instant;

/// What happens to a daemon.
#[derive(Debug)]
pub enum DaemonInput {
    /// The relay accepted the connection.
    Connected,
    /// The connection to the relay is lost.
    Disconnected,
    /// A frame from the relay.
    Frame(Frame),
    /// The program accepts an offered session.
    Answer {
        /// The session.
        session: SessionId,
        /// A fresh key pair for the handshake.
        ephemeral: Ephemeral,
    },
    /// The program sends a message.
    Send {
        /// The session.
        session: SessionId,
        /// The message.
        plaintext: Plaintext,
    },
    /// The program closes or refuses a session.
    Close {
        /// The session.
        session: SessionId,
        /// Why.
        reason: Reason,
    },
    /// The daemon stops: every session is closed with reason `shutdown` (SBRP-DAEMON-06).
    Stop,
    /// The time of [`Daemon::deadline`] has come.
    Tick,
}

/// Actions must be executed in order.
#[derive(Debug)]
pub enum DaemonAction {
    /// Send this frame, as one message of the WebSocket.
    Send(Bytes),
    /// A client requests a session: answer or close it before the handshake deadline.
    Offer(SessionId),
    /// Tell the program of a session.
    Session(SessionId, Progress),
    /// The relay sent this control code about the connection.
    Told(Code),
}

/// What the program is told about a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The handshake is done; a proof inside the session is bound to this.
    Established(ChannelBinding),
    /// A message for the program.
    Deliver(Opened),
    /// The connection is lost; the session waits for the reconnect.
    Suspended,
    /// The connection is back, and the session goes on with the same keys.
    Resumed,
    /// A message was refused; the session continues (SBRP-SDK-01).
    Refused(SdkCode),
    /// The session ended; the code is present if an error ended it.
    Ended(Option<SdkCode>),
}

/// A daemon and its sessions.
#[derive(Debug)]
pub struct Daemon {
    id: DaemonId,
    identity: IdentitySecret,
    resumable: bool,
    most_sessions: usize,
    connected: bool,
    sessions: BTreeMap<SessionId, DaemonSession>,
}

impl Daemon {
    /// A daemon that is not connected yet. `resumable` says whether its token has the scope
    /// `session:resume`. Clients beyond `most_sessions` are refused.
    pub fn new(
        id: DaemonId,
        identity: IdentitySecret,
        resumable: bool,
        most_sessions: usize,
    ) -> Self {
        let sessions = BTreeMap::new();
        Self { id, identity, resumable, most_sessions, connected: false, sessions }
    }

    /// Adds sessions from before a process restart, for a program that remembers their ids. Their
    /// keys are lost, so they are closed with reason `state_lost` on the first connection
    /// (SBRP-DAEMON-05). A program that does not remember them connects first with a token without
    /// `session:resume`: then the relay ends them (SBRP-RELAY-11).
    pub fn having_forgotten(mut self, sessions: impl IntoIterator<Item = SessionId>) -> Self {
        for session in sessions {
            self.sessions.entry(session).or_insert_with(DaemonSession::forgotten);
        }
        self
    }

    /// What follows from an input. An input that does not fit the state changes nothing.
    pub fn handle(
        &mut self,
        input: DaemonInput,
        now: Instant,
    ) -> Result<Vec<DaemonAction>, Impossible> {
        let impossible = |event| Err(Impossible { state: "connected", event });
        match (self.connected, input) {
            (false, DaemonInput::Connected) => {
                self.connected = true;
                self.each(now, || SessionInput::Connected)
            }
            (true, DaemonInput::Connected) => impossible("a second connection"),
            (true, DaemonInput::Disconnected) => {
                self.connected = false;
                let resumable = self.resumable;
                self.each(now, || SessionInput::Disconnected { resumable })
            }
            (true, DaemonInput::Frame(frame)) => self.frame(frame, now),
            (false, DaemonInput::Disconnected | DaemonInput::Frame(_)) => {
                Err(Impossible { state: "not connected", event: "something from the relay" })
            }
            (_, DaemonInput::Answer { session, ephemeral }) => {
                self.one(session, SessionInput::Answer { ephemeral }, now)
            }
            (_, DaemonInput::Send { session, plaintext }) => {
                self.one(session, SessionInput::Send(plaintext), now)
            }
            (_, DaemonInput::Close { session, reason }) => {
                self.one(session, SessionInput::Close(reason), now)
            }
            (_, DaemonInput::Stop) => self.each(now, || SessionInput::Close(Reason::Shutdown)),
            (_, DaemonInput::Tick) => self.each(now, || SessionInput::Tick),
        }
    }

    fn frame(&mut self, frame: Frame, now: Instant) -> Result<Vec<DaemonAction>, Impossible> {
        match frame {
            Frame::HandshakeInit { session, payload } => self.init(session, payload, now),
            Frame::Data { session, payload } => self.one(session, SessionInput::Data(payload), now),
            Frame::Control { session: Some(session), control } => match control.code {
                Code::Known(
                    ControlCode::SessionEnded
                    | ControlCode::SessionNotFound
                    | ControlCode::SessionExpired,
                ) if self.sessions.contains_key(&session) => {
                    self.one(session, SessionInput::Ended, now)
                }
                code => Ok(vec![DaemonAction::Told(code)]),
            },
            Frame::Control { session: None, control } => Ok(vec![DaemonAction::Told(control.code)]),
            Frame::Ping(ping) => Ok(vec![DaemonAction::Send(Frame::Pong(ping).encode())]),
            Frame::Pong(_) => Ok(vec![]),
            Frame::HandshakeAccept { .. } | Frame::Signal { .. } => {
                Err(Impossible { state: "connected", event: "a frame that daemons send" })
            }
        }
    }

    fn init(
        &mut self,
        session: SessionId,
        payload: Bytes,
        now: Instant,
    ) -> Result<Vec<DaemonAction>, Impossible> {
        if self.sessions.contains_key(&session) {
            return Err(Impossible { state: "in session", event: "a second handshake" });
        }
        if self.sessions.len() >= self.most_sessions {
            let signal = Signal::close(Reason::Policy);
            return Ok(vec![DaemonAction::Send(Frame::Signal { session, signal }.encode())]);
        }
        self.sessions.insert(session, DaemonSession::offered(payload, now));
        Ok(vec![DaemonAction::Offer(session)])
    }

    fn each(
        &mut self,
        now: Instant,
        input: impl Fn() -> SessionInput,
    ) -> Result<Vec<DaemonAction>, Impossible> {
        let sessions: Vec<_> = self.sessions.keys().copied().collect();
        let mut actions = Vec::new();
        for session in sessions {
            actions.extend(self.one(session, input(), now)?);
        }
        Ok(actions)
    }

    fn one(
        &mut self,
        id: SessionId,
        input: SessionInput,
        now: Instant,
    ) -> Result<Vec<DaemonAction>, Impossible> {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Err(Impossible { state: "not in this session", event: input.name() });
        };
        let actions = session.handle(input, id, &self.id, &self.identity, now)?;
        if session.is_closed() {
            self.sessions.remove(&id);
        }
        let named = |action| match action {
            SessionAction::Send(frame) => DaemonAction::Send(frame),
            SessionAction::Tell(progress) => DaemonAction::Session(id, progress),
        };
        Ok(actions.into_iter().map(named).collect())
    }

    /// When the next `Tick` is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.sessions.values().filter_map(DaemonSession::deadline).min()
    }

    /// A session that is not over.
    pub fn session(&self, id: SessionId) -> Option<&DaemonSession> {
        self.sessions.get(&id)
    }
}

#[cfg(test)]
mod tests;
