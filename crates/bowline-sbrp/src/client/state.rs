//! The client's states and transitions.

use super::send_queue::SendQueue;
use super::{Client, ClientAction, ClientFailure, ClientInput, Notice, worth_a_new_try};
use crate::control::{Code, ControlCode, SdkCode};
use crate::frame::Frame;
use crate::handshake::{AwaitAccept, Established, HandshakeError, TIME_LIMIT, Trust};
use crate::id::SessionId;
use crate::impossible::Impossible;
use crate::sealed::{Channel, MAX_PLAINTEXT, Opened, Plaintext, UnsealError};
use crate::time::Instant;

#[derive(Debug)]
pub(super) enum ClientState {
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
    /// The daemon is disconnected; outgoing messages are queued.
    Paused {
        session: SessionId,
        channel: Box<Channel>,
        queued: SendQueue,
    },
    /// The daemon reconnected and has not signalled yet whether it can resume the session.
    Pending {
        session: SessionId,
        channel: Box<Channel>,
        queued: SendQueue,
    },
    /// The session ended; a new one follows.
    Reconnecting,
    Closed,
}

/// An event with its frame parsed, as the transition table matches it.
#[derive(Debug)]
enum RowInput {
    /// Any event that is not a frame.
    Plain(ClientInput),
    Accept(bytes::Bytes),
    Data(bytes::Bytes),
    /// A control code that does not end the session.
    Told(Code),
    /// A control code after which the relay closes the connection.
    Ended(Code),
    /// A frame of another session, or of a type that only clients send.
    Foreign,
}

impl Client {
    pub(super) fn step(
        &mut self,
        event: ClientInput,
        now: Instant,
    ) -> Result<Vec<ClientAction>, Impossible> {
        use ClientAction as A;
        use ClientInput as E;
        use ClientState::*;
        use ControlCode::{SessionPaused, SessionPending, SessionResumed};
        use RowInput as I;
        let input = self.read(event);
        if let I::Plain(E::Send(message)) = &input
            && message.len() > MAX_PLAINTEXT
        {
            return Err(Impossible { state: self.state(), event: "a message past the limit" });
        }

        let (next, actions) = match (std::mem::replace(&mut self.state, Closed), input) {
            (Idle | Reconnecting, I::Plain(E::Connect)) => (Connecting, vec![A::Connect]),

            (Connecting, I::Plain(E::Opened { session, ephemeral })) => {
                let (waiting, init) = AwaitAccept::start(session, self.daemon.clone(), ephemeral);
                let (waiting, until) = (Box::new(waiting), now + TIME_LIMIT);
                (Handshaking { session, waiting, until }, vec![A::Send(init.encode())])
            }
            (Connecting, I::Plain(E::Unreachable)) => (Reconnecting, vec![A::ConnectLater]),

            (Handshaking { session, waiting, .. }, I::Accept(payload)) => {
                match waiting.accept(&payload, &self.trust) {
                    Ok(done) => self.established(session, done),
                    Err(error) => (Closed, failed(error)),
                }
            }
            (Handshaking { until, .. }, I::Plain(E::Tick)) if now >= until => (
                Reconnecting,
                vec![A::Refused(SdkCode::HandshakeTimeout), A::CloseSocket, A::ConnectLater],
            ),
            // The daemon has session keys and the client has none: the HandshakeAccept was lost
            // with the daemon's connection. It would have arrived before this code, so there is
            // nothing to wait for.
            (Handshaking { .. }, I::Told(code @ Code::Known(SessionResumed))) => {
                (Reconnecting, vec![A::Show(Notice::Told(code)), A::CloseSocket, A::ConnectLater])
            }
            (state @ Handshaking { .. }, I::Told(code)) => {
                (state, vec![A::Show(Notice::Told(code))])
            }

            (Active { session, mut channel }, I::Plain(E::Send(message))) => {
                match channel.sealer.seal(&message) {
                    Ok(frame) => (Active { session, channel }, vec![A::Send(frame)]),
                    Err(_) => (Reconnecting, exhausted(vec![message])),
                }
            }
            (Active { session, channel }, I::Told(Code::Known(SessionPaused))) => {
                (Paused { session, channel, queued: SendQueue::default() }, show(Notice::Paused))
            }

            (Paused { session, channel, queued }, I::Told(Code::Known(SessionPending))) => {
                (Pending { session, channel, queued }, show(Notice::Pending))
            }
            (Pending { session, channel, queued }, I::Told(Code::Known(SessionPaused))) => {
                (Paused { session, channel, queued }, show(Notice::Paused))
            }
            (Pending { session, channel, queued }, I::Told(Code::Known(SessionResumed))) => {
                flush(session, channel, queued)
            }
            // A repeated code: the relay's answer to a frame that was still in flight.
            (state @ Paused { .. }, I::Told(Code::Known(SessionPaused)))
            | (state @ Pending { .. }, I::Told(Code::Known(SessionPending))) => {
                (state, show(Notice::Discarded))
            }
            (Paused { session, channel, mut queued }, I::Plain(E::Send(message))) => {
                let unsent = queued.push(message).err();
                (Paused { session, channel, queued }, give_back(unsent))
            }
            (Pending { session, channel, mut queued }, I::Plain(E::Send(message))) => {
                let unsent = queued.push(message).err();
                (Pending { session, channel, queued }, give_back(unsent))
            }

            (mut state @ (Active { .. } | Paused { .. } | Pending { .. }), I::Data(payload)) => {
                match state.open(&payload) {
                    Ok(opened) => (state, vec![A::Deliver(opened)]),
                    Err(code) if code.ends_session() => (Reconnecting, broken(code, state)),
                    Err(code) => (state, vec![A::Refused(code)]),
                }
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
                    let then = [A::CloseSocket, A::Failed(ClientFailure::Relay(code))];
                    (Closed, unsent.into_iter().chain(then).collect())
                }
            }
            (
                state @ (Handshaking { .. } | Active { .. } | Paused { .. } | Pending { .. }),
                I::Plain(E::Lost { session }),
            ) if state.session() == Some(session) => {
                (Reconnecting, state.into_unsent().into_iter().chain([A::ConnectLater]).collect())
            }
            // The end of an older connection, or of one that the client closed.
            (state, I::Plain(E::Lost { .. })) => (state, vec![]),
            (state, I::Plain(E::Close)) => {
                let open = matches!(state, Connecting) || state.session().is_some();
                let close = open.then_some(A::CloseSocket);
                (Closed, state.into_unsent().into_iter().chain(close).collect())
            }
            (state, I::Plain(E::Tick)) => (state, vec![]),

            (state, input) => {
                let impossible = Impossible { state: state.name(), event: input.name() };
                self.state = state;
                return Err(impossible);
            }
        };
        self.state = next;
        Ok(actions)
    }

    /// Parses a frame, and tells frames of this session from foreign ones.
    fn read(&self, event: ClientInput) -> RowInput {
        let ours = self.session();
        match event {
            ClientInput::Frame(Frame::HandshakeAccept { session, payload })
                if ours == Some(session) =>
            {
                RowInput::Accept(payload)
            }
            ClientInput::Frame(Frame::Data { session, payload }) if ours == Some(session) => {
                RowInput::Data(payload)
            }
            ClientInput::Frame(Frame::Control { session, control })
                if session.is_none() || session == ours =>
            {
                match control.code.is_terminal() {
                    true => RowInput::Ended(control.code),
                    false => RowInput::Told(control.code),
                }
            }
            ClientInput::Frame(_) => RowInput::Foreign,
            event => RowInput::Plain(event),
        }
    }

    /// The next handshakes must present the identity that was just verified.
    fn established(
        &mut self,
        session: SessionId,
        done: Established,
    ) -> (ClientState, Vec<ClientAction>) {
        self.trust = Trust::Key(*done.identity.key());
        let channel = Box::new(done.channel);
        (
            ClientState::Active { session, channel },
            vec![ClientAction::Pin(done.identity), ClientAction::Established(done.binding)],
        )
    }
}

fn failed(error: HandshakeError) -> Vec<ClientAction> {
    let failure = match error {
        HandshakeError::KeyChanged(change) => ClientFailure::KeyChanged(change),
        other => ClientFailure::Sdk(other.code()),
    };
    vec![ClientAction::CloseSocket, ClientAction::Failed(failure)]
}

/// The session is over because of what came: the socket is closed, and a new session follows
/// (SBRP-SDK-01).
fn broken(code: SdkCode, state: ClientState) -> Vec<ClientAction> {
    let then = [ClientAction::Refused(code), ClientAction::CloseSocket, ClientAction::ConnectLater];
    state.into_unsent().into_iter().chain(then).collect()
}

/// The sequence numbers are exhausted: a new session is needed (SBRP-CRYPTO-06).
fn exhausted(unsent: Vec<Plaintext>) -> Vec<ClientAction> {
    vec![
        ClientAction::Refused(SdkCode::SequenceError),
        ClientAction::Unsent(unsent),
        ClientAction::CloseSocket,
        ClientAction::ConnectLater,
    ]
}

/// Sends the queued messages, with the existing keys and sequence numbers.
fn flush(
    session: SessionId,
    mut channel: Box<Channel>,
    queued: SendQueue,
) -> (ClientState, Vec<ClientAction>) {
    let mut actions = show(Notice::Resumed);
    let mut waiting = queued.into_messages().into_iter();
    while let Some(message) = waiting.next() {
        match channel.sealer.seal(&message) {
            Ok(frame) => actions.push(ClientAction::Send(frame)),
            Err(_) => {
                let unsent = std::iter::once(message).chain(waiting).collect();
                actions.extend(exhausted(unsent));
                return (ClientState::Reconnecting, actions);
            }
        }
    }
    (ClientState::Active { session, channel }, actions)
}

fn show(notice: Notice) -> Vec<ClientAction> {
    vec![ClientAction::Show(notice)]
}

fn give_back(unsent: Option<Plaintext>) -> Vec<ClientAction> {
    unsent.map(|message| ClientAction::Unsent(vec![message])).into_iter().collect()
}

impl ClientState {
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Handshaking { session, .. }
            | Self::Active { session, .. }
            | Self::Paused { session, .. }
            | Self::Pending { session, .. } => Some(*session),
            Self::Idle | Self::Connecting | Self::Reconnecting | Self::Closed => None,
        }
    }

    fn open(&mut self, payload: &[u8]) -> Result<Opened, SdkCode> {
        match self {
            Self::Active { channel, .. }
            | Self::Paused { channel, .. }
            | Self::Pending { channel, .. } => {
                channel.opener.open(payload).map_err(UnsealError::code)
            }
            _ => Err(SdkCode::DecryptFailed),
        }
    }

    /// Returns the queued messages of a state that ends.
    fn into_unsent(self) -> Option<ClientAction> {
        match self {
            Self::Paused { queued, .. } | Self::Pending { queued, .. } => {
                let messages = queued.into_messages();
                (!messages.is_empty()).then_some(ClientAction::Unsent(messages))
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

impl RowInput {
    fn name(&self) -> &'static str {
        match self {
            Self::Plain(ClientInput::Connect) => "a wish to connect",
            Self::Plain(ClientInput::Opened { .. }) => "a connection",
            Self::Plain(ClientInput::Unreachable) => "a failure to connect",
            Self::Plain(ClientInput::Frame(_)) | Self::Foreign => "a frame that is not for us",
            Self::Plain(ClientInput::Lost { .. }) => "the loss of the connection",
            Self::Plain(ClientInput::Send(_)) => "a message to send",
            Self::Plain(ClientInput::Close) => "a wish to close",
            Self::Plain(ClientInput::Tick) => "a timer",
            Self::Accept(_) => "an accept",
            Self::Data(_) => "data",
            Self::Told(_) => "a notice",
            Self::Ended(_) => "an end",
        }
    }
}
