//! Outbox: messages that the gateway has not accepted yet.
//!
//! A message is removed only when it was accepted or refused: until then it is resent after every
//! reconnect, under the same `client_turn_id`, so that the gateway runs it once (G3). Messages are
//! sent in order, with a limit on those in flight (SBP-L2-18).

use std::collections::VecDeque;

use bowline_sbp::frame::UserMessage;
use serde_json::Value;

/// Why a command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The surface is closed.
    #[error("the surface is closed")]
    Closed,
    /// As many messages wait as may.
    #[error("{MOST} messages already wait for the gateway")]
    Full,
    /// The message is longer than 1 MiB.
    #[error("the message is longer than 1 MiB")]
    TooLong,
    /// A client turn id is 1 to 128 bytes.
    #[error("a client turn id is 1 to 128 bytes")]
    BadId,
    /// The surface is not attached at the moment.
    #[error("the surface is not attached at the moment")]
    NotAttached,
}

/// The most queued messages.
const MOST: usize = 4096;
/// The most messages in flight, sent and not accepted.
const ON_THE_WIRE: usize = 64;
/// The longest text; the gateway accepts frames up to 1 MiB (G11).
const LONGEST: usize = 1 << 20;

/// The messages, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<UserMessage>,
    /// How many of the first were sent on the current socket.
    sent: usize,
}

impl Outbox {
    /// Queues a message until it is settled. One for which the gateway would close the socket is
    /// refused here: resent, it would close every later socket, too.
    pub(super) fn push(&mut self, message: UserMessage) -> Result<(), Refused> {
        if !(1..=128).contains(&message.client_turn_id.len()) {
            return Err(Refused::BadId);
        }
        if length(&message) > LONGEST {
            return Err(Refused::TooLong);
        }
        if self.waiting.len() >= MOST {
            return Err(Refused::Full);
        }
        self.waiting.push_back(message);
        Ok(())
    }

    /// Removes a message that the gateway accepted or refused. Whether there was one.
    pub(super) fn settle(&mut self, client_turn_id: &str) -> bool {
        let before = self.waiting.len();
        let is_it = |message: &UserMessage| message.client_turn_id == client_turn_id;
        while let Some(at) = self.waiting.iter().position(is_it) {
            self.waiting.remove(at);
            self.sent -= usize::from(at < self.sent);
        }
        self.waiting.len() < before
    }

    /// A new socket: all messages have to be sent again.
    pub(super) fn reconnected(&mut self) {
        self.sent = 0;
    }

    /// The next message to be sent, if another may be in flight. It counts as sent.
    pub(super) fn next(&mut self) -> Option<UserMessage> {
        let next = self.waiting.get(self.sent).filter(|_| self.sent < ON_THE_WIRE)?.clone();
        self.sent += 1;
        Some(next)
    }

    /// Removes the longest message. The gateway closed because a message was too large and does not
    /// say which: if it was one of these, it was the longest.
    pub(super) fn give_up_longest(&mut self) -> Option<UserMessage> {
        let lengths = self.waiting.iter().map(length).enumerate();
        let (at, _) = lengths.max_by_key(|(_, length)| *length)?;
        self.sent -= usize::from(at < self.sent);
        self.waiting.remove(at)
    }
}

fn length(message: &UserMessage) -> usize {
    message.content.as_str().map_or(0, str::len)
}

/// A message of plain text.
pub(super) fn message(text: String, client_turn_id: String, model: Option<String>) -> UserMessage {
    UserMessage { content: Value::String(text), client_turn_id, model }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(outbox: &Outbox) -> Vec<&str> {
        outbox.waiting.iter().map(|m| m.client_turn_id.as_str()).collect()
    }

    fn named(id: &str) -> UserMessage {
        message("hi".into(), id.into(), None)
    }

    #[test]
    fn messages_wait_in_order_until_they_are_settled() {
        let mut outbox = Outbox::default();
        for id in ["a", "b", "c"] {
            assert_eq!(outbox.push(named(id)), Ok(()));
        }
        outbox.settle("b");
        outbox.settle("somebody else's");
        assert_eq!(ids(&outbox), ["a", "c"]);
    }

    #[test]
    fn sbp_l2_18_sixty_four_messages_are_on_the_wire_and_the_rest_is_held_in_order() {
        let mut outbox = Outbox::default();
        for n in 0..ON_THE_WIRE + 2 {
            outbox.push(named(&n.to_string())).unwrap();
        }
        let sent: Vec<_> = std::iter::from_fn(|| outbox.next()).collect();
        assert_eq!(sent.len(), ON_THE_WIRE);
        assert_eq!(sent[63].client_turn_id, "63");
        outbox.settle("7");
        assert_eq!(outbox.next().unwrap().client_turn_id, "64");
        assert_eq!(outbox.next(), None);
        outbox.reconnected();
        assert_eq!(outbox.next().unwrap().client_turn_id, "0", "again, from the first");
    }

    #[test]
    fn more_than_anyone_means_is_refused_until_one_is_settled() {
        let mut outbox = Outbox::default();
        for n in 0..MOST {
            assert_eq!(outbox.push(named(&n.to_string())), Ok(()));
        }
        assert_eq!(outbox.push(named("more")), Err(Refused::Full));
        outbox.settle("7");
        assert_eq!(outbox.push(named("more")), Ok(()));
    }

    #[test]
    fn what_the_gateway_could_only_close_on_is_refused() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.push(named("")), Err(Refused::BadId));
        assert_eq!(outbox.push(named(&"x".repeat(129))), Err(Refused::BadId));
        let long = message("x".repeat(LONGEST + 1), "a".into(), None);
        assert_eq!(outbox.push(long), Err(Refused::TooLong));
        assert_eq!(ids(&outbox), [""; 0]);
    }

    #[test]
    fn the_longest_message_is_given_up() {
        let mut outbox = Outbox::default();
        for (id, text) in [("a", "short"), ("b", "the longest"), ("c", "longer")] {
            outbox.push(message(text.into(), id.into(), None)).unwrap();
        }
        assert_eq!(outbox.give_up_longest().unwrap().client_turn_id, "b");
        assert_eq!(ids(&outbox), ["a", "c"]);
        assert_eq!(Outbox::default().give_up_longest(), None);
    }
}
