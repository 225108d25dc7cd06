//! An ordered, reliable link over a bus that loses, repeats and reorders messages (G17).
//!
//! Two of these connect the replica that holds a socket with the replica that owns the session:
//! commands go one way, replies the other. [`Outbox`] numbers what is sent and sends it again until
//! it is acknowledged; [`Intake`] says which of what arrives is to be taken. Acknowledgements are
//! cumulative: one number says that everything up to it was taken.
//!
//! Pure: callers pass `now`, and carry messages and acknowledgements.
//!
//! | arrives | the receiver |
//! |---|---|
//! | the number after the last one it took | takes it |
//! | a later number, the lowest that the sender still sends (`base`) | takes it: the sender knows the rest as taken |
//! | a number that it took | ignores it, and acknowledges again |
//! | any other | ignores it: what is missing comes again |
//!
//! Invariants
//! - A receiver takes numbers in ascending order, each once.
//! - It skips only numbers that an earlier receiver acknowledged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The sending end: what was sent and is not acknowledged.
#[derive(Debug)]
pub struct Outbox<T> {
    /// The number of the first of `waiting`.
    base: u64,
    waiting: VecDeque<Waiting<T>>,
    pause: Duration,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    since: Instant,
    /// When it was sent last, if it was.
    sent: Option<Instant>,
}

/// The receiving end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Intake {
    took: u64,
}

/// What the receiver does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Take,
    /// It was taken before: acknowledge it again.
    Again,
    /// One before it is missing.
    Early,
}

impl<T: Clone> Outbox<T> {
    /// `pause`: after which what is not acknowledged is sent again.
    pub fn new(pause: Duration) -> Self {
        Self { base: 1, waiting: VecDeque::new(), pause }
    }

    /// Adds an item and returns its number. It is due at once.
    pub fn push(&mut self, item: T, now: Instant) -> u64 {
        self.waiting.push_back(Waiting { item, since: now, sent: None });
        self.base + self.waiting.len() as u64 - 1
    }

    /// The lowest number that is not acknowledged, or the next one if all are. Sent with every
    /// message.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// How many items are not acknowledged.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The items that are to be sent now, in order, with their numbers. They count as sent.
    pub fn due(&mut self, now: Instant) -> Vec<(u64, T)> {
        // What is behind a lost message was ignored by the receiver, so all of it goes again.
        let oldest = self.waiting.front().and_then(|first| first.sent);
        let again = oldest.is_some_and(|sent| now >= sent + self.pause);
        let mut due = Vec::new();
        for (number, waiting) in (self.base..).zip(&mut self.waiting) {
            if again || waiting.sent.is_none() {
                waiting.sent = Some(now);
                due.push((number, waiting.item.clone()));
            }
        }
        due
    }

    /// When something is due again. What was never sent is due now.
    pub fn deadline(&self) -> Option<Instant> {
        let first = self.waiting.front()?;
        let unsent = self.waiting.back().is_some_and(|last| last.sent.is_none());
        match first.sent {
            Some(sent) if !unsent => Some(sent + self.pause),
            _ => Some(first.since),
        }
    }

    /// Since when the oldest item waits to be acknowledged.
    pub fn waits_since(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.since)
    }

    /// Everything up to `took` was taken.
    pub fn acknowledged(&mut self, took: u64) {
        while self.base <= took && self.waiting.pop_front().is_some() {
            self.base += 1;
        }
    }

    /// There is another receiver, which knows nothing: everything is due again.
    pub fn restart(&mut self) {
        self.waiting.iter_mut().for_each(|waiting| waiting.sent = None);
    }
}

impl Intake {
    /// A message with that number arrived. `base`: the lowest number that its sender still sends.
    pub fn arrived(&mut self, number: u64, base: u64) -> Arrival {
        if number <= self.took {
            return Arrival::Again;
        }
        if number != self.took + 1 && number != base {
            return Arrival::Early;
        }
        self.took = number;
        Arrival::Take
    }

    /// Everything up to here was taken: what is acknowledged.
    pub fn took(&self) -> u64 {
        self.took
    }
}

#[cfg(test)]
mod tests;
