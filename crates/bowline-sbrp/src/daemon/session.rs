//! The state machine of one session at the daemon.

use bytes::Bytes;

use super::Progress;
use crate::control::SdkCode;
use crate::frame::{Frame, Reason, Signal};
use crate::handshake::{self, Ephemeral, TIME_LIMIT};
use crate::id::{DaemonId, SessionId};
use crate::identity::IdentitySecret;
use crate::impossible::Impossible;
use crate::sealed::{Channel, Plaintext, SealError, UnsealError};
use crate::time::Instant;

/// One session at the daemon.
#[derive(Debug)]
pub struct DaemonSession(SessionState);

#[derive(Debug)]
enum SessionState {
    /// A client requested the session; the program has not answered yet.
    Handshaking {
        init: Bytes,
        until: Instant,
    },
    Active(Box<Channel>),
    /// The connection is lost. Signalled after the reconnect: ready, or close with this reason.
    Reconnecting(Result<Box<Channel>, Reason>),
    Closed,
}

/// What happens to a session.
#[derive(Debug)]
pub enum SessionInput {
    /// The program accepts it.
    Answer {
        /// A fresh key pair for the handshake.
        ephemeral: Ephemeral,
    },
    /// The payload of a Data frame.
    Data(Bytes),
    /// The program sends a message.
    Send(Plaintext),
    /// The program closes the session.
    Close(Reason),
    /// The relay reports that the client disconnected (SBRP-DAEMON-03).
    Ended,
    /// The connection to the relay is lost.
    Disconnected {
        /// Whether the session waits for the next connection.
        resumable: bool,
    },
    /// The relay accepted the next connection.
    Connected,
    /// The deadline may have come.
    Tick,
}

/// What is to be done for a session.
#[derive(Debug)]
pub enum SessionAction {
    /// Send this frame.
    Send(Bytes),
    /// Tell the program.
    Tell(Progress),
}

use SessionAction::{Send, Tell};

impl DaemonSession {
    pub(super) fn offered(init: Bytes, now: Instant) -> Self {
        Self(SessionState::Handshaking { init, until: now + TIME_LIMIT })
    }

    pub(super) fn forgotten() -> Self {
        Self(SessionState::Reconnecting(Err(Reason::StateLost)))
    }

    pub(super) fn handle(
        &mut self,
        input: SessionInput,
        id: SessionId,
        daemon: &DaemonId,
        identity: &IdentitySecret,
        now: Instant,
    ) -> Result<Vec<SessionAction>, Impossible> {
        use SessionInput as E;
        use SessionState::*;
        let close = |reason| Send(signal(id, Signal::close(reason)));
        let ended = |fault| Tell(Progress::Ended(fault));

        let (next, actions) = match (std::mem::replace(&mut self.0, Closed), input) {
            (Handshaking { init, .. }, E::Answer { ephemeral }) => {
                match handshake::answer(id, &init, daemon, identity, ephemeral) {
                    Ok(done) => (
                        Active(Box::new(done.channel)),
                        vec![Send(done.accept.encode()), Tell(Progress::Established(done.binding))],
                    ),
                    Err(error) => (Closed, vec![close(Reason::Error), ended(Some(error.code()))]),
                }
            }
            (Handshaking { until, .. }, E::Tick) if now >= until => {
                (Closed, vec![close(Reason::Error), ended(Some(SdkCode::HandshakeTimeout))])
            }
            (Handshaking { .. }, E::Disconnected { resumable: true }) => {
                (Reconnecting(Err(Reason::StateLost)), vec![ended(None)])
            }

            (Active(mut channel), E::Data(payload)) => {
                match channel.opener.open(&payload).map_err(UnsealError::code) {
                    Ok(opened) => (Active(channel), vec![Tell(Progress::Deliver(opened))]),
                    Err(code) if code.ends_session() => {
                        (Closed, vec![close(Reason::Error), ended(Some(code))])
                    }
                    Err(code) => (Active(channel), vec![Tell(Progress::Refused(code))]),
                }
            }
            (Active(mut channel), E::Send(plaintext)) => match channel.sealer.seal(&plaintext) {
                Ok(frame) => (Active(channel), vec![Send(frame)]),
                Err(SealError::TooLong(_)) => {
                    self.0 = Active(channel);
                    return Err(Impossible { state: "active", event: "a message past the limit" });
                }
                Err(SealError::Exhausted) => {
                    (Closed, vec![close(Reason::Error), ended(Some(SdkCode::SequenceError))])
                }
            },
            (Active(channel), E::Disconnected { resumable: true }) => {
                (Reconnecting(Ok(channel)), vec![Tell(Progress::Suspended)])
            }

            (Reconnecting(Ok(channel)), E::Connected) if channel.can_resume() => {
                (Active(channel), vec![Send(signal(id, Signal::READY)), Tell(Progress::Resumed)])
            }
            (Reconnecting(Ok(_)), E::Connected) => {
                (Closed, vec![close(Reason::StateLost), ended(None)])
            }
            // The program has already been told that the session ended.
            (Reconnecting(Err(reason)), E::Connected) => (Closed, vec![close(reason)]),
            (Reconnecting(Ok(_)), E::Close(reason)) => {
                (Reconnecting(Err(reason)), vec![ended(None)])
            }
            (Reconnecting(Err(_)), E::Ended) => (Closed, vec![]),

            (Handshaking { .. } | Active(_), E::Close(reason)) => {
                (Closed, vec![close(reason), ended(None)])
            }
            (Handshaking { .. } | Active(_), E::Disconnected { resumable: false }) => {
                (Closed, vec![ended(None)])
            }
            (Handshaking { .. } | Active(_) | Reconnecting(_), E::Ended) => {
                (Closed, vec![ended(None)])
            }
            (state @ (Handshaking { .. } | Active(_) | Reconnecting(_)), E::Tick) => {
                (state, vec![])
            }
            // A close without a connection: the session is already waiting to be closed after the
            // reconnect.
            (state @ Reconnecting(Err(_)), E::Close(_)) => (state, vec![]),
            (state @ Reconnecting(_), E::Disconnected { .. }) => (state, vec![]),

            (state, input) => {
                let impossible = Impossible { state: state.name(), event: input.name() };
                self.0 = state;
                return Err(impossible);
            }
        };
        self.0 = next;
        Ok(actions)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.0, SessionState::Closed)
    }

    /// Whether messages can be sent.
    pub fn is_active(&self) -> bool {
        matches!(self.0, SessionState::Active(_))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.0 {
            SessionState::Handshaking { until, .. } => Some(until),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) fn channel(&mut self) -> &mut Channel {
        match &mut self.0 {
            SessionState::Active(channel) | SessionState::Reconnecting(Ok(channel)) => channel,
            other => panic!("no channel while {}", other.name()),
        }
    }
}

fn signal(session: SessionId, signal: Signal) -> Bytes {
    Frame::Signal { session, signal }.encode()
}

impl SessionState {
    fn name(&self) -> &'static str {
        match self {
            Self::Handshaking { .. } => "handshaking",
            Self::Active(_) => "active",
            Self::Reconnecting(_) => "reconnecting",
            Self::Closed => "closed",
        }
    }
}

impl SessionInput {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Answer { .. } => "an answer",
            Self::Data(_) => "data",
            Self::Send(_) => "a message to send",
            Self::Close(_) => "a wish to close",
            Self::Ended => "the client's end",
            Self::Disconnected { .. } => "the loss of the connection",
            Self::Connected => "a connection",
            Self::Tick => "a timer",
        }
    }
}
