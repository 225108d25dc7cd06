//! An ordered, reliable link over a bus that loses, repeats and reorders messages (G17).
//!
//! Two of these connect the replica that holds a socket with the replica that owns the session:
//! commands go one way, replies the other. [`LinkSender`] numbers what is sent and sends it again until
//! it is acknowledged; [`Intake`] says which of what arrives is to be taken. Acknowledgements are
//! cumulative: one number says that everything up to it was taken.
//!
//! How soon something is sent again follows how long acknowledgements take, and doubles each time: a bus
//! that is slow, or full, is not given more to carry because of that.
//!
//! What is due goes in messages of about [`MESSAGE`] bytes: a large one is neither written in the time that a bus
//! takes for a batch, nor again and again with each small one behind it.
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

/// The most bytes of items that are due at once, unless one alone has more.
const MESSAGE: usize = 1 << 20;

/// How soon what is not acknowledged is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The longest first wait. It doubles with every repetition, until something is acknowledged.
    pub first: Duration,
    /// The longest wait of all. Longer than an acknowledgement takes over the slowest bus that is of use.
    pub longest: Duration,
}

/// The sending end: what was sent and is not acknowledged.
#[derive(Debug)]
pub struct LinkSender<T> {
    /// The number of the first of `waiting`.
    base: u64,
    waiting: VecDeque<Waiting<T>>,
    pace: Pace,
    /// Where in the upper half of a wait this link sends again.
    spread: u32,
    /// How long the newest acknowledgement took.
    round_trip: Duration,
    /// How often all was sent again since something was acknowledged.
    repetitions: u32,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    bytes: usize,
    since: Instant,
    /// When it was sent first and last, if it was.
    sent: Option<(Instant, Instant)>,
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

impl<T: Clone> LinkSender<T> {
    /// `spread`: a random number. Many links lose the same bus at the same moment; they do not send
    /// everything again at the same moment.
    pub fn new(pace: Pace, spread: u32) -> Self {
        Self {
            base: 1,
            waiting: VecDeque::new(),
            pace,
            spread,
            round_trip: Duration::ZERO,
            repetitions: 0,
        }
    }

    /// Adds an item of about that size and returns its number. It is due at once.
    pub fn push(&mut self, item: T, bytes: usize, now: Instant) -> u64 {
        self.waiting.push_back(Waiting { item, bytes, since: now, sent: None });
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

    /// The items that are to be sent now, in order, with their numbers, as many as one message takes. They count as
    /// sent. More may be due at once: those that were never sent, and others when these are acknowledged.
    pub fn due(&mut self, now: Instant) -> Vec<(u64, T)> {
        // What is behind a lost message was ignored by the receiver, so all of it goes again.
        let oldest = self.waiting.front().and_then(|first| first.sent);
        let again = oldest.is_some_and(|(_, last)| now >= last + self.wait());
        if again {
            self.repetitions = self.repetitions.saturating_add(1);
        }
        let (mut due, mut bytes) = (Vec::new(), 0);
        for (number, waiting) in (self.base..).zip(&mut self.waiting) {
            if again || waiting.sent.is_none() {
                bytes += waiting.bytes;
                if bytes > MESSAGE && !due.is_empty() {
                    break;
                }
                waiting.sent = Some((waiting.sent.map_or(now, |(first, _)| first), now));
                due.push((number, waiting.item.clone()));
            }
        }
        due
    }

    /// How long what was sent waits for its acknowledgement before it is sent again.
    fn wait(&self) -> Duration {
        let Pace { first, longest } = self.pace;
        let half = first.saturating_mul(2_u32.saturating_pow(self.repetitions)).min(longest) / 2;
        let wait = half + half.mul_f64(f64::from(self.spread) / f64::from(u32::MAX));
        // What takes its usual time is not lost.
        wait.max((self.round_trip * 3 / 2).min(longest))
    }

    /// How long the newest acknowledgement took; zero before the first.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// The other end is heard again after a silence: what waits goes soon.
    pub fn heard_again(&mut self) {
        self.repetitions = 0;
    }

    /// When something is due again. What was never sent is due now.
    pub fn deadline(&self) -> Option<Instant> {
        let first = self.waiting.front()?;
        let unsent = self.waiting.back().is_some_and(|last| last.sent.is_none());
        match first.sent {
            Some((_, last)) if !unsent => Some(last + self.wait()),
            _ => Some(first.since),
        }
    }

    /// Since when the oldest item waits to be acknowledged.
    pub fn waits_since(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.since)
    }

    /// Everything up to `took` was taken.
    pub fn acknowledged(&mut self, took: u64, now: Instant) {
        let mut newest = None;
        while self.base <= took
            && let Some(taken) = self.waiting.pop_front()
        {
            self.base += 1;
            newest = taken.sent.or(newest);
        }
        if let Some((first, last)) = newest {
            let since_first = now.saturating_duration_since(first);
            let since_last = now.saturating_duration_since(last);
            let usual = self.round_trip;
            // Which of several copies was acknowledged is unknown: the last, if that is about as long ago
            // as is usual, and not if it is too short a time.
            let is_last = !usual.is_zero() && since_last >= usual / 2;
            self.round_trip = if first != last && is_last {
                usual.clamp(since_last, since_first)
            } else {
                since_first
            };
            self.repetitions = 0;
        }
    }

    /// There is another receiver, which knows nothing: everything is due again.
    pub fn restart(&mut self) {
        self.waiting.iter_mut().for_each(|waiting| waiting.sent = None);
        self.repetitions = 0;
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
