//! Hands the daemons of a drained relay over to others.
//!
//! Each daemon is closed with 1012; it asks the control plane for another relay, and connects there.
//! A moment later its clients are told that their sessions are over: they ask, too, and are sent
//! after it. Tunnels go on in the new sessions. Not all at once: for each there is a request to the
//! control plane, and a handshake elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;

/// The pause between two steps.
const STEP: Duration = Duration::from_millis(250);
/// How long a daemon has to be at its new relay before its clients follow.
pub(crate) const HEAD_START: Duration = Duration::from_secs(1);

/// Hands over while the control plane says that this relay is drained. Never returns.
pub(crate) async fn hand_over(shared: Arc<Shared>) {
    // How many daemons there were when the draining began.
    let mut begun: Option<usize> = None;
    loop {
        tokio::time::sleep(STEP).await;
        if !shared.revocations.is_draining() {
            begun = None;
            continue;
        }
        let all = *begun.get_or_insert_with(|| {
            let all = shared.daemons.online();
            tracing::info!(daemons = all, "drained: daemons are handed over to other relays");
            all
        });
        let most = per_step(all, shared.config.limits.handover);
        shared.daemons.hand_over(most, Instant::now(), &shared.meters);
    }
}

/// How many daemons are closed in one step, so that all of them are within this time.
fn per_step(daemons: usize, within: Duration) -> usize {
    let steps = (within.as_millis() / STEP.as_millis()).max(1);
    daemons.div_ceil(usize::try_from(steps).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_handed_over_in_time_and_at_least_one_in_a_step() {
        let minute = Duration::from_secs(60);
        assert_eq!(per_step(0, minute), 1);
        assert_eq!(per_step(240, minute), 1);
        assert_eq!(per_step(241, minute), 2);
        assert_eq!(per_step(24_000, minute), 100);
        assert_eq!(per_step(7, Duration::ZERO), 7);
    }
}
