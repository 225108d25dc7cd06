//! The client's table.

use std::time::Instant;

use super::held::Held;
use super::{Action, Client, Event, Failure, Notice, worth_a_new_try};
use crate::control::{Code, ControlCode, SdkCode};
use crate::frame::Frame;
use crate::handshake::{AwaitAccept, Established, HandshakeError, TIME_LIMIT, Trust};
use crate::id::SessionId;
use crate::impossible::Impossible;
use crate::sealed::{Channel, MAX_PLAINTEXT, Plaintext};

#[derive(Debug)]
pub(super) enum State {
    Idle,
    Connecting,
    Handshaking {
        session: SessionId,
        waiting: Box<AwaitAccept>,
        until: Instant,
    },
    Active {
        session: SessionId,
        channel: Box<Channel>,
    },
    /// The daemon is gone; what is to be sent waits.
    Paused {
        session: SessionId,
        channel: Box<Channel>,
        held: Held,
    },
    /// The daemon is back and has not said yet whether it knows us.
    Pending {
        session: SessionId,
        channel: Box<Channel>,
        held: Held,
    },
    /// The session is over; a new one follows.
    Reconnecting,
    Closed,
}

/// An event with frames taken apart: what the table's rows are about.
#[derive(Debug)]
enum Input {
    Event(Event),
    Accept(bytes::Bytes),
    Data(bytes::Bytes),
    /// A control code that ends nothing.
    Told(Code),
    /// One after which the relay closes.
    Ended(Code),
    /// A frame of another session, or one that clients send.
    Foreign,
}

impl Client {
    pub(super) fn step(&mut self, event: Event, now: Instant) -> Result<Vec<Action>, Impossible> {
        use Action as A;
        use ControlCode::{SessionPaused, SessionPending, SessionResumed};
        use Event as E;
        use Input as I;
        use State::*;
        let input = self.read(event);
        if let I::Event(E::Send(message)) = &input
            && message.len() > MAX_PLAINTEXT
        {
            return Err(Impossible { state: self.state(), event: "a message past the limit" });
        }

        let (next, actions) = match (std::mem::replace(&mut self.state, Closed), input) {
            (Idle | Reconnecting, I::Event(E::Connect)) => (Connecting, vec![A::Connect]),

            (Connecting, I::Event(E::Opened { session, ephemeral })) => {
                let (waiting, init) = AwaitAccept::start(session, self.daemon.clone(), ephemeral);
                let (waiting, until) = (Box::new(waiting), now + TIME_LIMIT);
                (Handshaking { session, waiting, until }, vec![A::Send(init.encode())])
            }
            (Connecting, I::Event(E::Unreachable)) => (Reconnecting, vec![A::ConnectLater]),

            (Handshaking { session, waiting, .. }, I::Accept(payload)) => {
                match waiting.accept(&payload, &self.trust) {
                    Ok(done) => self.established(session, done),
                    Err(error) => (Closed, failed(error)),
                }
            }
            (Handshaking { until, .. }, I::Event(E::Tick)) if now >= until => (
                Reconnecting,
                vec![A::Refused(SdkCode::HandshakeTimeout), A::CloseSocket, A::ConnectLater],
            ),
            // The daemon has our keys, and we do not: its accept went down with its connection.
            // It would have come before this notice, so waiting on is of no use.
            (Handshaking { .. }, I::Told(code @ Code::Known(SessionResumed))) => {
                (Reconnecting, vec![A::Show(Notice::Told(code)), A::CloseSocket, A::ConnectLater])
            }
            (state @ Handshaking { .. }, I::Told(code)) => {
                (state, vec![A::Show(Notice::Told(code))])
            }

            (Active { session, mut channel }, I::Event(E::Send(message))) => {
                match channel.sealer.seal(&message) {
                    Ok(frame) => (Active { session, channel }, vec![A::Send(frame)]),
                    Err(_) => (Reconnecting, exhausted(vec![message])),
                }
            }
            (Active { session, channel }, I::Told(Code::Known(SessionPaused))) => {
                (Paused { session, channel, held: Held::default() }, show(Notice::Paused))
            }

            (Paused { session, channel, held }, I::Told(Code::Known(SessionPending))) => {
                (Pending { session, channel, held }, show(Notice::Pending))
            }
            (Pending { session, channel, held }, I::Told(Code::Known(SessionPaused))) => {
                (Paused { session, channel, held }, show(Notice::Paused))
            }
            (Pending { session, channel, held }, I::Told(Code::Known(SessionResumed))) => {
                flush(session, channel, held)
            }
            // Told a second time: that is the answer to a frame that was still on its way.
            (state @ Paused { .. }, I::Told(Code::Known(SessionPaused)))
            | (state @ Pending { .. }, I::Told(Code::Known(SessionPending))) => {
                (state, show(Notice::Discarded))
            }
            (Paused { session, channel, mut held }, I::Event(E::Send(message))) => {
                let unsent = held.push(message).err();
                (Paused { session, channel, held }, give_back(unsent))
            }
            (Pending { session, channel, mut held }, I::Event(E::Send(message))) => {
                let unsent = held.push(message).err();
                (Pending { session, channel, held }, give_back(unsent))
            }

            (mut state @ (Active { .. } | Paused { .. } | Pending { .. }), I::Data(payload)) => {
                let heard = state.open(&payload);
                (state, vec![heard])
            }
            (
                state @ (Active { .. } | Paused { .. } | Pending { .. }),
                I::Told(code @ Code::Known(ControlCode::RateLimited)),
            ) => (state, vec![A::Show(Notice::Told(code))]),

            (
                state @ (Handshaking { .. } | Active { .. } | Paused { .. } | Pending { .. }),
                I::Ended(code),
            ) => {
                let unsent = state.into_unsent();
                if worth_a_new_try(code) {
                    let then = [A::Show(Notice::Told(code)), A::CloseSocket, A::ConnectLater];
                    (Reconnecting, unsent.into_iter().chain(then).collect())
                } else {
                    let then = [A::CloseSocket, A::Failed(Failure::Relay(code))];
                    (Closed, unsent.into_iter().chain(then).collect())
                }
            }
            (
                state @ (Handshaking { .. } | Active { .. } | Paused { .. } | Pending { .. }),
                I::Event(E::Lost { session }),
            ) if state.session() == Some(session) => {
                (Reconnecting, state.into_unsent().into_iter().chain([A::ConnectLater]).collect())
            }
            // The end of an older connection, or of one that we closed.
            (state, I::Event(E::Lost { .. })) => (state, vec![]),
            (state, I::Event(E::Close)) => {
                let open = matches!(state, Connecting) || state.session().is_some();
                let close = open.then_some(A::CloseSocket);
                (Closed, state.into_unsent().into_iter().chain(close).collect())
            }
            (state, I::Event(E::Tick)) => (state, vec![]),

            (state, input) => {
                let impossible = Impossible { state: state.name(), event: input.name() };
                self.state = state;
                return Err(impossible);
            }
        };
        self.state = next;
        Ok(actions)
    }

    /// Takes a frame apart, and tells ours from others.
    fn read(&self, event: Event) -> Input {
        let ours = self.session();
        match event {
            Event::Frame(Frame::HandshakeAccept { session, payload }) if ours == Some(session) => {
                Input::Accept(payload)
            }
            Event::Frame(Frame::Data { session, payload }) if ours == Some(session) => {
                Input::Data(payload)
            }
            Event::Frame(Frame::Control { session, control })
                if session.is_none() || session == ours =>
            {
                match control.code.is_terminal() {
                    true => Input::Ended(control.code),
                    false => Input::Told(control.code),
                }
            }
            Event::Frame(_) => Input::Foreign,
            event => Input::Event(event),
        }
    }

    /// The identity that proved itself is the one that counts from now on.
    fn established(&mut self, session: SessionId, done: Established) -> (State, Vec<Action>) {
        self.trust = Trust::Key(*done.identity.key());
        let channel = Box::new(done.channel);
        (State::Active { session, channel }, vec![Action::Pin(done.identity), Action::Established])
    }
}

fn failed(error: HandshakeError) -> Vec<Action> {
    let failure = match error {
        HandshakeError::KeyChanged(change) => Failure::KeyChanged(change),
        other => Failure::Sdk(other.code()),
    };
    vec![Action::CloseSocket, Action::Failed(failure)]
}

/// The last number is used: a new session is needed (SBRP-CRYPTO-06).
fn exhausted(unsent: Vec<Plaintext>) -> Vec<Action> {
    vec![
        Action::Refused(SdkCode::SequenceError),
        Action::Unsent(unsent),
        Action::CloseSocket,
        Action::ConnectLater,
    ]
}

/// Sends what waited, with the keys and numbers there are.
fn flush(session: SessionId, mut channel: Box<Channel>, held: Held) -> (State, Vec<Action>) {
    let mut actions = show(Notice::Resumed);
    let mut waiting = held.into_messages().into_iter();
    while let Some(message) = waiting.next() {
        match channel.sealer.seal(&message) {
            Ok(frame) => actions.push(Action::Send(frame)),
            Err(_) => {
                let unsent = std::iter::once(message).chain(waiting).collect();
                actions.extend(exhausted(unsent));
                return (State::Reconnecting, actions);
            }
        }
    }
    (State::Active { session, channel }, actions)
}

fn show(notice: Notice) -> Vec<Action> {
    vec![Action::Show(notice)]
}

fn give_back(unsent: Option<Plaintext>) -> Vec<Action> {
    unsent.map(|message| Action::Unsent(vec![message])).into_iter().collect()
}

impl State {
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Handshaking { session, .. }
            | Self::Active { session, .. }
            | Self::Paused { session, .. }
            | Self::Pending { session, .. } => Some(*session),
            Self::Idle | Self::Connecting | Self::Reconnecting | Self::Closed => None,
        }
    }

    fn open(&mut self, payload: &[u8]) -> Action {
        match self {
            Self::Active { channel, .. }
            | Self::Paused { channel, .. }
            | Self::Pending { channel, .. } => match channel.opener.open(payload) {
                Ok(opened) => Action::Deliver(opened),
                Err(error) => Action::Refused(error.code()),
            },
            _ => Action::Refused(SdkCode::DecryptFailed),
        }
    }

    /// What waited in a state that ends.
    fn into_unsent(self) -> Option<Action> {
        match self {
            Self::Paused { held, .. } | Self::Pending { held, .. } => {
                let messages = held.into_messages();
                (!messages.is_empty()).then_some(Action::Unsent(messages))
            }
            _ => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Handshaking { .. } => "handshaking",
            Self::Active { .. } => "active",
            Self::Paused { .. } => "paused",
            Self::Pending { .. } => "pending",
            Self::Reconnecting => "reconnecting",
            Self::Closed => "closed",
        }
    }

    #[cfg(test)]
    pub(super) fn channel(&mut self) -> &mut Channel {
        match self {
            Self::Active { channel, .. }
            | Self::Paused { channel, .. }
            | Self::Pending { channel, .. } => channel,
            other => panic!("no channel while {}", other.name()),
        }
    }
}

impl Input {
    fn name(&self) -> &'static str {
        match self {
            Self::Event(Event::Connect) => "a wish to connect",
            Self::Event(Event::Opened { .. }) => "a connection",
            Self::Event(Event::Unreachable) => "a failure to connect",
            Self::Event(Event::Frame(_)) | Self::Foreign => "a frame that is not for us",
            Self::Event(Event::Lost { .. }) => "the loss of the connection",
            Self::Event(Event::Send(_)) => "a message to send",
            Self::Event(Event::Close) => "a wish to close",
            Self::Event(Event::Tick) => "a timer",
            Self::Accept(_) => "an accept",
            Self::Data(_) => "data",
            Self::Told(_) => "a notice",
            Self::Ended(_) => "an end",
        }
    }
}
