//! How long to wait before the database is tried again after it could not be reached.
//!
//! Apart, because the pool, the committer and the lease each have connections of their own and must not
//! hammer a database that is just starting.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The first wait, which doubles up to the longest.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Grows with each failure in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    wait: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// Waits until the next try may be made.
    pub(super) async fn wait(&self) {
        let until = self.locked().until;
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }

    /// A try failed.
    pub(super) fn failed(&self) {
        let mut state = self.locked();
        state.wait = (state.wait * 2).clamp(FIRST, LONGEST);
        state.until = Some(Instant::now() + state.wait);
    }

    /// A try succeeded.
    pub(super) fn succeeded(&self) {
        *self.locked() = State::default();
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_grow_to_a_bound_and_end_with_success() {
        let backoff = Backoff::default();
        let waited = async || {
            let before = Instant::now();
            backoff.wait().await;
            before.elapsed().as_millis()
        };
        assert_eq!(waited().await, 0);
        let mut all = Vec::new();
        for _ in 0..7 {
            backoff.failed();
            all.push(waited().await);
        }
        assert_eq!(all, [50, 100, 200, 400, 800, 1000, 1000]);
        backoff.failed();
        backoff.succeeded();
        assert_eq!(waited().await, 0);
    }
}
