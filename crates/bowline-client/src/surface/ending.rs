//! How one connection ended, and whether to reconnect.
//!
//! One table: which ends are final, which are retried, and the text for the user.

use bowline_sbp::error::Close;
use bowline_sbp::frame::SessionMoved;
use tokio_tungstenite::tungstenite::http::StatusCode;

use super::event::CloseReason;

/// The end of one connection, or of an attempt to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// A close frame with this code.
    Closed(u16),
    /// The upgrade was refused with this HTTP status.
    Answered(StatusCode),
    /// The connection failed; the text says how.
    Broken(String),
    /// Nothing was received for [`super::SILENCE`].
    Silent,
    /// A frame of a known type that cannot be parsed. Ignoring it could lose a turn.
    Unreadable,
    /// Text of a turn is missing before the received chunk.
    Skipped,
    /// A message over the size limit.
    Oversized,
    /// The session was handed off to another agent, as a new session.
    HandedOff { session: String, agent: String },
    /// The session goes on at another gateway.
    Moved(Box<SessionMoved>),
    /// The program detached.
    Detached,
}

/// Whether to reconnect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Final(CloseReason),
    Retry { why: String },
}

impl Ending {
    pub(super) fn of(close: Close) -> Self {
        Self::Closed(close.parts().0)
    }

    /// Whether to reconnect. `complaint`: the last `PROTOCOL_ERROR` text of the gateway.
    pub(super) fn verdict(&self, complaint: Option<String>) -> Verdict {
        let why = match self {
            Ending::Closed(code) => match named(*code) {
                Some(Close::Forbidden) => return Verdict::Final(CloseReason::Forbidden),
                Some(Close::NotFound) => return Verdict::Final(CloseReason::NotFound),
                Some(Close::Replaced) => return Verdict::Final(CloseReason::Replaced),
                // Without the frame that names the new session, it counts as replaced.
                Some(Close::HandedOff) => return Verdict::Final(CloseReason::Replaced),
                Some(Close::Protocol) => {
                    let detail = complaint.unwrap_or_else(|| "protocol error".into());
                    return Verdict::Final(CloseReason::Protocol { detail });
                }
                // Without the frame that says where, it is asked again.
                Some(Close::Moved) => "the session has moved to another gateway".into(),
                Some(Close::ServiceRestart) => "the gateway restarts".into(),
                Some(Close::TooBig) => "a message was larger than the gateway accepts".into(),
                Some(Close::TryAgain) => "the gateway asks to try again later".into(),
                Some(Close::Normal) => "the gateway closed the connection".into(),
                None => format!("the gateway closed the connection with code {code}"),
            },
            Ending::Answered(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Verdict::Final(CloseReason::Forbidden);
            }
            Ending::Answered(status) => format!("the gateway answered {status}"),
            Ending::Broken(why) => why.clone(),
            Ending::Silent => format!("no answer for {} s", super::SILENCE.as_secs()),
            Ending::Unreadable => "the gateway sent a frame that cannot be read".into(),
            Ending::Skipped => "the gateway left out part of a turn".into(),
            Ending::Oversized => "the gateway sent a message that is too large".into(),
            Ending::HandedOff { session, agent } => {
                let (session, agent) = (session.clone(), agent.clone());
                return Verdict::Final(CloseReason::HandedOff { session, agent });
            }
            Ending::Moved(moved) => {
                return Verdict::Final(CloseReason::Moved {
                    session: moved.new_session_id.to_string(),
                    gateway: moved.gateway_id.clone(),
                    url: moved.url.clone(),
                });
            }
            Ending::Detached => return Verdict::Final(CloseReason::Detached),
        };
        Verdict::Retry { why }
    }

    /// Whether the next attachment may end the same way. Then a successful attach must not reset
    /// the back-off: one bad turn would be requested many times a second, for ever.
    pub(super) fn may_recur(&self) -> bool {
        matches!(self, Ending::Unreadable | Ending::Skipped | Ending::Oversized)
            || [Close::TryAgain, Close::Moved].map(Ending::of).contains(self)
    }
}

fn named(code: u16) -> Option<Close> {
    [
        Close::Normal,
        Close::Protocol,
        Close::ServiceRestart,
        Close::TooBig,
        Close::TryAgain,
        Close::Forbidden,
        Close::NotFound,
        Close::Replaced,
        Close::HandedOff,
        Close::Moved,
    ]
    .into_iter()
    .find(|close| close.parts().0 == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_is_final_or_has_a_sentence() {
        let stop = Verdict::Final;
        let retry = |why: &str| Verdict::Retry { why: why.into() };
        let protocol = CloseReason::Protocol { detail: "no `type`".into() };
        for (ending, verdict) in [
            (Ending::Closed(4003), stop(CloseReason::Forbidden)),
            (Ending::Closed(4004), stop(CloseReason::NotFound)),
            (Ending::Closed(4009), stop(CloseReason::Replaced)),
            (Ending::Closed(4010), stop(CloseReason::Replaced)),
            (
                Ending::HandedOff { session: "s".into(), agent: "a".into() },
                stop(CloseReason::HandedOff { session: "s".into(), agent: "a".into() }),
            ),
            (Ending::Closed(1003), stop(protocol)),
            (Ending::Detached, stop(CloseReason::Detached)),
            (Ending::Answered(StatusCode::UNAUTHORIZED), stop(CloseReason::Forbidden)),
            (Ending::Answered(StatusCode::FORBIDDEN), stop(CloseReason::Forbidden)),
            // A proxy may answer 404 while the gateway restarts: the session may still exist.
            (Ending::Answered(StatusCode::NOT_FOUND), retry("the gateway answered 404 Not Found")),
            (Ending::Closed(1000), retry("the gateway closed the connection")),
            (Ending::Closed(1009), retry("a message was larger than the gateway accepts")),
            (Ending::Closed(1012), retry("the gateway restarts")),
            (Ending::Closed(1013), retry("the gateway asks to try again later")),
            (Ending::Closed(4011), retry("the session has moved to another gateway")),
            (Ending::Closed(1001), retry("the gateway closed the connection with code 1001")),
            (Ending::Silent, retry("no answer for 60 s")),
            (Ending::Unreadable, retry("the gateway sent a frame that cannot be read")),
            (Ending::Skipped, retry("the gateway left out part of a turn")),
            (Ending::Oversized, retry("the gateway sent a message that is too large")),
            (Ending::Broken("connection refused".into()), retry("connection refused")),
        ] {
            assert_eq!(ending.verdict(Some("no `type`".into())), verdict, "{ending:?}");
        }
    }

    #[test]
    fn only_ends_that_recur_keep_the_wait_growing() {
        for ending in [Ending::Unreadable, Ending::Skipped, Ending::Oversized, Ending::Closed(1013)]
        {
            assert!(ending.may_recur(), "{ending:?}");
        }
        for ending in [Ending::Closed(1012), Ending::Closed(1000), Ending::Silent] {
            assert!(!ending.may_recur(), "{ending:?}");
        }
    }
}
