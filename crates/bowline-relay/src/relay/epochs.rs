//! The greatest epoch of each daemon's presence that this relay has seen.
//!
//! A daemon's slot knows the epoch of its connection, but is removed when nobody is connected. A
//! process that was replaced meanwhile still has a valid token of an older epoch: it must not come in
//! with it. Each epoch is remembered for as long as its own token is good; older ones were issued
//! before it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bowline_sbrp::id::DaemonId;
use bowline_sbrp::token::DaemonPass;

/// Seconds by which a token may be older than it says: relays allow 30 s of skew.
const SLACK: u64 = 60;
/// At this number of daemons, those whose tokens have expired are forgotten.
const TIDY_AT_LEAST: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Epochs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The epoch, and until when it is remembered, in seconds since 1970.
    seen: HashMap<DaemonId, (u64, u64)>,
    tidy_at: usize,
}

impl Epochs {
    /// Whether no later presence of the daemon was here; remembers this one. `now` is in seconds
    /// since 1970.
    pub(crate) fn admit(&self, pass: &DaemonPass, now: u64) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = pass.expires_at.saturating_add(SLACK);
        if let Some((epoch, kept)) = state.seen.get_mut(&pass.daemon)
            && *kept > now
        {
            if *epoch > pass.epoch {
                return false;
            }
            (*epoch, *kept) = (pass.epoch, (*kept).max(until));
            return true;
        }
        // Without epochs there is nothing to remember.
        if pass.epoch == 0 {
            return true;
        }
        if state.seen.len() >= state.tidy_at.max(TIDY_AT_LEAST) {
            state.seen.retain(|_, (_, kept)| *kept > now);
            state.tidy_at = state.seen.len() * 2;
        }
        state.seen.insert(pass.daemon.clone(), (pass.epoch, until));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(daemon: &str, epoch: u64, expires_at: u64) -> DaemonPass {
        DaemonPass {
            daemon: DaemonId::new(daemon),
            owner: None,
            epoch,
            issued_at: 0,
            expires_at,
            resumable: true,
            concurrent_sessions: None,
        }
    }

    #[test]
    fn sbrp_relay_18_a_token_of_an_older_epoch_is_refused_for_as_long_as_it_could_be_good() {
        let epochs = Epochs::default();
        assert!(epochs.admit(&pass("d", 8, 1000), 500));
        assert!(!epochs.admit(&pass("d", 7, 900), 500));
        assert!(!epochs.admit(&pass("d", 0, 900), 500), "no epoch is the oldest");
        assert!(epochs.admit(&pass("d", 8, 1000), 500), "a reconnect");
        assert!(epochs.admit(&pass("other", 1, 1000), 500));
        assert!(!epochs.admit(&pass("d", 7, 900), 1000 + SLACK - 1));
        assert!(epochs.admit(&pass("d", 7, 2000), 1000 + SLACK), "all of that time have expired");
    }

    #[test]
    fn daemons_that_went_are_forgotten() {
        let epochs = Epochs::default();
        for n in 0..20_000 {
            assert!(epochs.admit(&pass(&format!("d{n}"), 1, n), n));
            assert!(epochs.0.lock().unwrap().seen.len() <= TIDY_AT_LEAST);
        }
    }
}
