//! Turns that clients send again on their own (G3).
//!
//! An SDK repeats a request after a timeout or a broken connection, without an idempotency key, while
//! the first one is still running or already answered. Such a request joins the earlier turn: if body
//! and credential are the same, and either the client says that it is a retry, or the connection of
//! the first request broke before it was answered. The same words from a caller that got its answer
//! are a new turn: see [`table`] for the rules.
//!
//! In memory: after a restart, unfinished turns are registered again when they are loaded. Replicas tell
//! each other when a connection breaks, and ask each other when a client says that it retries.

mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::session::{Outcome, RequestDigest};
use tokio_util::sync::CancellationToken;

use self::table::Table;

/// The recent turns of HTTP callers, by their request.
#[derive(Debug)]
pub(crate) struct Retries {
    table: Mutex<Table>,
}

/// An earlier turn of the same request.
#[derive(Debug, PartialEq)]
pub(crate) struct Earlier {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) made: bool,
    /// Its answer, if it has ended.
    pub(crate) outcome: Option<Arc<Outcome>>,
}

impl Retries {
    pub(super) fn new(window: Duration) -> Self {
        Self { table: Mutex::new(Table::new(window)) }
    }

    /// The turn that this request joins. `retried`: the client says that it sends it again.
    pub(crate) fn earlier(&self, request: RequestDigest, retried: bool) -> Option<Earlier> {
        self.table().earlier(request, retried, Instant::now())
    }

    /// A request arrived that joins no other: an earlier one like it is forgotten. `half_closed` is
    /// cancelled when its caller closes its sending side.
    pub(crate) fn arrived(
        &self,
        request: RequestDigest,
        turn: TurnId,
        half_closed: CancellationToken,
    ) {
        self.table().arrived(request, turn, half_closed, Instant::now());
    }

    /// A request joined the turn, and waits for its answer.
    pub(crate) fn joined(
        &self,
        request: RequestDigest,
        turn: TurnId,
        half_closed: CancellationToken,
    ) {
        self.table().joined(request, turn, half_closed);
    }

    /// A turn was accepted; `recovered`: by an earlier process, so its caller is gone.
    pub(super) fn accepted(
        &self,
        request: RequestDigest,
        ids: (SessionId, TurnId),
        made: bool,
        recovered: bool,
    ) {
        self.table().accepted(request, ids, made, recovered, Instant::now());
    }

    /// A caller's connection broke before it was answered.
    pub(super) fn lost(&self, request: RequestDigest, turn: TurnId) {
        self.table().lost(request, turn, Instant::now());
    }

    /// The session of a turn that was accepted, and whether the turn created it.
    pub(super) fn accepted_as(
        &self,
        request: RequestDigest,
        turn: TurnId,
    ) -> Option<(SessionId, bool)> {
        self.table().accepted_as(request, turn)
    }

    /// The same at another replica.
    pub(super) fn lost_elsewhere(
        &self,
        request: RequestDigest,
        ids: (SessionId, TurnId),
        made: bool,
    ) {
        self.table().lost_elsewhere(request, ids, made, Instant::now());
    }

    /// A whole answer was handed to a caller's connection. `doubtful`: the caller had closed its
    /// sending side, and may be gone.
    pub(crate) fn answered(&self, request: RequestDigest, turn: TurnId, doubtful: bool) {
        self.table().answered(request, turn, doubtful, Instant::now());
    }

    /// A caller was sent an error. The turn may go on nevertheless.
    pub(crate) fn refused(&self, request: RequestDigest, turn: TurnId) {
        self.table().refused(request, turn);
    }

    /// A turn has ended. One that failed is forgotten: a retry runs it again.
    pub(super) fn ended(
        &self,
        request: RequestDigest,
        turn: TurnId,
        outcome: Option<Arc<Outcome>>,
    ) {
        self.table().ended(request, turn, outcome, Instant::now());
    }

    /// The actor of a running turn ended: its end may be reported elsewhere.
    pub(super) fn stopped(&self, request: RequestDigest, turn: TurnId) {
        self.table().stopped(request, turn, Instant::now());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
