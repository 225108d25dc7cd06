//! Which messages of this chat are not answered yet, and how those ended that are.

use std::collections::{HashSet, VecDeque};

use bowline_client::surface::Event;
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::TurnId;

/// How many ended turns are remembered, to recognise repeated accepts.
const REMEMBERED: usize = 256;
/// How much of a turn's text is kept, in case that it is the reason of a failure.
const REASON: usize = 500;

#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// Messages not yet accepted, by `client_turn_id`.
    sent: HashSet<String>,
    /// Accepted turns without an answer yet.
    accepted: HashSet<TurnId>,
    ended: VecDeque<TurnId>,
    /// The turn whose text came last, and the beginning of its text: that of a failed turn says why.
    text: Option<(TurnId, String)>,
    /// Why the last message of this chat that got no whole answer did not.
    failure: Option<String>,
}

impl Outstanding {
    pub(super) fn sent(&mut self, client_turn_id: String) {
        self.sent.insert(client_turn_id);
    }

    /// Whether every message was answered or refused.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.accepted.is_empty()
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn happened(&mut self, event: &Event) {
        match event {
            Event::Accepted { client_turn_id, turn_id } => self.accepted(client_turn_id, *turn_id),
            Event::Failed { client_turn_id, turn_id, message, .. } => {
                let unsent = client_turn_id.as_ref().is_some_and(|id| self.sent.remove(id));
                let unanswered = turn_id.is_some_and(|id| self.accepted.remove(&id));
                if unsent || unanswered {
                    self.failure = Some(message.clone());
                }
            }
            Event::Chunk { turn_id, text, restarted } => self.said(*turn_id, text, *restarted),
            Event::Turn(turn) => {
                self.said(turn.turn_id, &turn.content, true);
                self.ends(turn.turn_id, turn.status);
            }
            Event::Complete(turn) => self.ends(turn.turn_id, turn.status),
            _ => {}
        }
    }

    fn accepted(&mut self, client_turn_id: &str, turn: TurnId) {
        // An accept can be repeated after the turn has ended: then there is no answer to wait for.
        if self.sent.remove(client_turn_id) && !self.ended.contains(&turn) {
            self.accepted.insert(turn);
        }
    }

    fn said(&mut self, turn: TurnId, text: &str, restarted: bool) {
        let mut before = match self.text.take() {
            Some((of, before)) if of == turn && !restarted => before,
            _ => String::new(),
        };
        before.extend(text.chars().take(REASON - before.len().min(REASON)));
        self.text = Some((turn, before));
    }

    fn ends(&mut self, turn: TurnId, status: TurnStatus) {
        self.ended.push_back(turn);
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
        let failure = match status {
            TurnStatus::Complete => None,
            TurnStatus::Cancelled => Some("the answer was stopped"),
            TurnStatus::Interrupted => Some("the answer was interrupted"),
            TurnStatus::Failed => Some(match &self.text {
                Some((of, text)) if *of == turn && !text.trim().is_empty() => text.as_str(),
                _ => "the turn failed",
            }),
        };
        if self.accepted.remove(&turn)
            && let Some(failure) = failure
        {
            self.failure = Some(failure.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(number: u128) -> TurnId {
        TurnId(uuid::Uuid::from_u128(number))
    }

    fn accepted(name: &str, number: u128) -> Event {
        Event::Accepted { client_turn_id: name.into(), turn_id: turn(number) }
    }

    fn failed(turn_id: Option<TurnId>, name: Option<&str>) -> Event {
        let client_turn_id = name.map(str::to_owned);
        Event::Failed { client_turn_id, turn_id, code: "X".into(), message: "no model".into() }
    }

    #[test]
    fn a_message_is_outstanding_until_it_is_refused_or_its_turn_ends() {
        let mut chat = Outstanding::default();
        chat.sent("a".into());
        chat.sent("b".into());
        chat.happened(&accepted("a", 1));
        assert!(!chat.is_empty());
        chat.happened(&failed(None, Some("b")));
        assert_eq!((chat.is_empty(), chat.failure()), (false, Some("no model")));
        chat.ends(turn(1), TurnStatus::Complete);
        assert!(chat.is_empty());
    }

    #[test]
    fn only_turns_of_this_chat_make_it_fail() {
        let mut chat = Outstanding::default();
        chat.ends(turn(7), TurnStatus::Failed);
        chat.happened(&failed(Some(turn(8)), None));
        assert_eq!(chat.failure(), None);
        chat.sent("a".into());
        chat.happened(&accepted("a", 1));
        chat.ends(turn(1), TurnStatus::Interrupted);
        assert_eq!(chat.failure(), Some("the answer was interrupted"));
        chat.sent("b".into());
        chat.happened(&accepted("b", 2));
        chat.happened(&Event::Chunk { turn_id: turn(2), text: "no ".into(), restarted: false });
        chat.happened(&Event::Chunk { turn_id: turn(2), text: "model\n".into(), restarted: false });
        chat.ends(turn(2), TurnStatus::Failed);
        assert_eq!(chat.failure(), Some("no model"));
    }

    #[test]
    fn an_accept_after_the_end_waits_for_nothing() {
        let mut chat = Outstanding::default();
        chat.sent("a".into());
        chat.ends(turn(1), TurnStatus::Complete);
        chat.happened(&accepted("a", 1));
        assert!(chat.is_empty());
    }
}
