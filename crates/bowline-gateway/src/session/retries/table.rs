//! Which request joins which turn. Pure: callers pass `now`.
//!
//! | the turn's caller | a request that says it is a retry | any other |
//! |---|---|---|
//! | waits | joins | is a new turn |
//! | waits, but has closed its sending side | joins | joins |
//! | its connection broke | joins | joins |
//! | was answered after it had closed its sending side | joins | joins for [`IN_FLIGHT`] |
//! | was answered | joins | is a new turn |
//!
//! A retry joins an answered turn, too: that an answer was handed to the connection does not mean
//! that it arrived.
//!
//! Invariants
//! - A request that joins nothing takes the place of the earlier one when it arrives.
//! - A running turn is never dropped. Others are, some time after their end or the loss of their
//!   caller, and the oldest first if there are too many.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::session::{Done, Outcome, RequestDigest};
use tokio_util::sync::CancellationToken;

use super::Earlier;

/// The most turns that are remembered besides running ones, and the most bytes of their answers.
const MOST: usize = 4096;
const MOST_BYTES: usize = 16 << 20;
/// How long after its answer a caller that had closed its sending side may still be one that is gone.
const IN_FLIGHT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Table {
    window: Duration,
    tried: HashMap<RequestDigest, Tried>,
    /// All but running turns, by their place: the oldest first.
    idle: BTreeMap<u64, RequestDigest>,
    places: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Tried {
    turn: TurnId,
    /// None until the turn is accepted.
    session: Option<SessionId>,
    /// The turn created its session.
    made: bool,
    delivery: Delivery,
    /// Cancelled when the latest caller closes its sending side.
    half_closed: CancellationToken,
    outcome: Option<Arc<Outcome>>,
    /// None while the turn runs.
    idle: Option<Idle>,
}

/// Since when a turn is not running, and its place among those.
#[derive(Debug, Clone, Copy)]
struct Idle {
    place: u64,
    since: Instant,
}

/// What became of the callers of a turn.
#[derive(Debug, Clone, Copy)]
enum Delivery {
    /// The latest one waits.
    Waiting,
    /// The connection broke before the answer was sent.
    Lost,
    /// The answer was sent to a caller that may be gone.
    Doubtful(Instant),
    /// The answer was sent.
    Answered,
}

impl Table {
    pub(super) fn new(window: Duration) -> Self {
        let (tried, idle) = (HashMap::new(), BTreeMap::new());
        Self { window, tried, idle, places: 0, bytes: 0 }
    }

    pub(super) fn earlier(
        &self,
        request: RequestDigest,
        retried: bool,
        now: Instant,
    ) -> Option<Earlier> {
        let tried = self.tried.get(&request)?;
        let is_old = tried.idle.is_some_and(|idle| now - idle.since >= self.window);
        let session = tried.session.filter(|_| !is_old && tried.joins(retried, now))?;
        let outcome = tried.outcome.clone();
        Some(Earlier { session, turn: tried.turn, made: tried.made, outcome })
    }

    pub(super) fn arrived(
        &mut self,
        request: RequestDigest,
        turn: TurnId,
        half_closed: CancellationToken,
        now: Instant,
    ) {
        self.insert(request, Tried::new(turn, half_closed));
        self.rest(request, now);
    }

    pub(super) fn joined(
        &mut self,
        request: RequestDigest,
        turn: TurnId,
        half_closed: CancellationToken,
    ) {
        if let Some(tried) = self.of(request, turn) {
            tried.delivery = Delivery::Waiting;
            tried.half_closed = half_closed;
        }
    }

    pub(super) fn accepted(
        &mut self,
        request: RequestDigest,
        (session, turn): (SessionId, TurnId),
        made: bool,
        recovered: bool,
        now: Instant,
    ) {
        match self.tried.get(&request) {
            // The connection may have broken before the turn was accepted.
            Some(tried) if tried.turn == turn => {}
            // A later request has taken its place, and is about to be accepted.
            Some(tried) if tried.session.is_none() && !recovered => return,
            _ => self.insert(request, Tried::new(turn, CancellationToken::new())),
        }
        self.run(request);
        if let Some(tried) = self.of(request, turn) {
            tried.session = Some(session);
            tried.made = made;
            if recovered {
                tried.delivery = Delivery::Lost;
            }
        }
        self.tidy(now);
    }

    pub(super) fn lost(&mut self, request: RequestDigest, turn: TurnId, now: Instant) {
        if !self.tried.contains_key(&request) {
            self.insert(request, Tried::new(turn, CancellationToken::new()));
            self.rest(request, now);
        }
        let Some(tried) = self.of(request, turn) else { return };
        // Another caller of the turn has the answer.
        if matches!(tried.delivery, Delivery::Answered) {
            return;
        }
        tried.delivery = Delivery::Lost;
        if tried.idle.is_some() {
            self.rest(request, now);
        }
    }

    /// The session of a turn that was accepted, and whether it created the session.
    pub(super) fn accepted_as(
        &mut self,
        request: RequestDigest,
        turn: TurnId,
    ) -> Option<(SessionId, bool)> {
        let tried = self.of(request, turn)?;
        Some((tried.session?, tried.made))
    }

    /// At another replica, a caller's connection broke before it was answered.
    pub(super) fn lost_elsewhere(
        &mut self,
        request: RequestDigest,
        (session, turn): (SessionId, TurnId),
        made: bool,
        now: Instant,
    ) {
        // A later one came here.
        if self.tried.contains_key(&request) {
            return;
        }
        let tried = Tried::new(turn, CancellationToken::new());
        let session = Some(session);
        self.insert(request, Tried { session, made, delivery: Delivery::Lost, ..tried });
        self.rest(request, now);
    }

    pub(super) fn answered(
        &mut self,
        request: RequestDigest,
        turn: TurnId,
        doubtful: bool,
        now: Instant,
    ) {
        let Some(tried) = self.of(request, turn) else { return };
        match (doubtful, tried.delivery) {
            (true, Delivery::Answered) => {}
            (true, _) => tried.delivery = Delivery::Doubtful(now),
            (false, _) => tried.delivery = Delivery::Answered,
        }
    }

    pub(super) fn refused(&mut self, request: RequestDigest, turn: TurnId) {
        if self.of(request, turn).is_some_and(|tried| tried.session.is_none()) {
            self.remove(request);
        }
    }

    pub(super) fn ended(
        &mut self,
        request: RequestDigest,
        turn: TurnId,
        outcome: Option<Arc<Outcome>>,
        now: Instant,
    ) {
        let Some(tried) = self.of(request, turn) else { return };
        match outcome.filter(|outcome| outcome.is_ok()) {
            Some(outcome) => {
                let before = tried.bytes();
                tried.outcome = Some(outcome);
                let bytes = tried.bytes();
                self.bytes = self.bytes - before + bytes;
                self.rest(request, now);
            }
            None => self.remove(request),
        }
    }

    pub(super) fn stopped(&mut self, request: RequestDigest, turn: TurnId, now: Instant) {
        if self.of(request, turn).is_some() {
            self.rest(request, now);
        }
    }

    /// The entry of that turn, unless another one has taken its place.
    fn of(&mut self, request: RequestDigest, turn: TurnId) -> Option<&mut Tried> {
        self.tried.get_mut(&request).filter(|tried| tried.turn == turn)
    }

    fn insert(&mut self, request: RequestDigest, tried: Tried) {
        self.remove(request);
        self.tried.insert(request, tried);
    }

    fn remove(&mut self, request: RequestDigest) {
        self.run(request);
        if let Some(tried) = self.tried.remove(&request) {
            self.bytes -= tried.bytes();
        }
    }

    /// It runs: it is not dropped.
    fn run(&mut self, request: RequestDigest) {
        let tried = self.tried.get_mut(&request);
        if let Some(Idle { place, .. }) = tried.and_then(|tried| tried.idle.take()) {
            self.idle.remove(&place);
        }
    }

    /// It does not run: it is dropped after a while.
    fn rest(&mut self, request: RequestDigest, now: Instant) {
        self.run(request);
        let Some(tried) = self.tried.get_mut(&request) else { return };
        self.places += 1;
        tried.idle = Some(Idle { place: self.places, since: now });
        self.idle.insert(self.places, request);
        self.tidy(now);
    }

    /// Drops what is too old or too much.
    fn tidy(&mut self, now: Instant) {
        while let Some((_, request)) = self.idle.first_key_value() {
            let request = *request;
            let full = self.idle.len() > MOST || self.bytes > MOST_BYTES;
            let since = self.tried.get(&request).and_then(|tried| tried.idle);
            if !full && since.is_some_and(|idle| now - idle.since < self.window) {
                return;
            }
            self.remove(request);
        }
    }
}

impl Tried {
    fn new(turn: TurnId, half_closed: CancellationToken) -> Self {
        Self {
            turn,
            session: None,
            made: false,
            delivery: Delivery::Waiting,
            half_closed,
            outcome: None,
            idle: None,
        }
    }

    /// Whether a request like this one joins it. `retried`: the client says that it is a retry.
    fn joins(&self, retried: bool, now: Instant) -> bool {
        match self.delivery {
            Delivery::Waiting => retried || self.half_closed.is_cancelled(),
            // Whoever asks again after a turn was cancelled wants another answer.
            Delivery::Lost => retried || !self.was_cut(),
            Delivery::Doubtful(at) => retried || now - at < IN_FLIGHT && !self.was_cut(),
            Delivery::Answered => retried,
        }
    }

    /// Whether the turn has ended without a complete answer.
    fn was_cut(&self) -> bool {
        self.done().is_some_and(|done| done.info.turn_status != TurnStatus::Complete)
    }

    fn done(&self) -> Option<&Done> {
        self.outcome.as_deref().and_then(|outcome| outcome.as_ref().ok())
    }

    fn bytes(&self) -> usize {
        let size =
            |done: &Done| done.completion.len() + done.closing.as_ref().map_or(0, String::len);
        self.done().map_or(0, size)
    }
}

#[cfg(test)]
mod tests;
