//! Ends sessions that are too old.
//!
//! A session outlives its token, so without this it would stay for as long as both ends keep their
//! connections, whatever became of the key it was opened with. Its client opens another one with a
//! new token; tunnels go on in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::daemon_table::DaemonTable;
use super::meters::Meters;

/// The longest and the shortest pause between two looks at all sessions.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Looks at all sessions from time to time and ends those that are too old. One task instead of a
/// timer for each session: nobody waits for the exact moment. Never returns, unless `age` is zero.
pub(crate) async fn end_aged(age: Duration, daemons: Arc<DaemonTable>, meters: Arc<Meters>) {
    if age.is_zero() {
        return;
    }
    let pause = (age / 50).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        tokio::time::sleep(pause).await;
        daemons.end_aged(Instant::now(), &meters);
    }
}
