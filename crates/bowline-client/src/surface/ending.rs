//! How one connection ended, and what follows from it.
//!
//! One table: which ends are final, which are worth another attempt, and the sentence for the
//! person who waits.

use bowline_sbp::error::Close;
use tokio_tungstenite::tungstenite::http::StatusCode;

use super::event::CloseReason;

/// The end of one connection, or of the attempt to get one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// A close frame with this code.
    Closed(u16),
    /// The upgrade was answered with this status instead.
    Answered(StatusCode),
    /// The connection failed; the sentence says how.
    Broken(String),
    /// Nothing was heard for [`super::SILENCE`].
    Silent,
    /// A frame of a known type that cannot be read. Passing over it could lose a turn.
    Unreadable,
    /// Text of a turn is missing before what came.
    Skipped,
    /// A message over the size limit.
    Oversized,
    /// The session goes on as another one, with another agent.
    HandedOff { session: String, agent: String },
    /// The program left.
    Detached,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Final(CloseReason),
    Retry { why: String },
}

impl Ending {
    pub(super) fn of(close: Close) -> Self {
        Self::Closed(close.parts().0)
    }

    /// What follows, given what the gateway complained about last.
    pub(super) fn verdict(&self, complaint: Option<String>) -> Verdict {
        let why = match self {
            Ending::Closed(code) => match named(*code) {
                Some(Close::Forbidden) => return Verdict::Final(CloseReason::Forbidden),
                Some(Close::NotFound) => return Verdict::Final(CloseReason::NotFound),
                Some(Close::Replaced) => return Verdict::Final(CloseReason::Replaced),
                // Without the frame that says where to, it is as if someone took it.
                Some(Close::HandedOff) => return Verdict::Final(CloseReason::Replaced),
                Some(Close::Protocol) => {
                    let detail = complaint.unwrap_or_else(|| "protocol error".into());
                    return Verdict::Final(CloseReason::Protocol { detail });
                }
                Some(Close::ServiceRestart) => "the gateway restarts".into(),
                Some(Close::TooBig) => "a message was larger than the gateway takes".into(),
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
            Ending::Detached => return Verdict::Final(CloseReason::Detached),
        };
        Verdict::Retry { why }
    }

    /// Whether the next attachment may well end the same way. Then a successful attach is no
    /// reason to wait less: one bad turn would be asked for many times a second, for ever.
    pub(super) fn may_recur(&self) -> bool {
        matches!(self, Ending::Unreadable | Ending::Skipped | Ending::Oversized)
            || *self == Ending::of(Close::TryAgain)
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
            // A proxy says 404 while a gateway is being replaced: the session may well exist.
            (Ending::Answered(StatusCode::NOT_FOUND), retry("the gateway answered 404 Not Found")),
            (Ending::Closed(1000), retry("the gateway closed the connection")),
            (Ending::Closed(1009), retry("a message was larger than the gateway takes")),
            (Ending::Closed(1012), retry("the gateway restarts")),
            (Ending::Closed(1013), retry("the gateway asks to try again later")),
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
