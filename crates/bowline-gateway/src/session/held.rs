//! Waiting while a session is reserved for another gateway (SBP-L6-05).
//!
//! What is said to it meanwhile is not accepted and not refused: its sender waits here, and asks again, until the
//! session has moved, is not reserved any more, or the reservation's time is over. So nothing that was said in
//! between is run at both gateways, and a busy session cannot prevent its own move.
//!
//! Bounded: in number by the process, and in time by the reservation and [`LONGEST`].

use std::time::Duration;

use bowline_sbp::error::{Code, Failure};
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::registry::LiveSessions;

/// The most senders that wait in this process.
pub(super) const MOST: usize = 1024;
/// The longest that one waits, however often a reservation is renewed.
const LONGEST: Duration = Duration::from_secs(300);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// One sender's wait.
#[derive(Debug, Default)]
pub(super) struct HeldWait(Option<Waiting>);

#[derive(Debug)]
struct Waiting {
    gives_up_at: Instant,
    pause: Duration,
    _place: OwnedSemaphorePermit,
}

impl HeldWait {
    /// The session was held until then when it was asked last: waits before the next time, or gives up.
    pub(super) async fn pause(
        &mut self,
        sessions: &LiveSessions,
        until: Timestamp,
    ) -> Result<(), Failure> {
        let waiting = match &mut self.0 {
            Some(waiting) => waiting,
            None => {
                let place = sessions.held.clone().try_acquire_owned().map_err(|_| busy(until))?;
                let gives_up_at = Instant::now() + LONGEST;
                self.0.insert(Waiting { gives_up_at, pause: FIRST_PAUSE, _place: place })
            }
        };
        if Instant::now() >= waiting.gives_up_at {
            return Err(busy(until));
        }
        let stopped = sessions.stop.run_until_cancelled(tokio::time::sleep(waiting.pause)).await;
        waiting.pause = (waiting.pause * 2).min(LONGEST_PAUSE);
        stopped.ok_or_else(|| busy(until))
    }
}

fn busy(until: Timestamp) -> Failure {
    let why = format!(
        "the session is about to move to another gateway and takes no turns until {until}; try again \
         with the same Idempotency-Key"
    );
    Failure { retry_after: Some(5), ..Failure::new(Code::NotNow, why) }
}
