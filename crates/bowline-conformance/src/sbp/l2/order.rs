//! Turns that are asked for at the same time.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use crate::check::{Check, Need, must, ours, run};
use crate::model::Act;
use crate::trial::Trial;
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L2-18",
        "turns of a session run one at a time",
        "Turns of one session run one at a time, in arrival order",
        run!(one_at_a_time),
    )
    .needing(&[Need::Model]),
    ours(
        "SBP-L2-18b",
        "a bounded number of turns wait, then 409",
        "At most 64 wait, then HTTP gets 409 SBP_SESSION_CONFLICT",
        run!(bounded),
    )
    .needing(&[Need::Model]),
];

async fn one_at_a_time(t: &Trial) -> Ended {
    let session = t.session().await?;
    let first = t.script(vec![Act::Hold, Act::say("The first answer.")])?;
    let second = t.saying("The second answer.")?;
    let running = t.begin(&session, &first.prompt());
    first.asked(1).await?;
    let waiting = t.begin(&session, &second.prompt());
    let early = second.asked_within(1, EARLY).await.is_some();
    first.open();
    running.turn().await?;
    waiting.turn().await?;
    let expected = "the model asked for the second turn when the first has ended";
    t.holds(!early, "two turns at once", expected, "it was asked while the first ran")?;
    let asked = second.asked(1).await?;
    let knows = asked.count(&first.text()) == 1;
    let expected = "the first answer in the history of the second turn";
    t.holds(knows, "two turns at once", expected, &asked.body.to_string())
}

async fn bounded(t: &Trial) -> Ended {
    let session = t.session().await?;
    let first = t.script(vec![Act::Hold, Act::say("The first answer.")])?;
    let running = t.begin(&session, &first.prompt());
    first.asked(1).await?;
    let mut waiting: FuturesUnordered<_> =
        (0..WAITING).map(|n| t.begin(&session, &format!("Number {n}.")).answer()).collect();
    // Those that wait are answered only behind the gate: one that is answered now was refused.
    let refused = timeout(REFUSED, waiting.next()).await;
    // The others need not be waited for: their callers go.
    drop(waiting);
    first.open();
    running.turn().await?;
    match refused {
        Ok(Some(answer)) => answer?.is_error(409, "SBP_SESSION_CONFLICT"),
        _ => {
            let sent = format!("{WAITING} turns at once, while one runs");
            Err(Stop::broken(sent, "409 for some of them", "all of them wait"))
        }
    }
}

/// How many turns are sent at once.
const WAITING: usize = 66;
/// How long a second turn may take to reach the model, of a server that runs two at once.
const EARLY: Duration = Duration::from_secs(4);
/// How long all those turns may take to reach the server.
const REFUSED: Duration = Duration::from_secs(20);
