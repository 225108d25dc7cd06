//! The history, as all clients of a test write it together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bowline_checker::History;

/// Shared by all clients. Each writes before it acts and after it learned, under one lock: the
/// order of events is an order in which they really happened.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Shared>);

#[derive(Default)]
struct Shared {
    history: Mutex<History>,
    restarts: AtomicU64,
    names: AtomicU64,
}

impl Record {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut History) -> T) -> T {
        act(&mut self.0.history.lock().unwrap())
    }

    /// The gateway is gone, and the next one not started yet.
    pub(crate) fn restarted(&self) {
        self.with(History::restarted);
        self.0.restarts.fetch_add(1, Ordering::SeqCst);
    }

    /// A connection made while this stays the same leads to the same process.
    pub(crate) fn restarts(&self) -> u64 {
        self.0.restarts.load(Ordering::SeqCst)
    }

    /// A number that nobody else in this test has: texts of asks must differ.
    pub(crate) fn unique(&self) -> u64 {
        self.0.names.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.with(|history| history.acknowledged())
    }
}
