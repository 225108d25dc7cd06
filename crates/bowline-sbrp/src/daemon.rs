//! The daemon's side: many sessions over one connection to the relay.
//!
//! A [`Session`] is the table of one session; a [`Daemon`] hands each event to the session it
//! concerns. Pure: ephemerals, which are random, come with the events that need them.
//!
//! Invariants
//! - Sessions share nothing but the connection (SBRP-DAEMON-02).
//! - A second init never touches a session that is there: a relay could reset sessions with it.
//! - After a reconnect every session is signalled, ready or closed, before anything else is sent
//!   (SBRP-DAEMON-05).

mod session;

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;

pub use session::{Session, SessionAction, SessionEvent};

use crate::control::{Code, ControlCode, SdkCode};
use crate::frame::{Frame, Reason, Signal};
use crate::handshake::Ephemeral;
use crate::id::{DaemonId, SessionId};
use crate::identity::IdentitySecret;
use crate::impossible::Impossible;
use crate::sealed::{Opened, Plaintext};

#[derive(Debug)]
pub enum Event {
    /// The relay has let us in.
    LinkUp,
    LinkLost,
    Frame(Frame),
    /// The program takes an offered session.
    Answer {
        session: SessionId,
        ephemeral: Ephemeral,
    },
    /// The program says something.
    Send {
        session: SessionId,
        plaintext: Plaintext,
    },
    /// The program ends or refuses a session.
    Close {
        session: SessionId,
        reason: Reason,
    },
    /// The program stops: every session is closed as `shutdown` (SBRP-DAEMON-06).
    Stop,
    Tick,
}

/// To be carried out in order.
#[derive(Debug)]
pub enum Action {
    Send(Bytes),
    /// A client asks for a session: answer or close it, within the handshake's time.
    Offer(SessionId),
    Session(SessionId, Progress),
    /// What the relay said of the connection.
    Told(Code),
}

/// What the program hears of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    Established,
    Deliver(Opened),
    /// The connection is gone; the session waits.
    Suspended,
    Resumed,
    /// Something was refused; the session goes on.
    Refused(SdkCode),
    /// The session is over; if by a fault, by which.
    Ended(Option<SdkCode>),
}

#[derive(Debug)]
pub struct Daemon {
    id: DaemonId,
    identity: IdentitySecret,
    resumable: bool,
    most_sessions: usize,
    connected: bool,
    sessions: BTreeMap<SessionId, Session>,
}

impl Daemon {
    /// A daemon that is not connected yet. `resumable` is what its token says (`session:resume`);
    /// beyond `most_sessions`, clients are turned away.
    pub fn new(
        id: DaemonId,
        identity: IdentitySecret,
        resumable: bool,
        most_sessions: usize,
    ) -> Self {
        let sessions = BTreeMap::new();
        Self { id, identity, resumable, most_sessions, connected: false, sessions }
    }

    /// With sessions from before the process restarted. Their keys are gone: they are closed as
    /// `state_lost` on the first connection (SBRP-DAEMON-05).
    pub fn having_forgotten(mut self, sessions: impl IntoIterator<Item = SessionId>) -> Self {
        for session in sessions {
            self.sessions.entry(session).or_insert_with(Session::forgotten);
        }
        self
    }

    pub fn handle(&mut self, event: Event, now: Instant) -> Result<Vec<Action>, Impossible> {
        let impossible = |event| Err(Impossible { state: "connected", event });
        match (self.connected, event) {
            (false, Event::LinkUp) => {
                self.connected = true;
                self.each(now, || SessionEvent::LinkUp)
            }
            (true, Event::LinkUp) => impossible("a second connection"),
            (true, Event::LinkLost) => {
                self.connected = false;
                let resumable = self.resumable;
                self.each(now, || SessionEvent::LinkLost { resumable })
            }
            (true, Event::Frame(frame)) => self.frame(frame, now),
            (false, Event::LinkLost | Event::Frame(_)) => {
                Err(Impossible { state: "not connected", event: "something from the relay" })
            }
            (_, Event::Answer { session, ephemeral }) => {
                self.one(session, SessionEvent::Answer { ephemeral }, now)
            }
            (_, Event::Send { session, plaintext }) => {
                self.one(session, SessionEvent::Send(plaintext), now)
            }
            (_, Event::Close { session, reason }) => {
                self.one(session, SessionEvent::Close(reason), now)
            }
            (_, Event::Stop) => self.each(now, || SessionEvent::Close(Reason::Shutdown)),
            (_, Event::Tick) => self.each(now, || SessionEvent::Tick),
        }
    }

    fn frame(&mut self, frame: Frame, now: Instant) -> Result<Vec<Action>, Impossible> {
        match frame {
            Frame::HandshakeInit { session, payload } => self.init(session, payload, now),
            Frame::Data { session, payload } => self.one(session, SessionEvent::Data(payload), now),
            Frame::Control { session: Some(session), control } => match control.code {
                Code::Known(
                    ControlCode::SessionEnded
                    | ControlCode::SessionNotFound
                    | ControlCode::SessionExpired,
                ) if self.sessions.contains_key(&session) => {
                    self.one(session, SessionEvent::Ended, now)
                }
                code => Ok(vec![Action::Told(code)]),
            },
            Frame::Control { session: None, control } => Ok(vec![Action::Told(control.code)]),
            Frame::Ping(beat) => Ok(vec![Action::Send(Frame::Pong(beat).encode())]),
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
    ) -> Result<Vec<Action>, Impossible> {
        if self.sessions.contains_key(&session) {
            return Err(Impossible { state: "in session", event: "a second handshake" });
        }
        if self.sessions.len() >= self.most_sessions {
            let signal = Signal::close(Reason::Policy);
            return Ok(vec![Action::Send(Frame::Signal { session, signal }.encode())]);
        }
        self.sessions.insert(session, Session::offered(payload, now));
        Ok(vec![Action::Offer(session)])
    }

    fn each(
        &mut self,
        now: Instant,
        event: impl Fn() -> SessionEvent,
    ) -> Result<Vec<Action>, Impossible> {
        let sessions: Vec<_> = self.sessions.keys().copied().collect();
        let mut actions = Vec::new();
        for session in sessions {
            actions.extend(self.one(session, event(), now)?);
        }
        Ok(actions)
    }

    fn one(
        &mut self,
        id: SessionId,
        event: SessionEvent,
        now: Instant,
    ) -> Result<Vec<Action>, Impossible> {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Err(Impossible { state: "not in this session", event: event.name() });
        };
        let actions = session.handle(event, id, &self.id, &self.identity, now)?;
        if session.is_closed() {
            self.sessions.remove(&id);
        }
        let named = |action| match action {
            SessionAction::Send(frame) => Action::Send(frame),
            SessionAction::Tell(progress) => Action::Session(id, progress),
        };
        Ok(actions.into_iter().map(named).collect())
    }

    /// When `Tick` is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.sessions.values().filter_map(Session::deadline).min()
    }

    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }
}

#[cfg(test)]
mod tests;
