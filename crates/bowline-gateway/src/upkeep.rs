//! What a gateway does now and then, until it stops.
//!
//! Apart, because with several replicas it matters who does it: what is deleted or indexed for all is done by
//! the one that takes the task in the store ([`is_due`]), what waits in this process by each for itself.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::budget::Day;
use bowline_store::Store;
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::engine::{ABANDONED, Engine, Followed};
use crate::http::usage::MOST_DAYS;
use crate::session::LiveSessions;

/// How often the search index is brought up to date.
const INDEX_EVERY: Duration = Duration::from_secs(60);
/// How many steps at once, and the pause after them: turns come first.
const INDEX_STEPS: u32 = 4;
const INDEX_PAUSE: Duration = Duration::from_millis(200);
/// How often the last uses of keys are recorded.
const USES_EVERY: Duration = Duration::from_secs(60);
/// How often what other replicas have changed is looked for.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// How often sessions are looked for that came from other gateways, and with which nobody goes on.
const RESUME_EVERY: Duration = Duration::from_secs(10);
/// How much longer ids of federation tokens are kept than these are valid: a replica whose clock is behind takes them
/// longer.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(10);
/// How often what is old is deleted.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// How soon what waits for the next commit is written without one.
const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// Looks once a second for what other replicas have changed.
pub(crate) async fn follow_others(
    engine: Arc<Engine>,
    sessions: Arc<LiveSessions>,
    stop: CancellationToken,
) {
    let mut followed = Followed::default();
    let mut failing = false;
    loop {
        match engine.follow_others(&mut followed, sessions.me()).await {
            Ok(()) => failing = false,
            // Until it can be read again, keys that are not known are refused.
            Err(error) if !failing && !stop.is_cancelled() => {
                tracing::warn!(%error, "cannot look for changes of other replicas");
                failing = true;
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Whether this replica is to do a periodic task now. A gateway that is alone always is.
async fn is_due(store: &dyn Store, task: &'static str, every: Duration) -> bool {
    // A little less, so that it does not miss its own next turn by a moment.
    let taken = match store.is_shared() {
        true => store.take_upkeep(task, every * 9 / 10).await,
        false => Ok(true),
    };
    taken.unwrap_or_else(|error| {
        tracing::warn!(%error, task, "cannot see whether a periodic task is due");
        false
    })
}

/// Deletes expired idempotency keys, bundles and approvals, once an hour.
pub(crate) async fn forget_keys(
    store: Arc<dyn Store>,
    memory: SignedDuration,
    stop: CancellationToken,
) {
    loop {
        if is_due(&*store, "forget", FORGET_EVERY).await {
            forget_old(&*store, memory).await;
        }
        tokio::select! {
            () = tokio::time::sleep(FORGET_EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Goes on with sessions that come from other gateways, and whose process has ended: another replica, which had
/// stored one and died before it was live. Until somebody goes on, the session may be live nowhere.
pub(crate) async fn resume_migrations(engine: Arc<Engine>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RESUME_EVERY) => {}
            () = stop.cancelled() => return,
        }
        if is_due(&*engine.store, "resume-migrations", RESUME_EVERY).await
            && let Err(error) = engine.resume_migrations(ABANDONED).await
        {
            tracing::warn!(%error, "cannot look for sessions that are on their way here");
        }
    }
}

async fn forget_old(store: &dyn Store, memory: SignedDuration) {
    if let Ok(before) = clock::now().checked_sub(CLOCKS_DIFFER)
        && let Err(error) = store.forget_peer_tokens(before).await
    {
        tracing::warn!(%error, "cannot delete ids of expired federation tokens");
    }
    if let Ok(before) = clock::now().checked_sub(memory)
        && let Err(error) = store.forget_keys(before).await
    {
        tracing::warn!(%error, "cannot delete old idempotency keys");
    }
    if let Err(error) = store.forget_bundles(clock::now()).await {
        tracing::warn!(%error, "cannot delete expired bundles");
    }
    if let Ok(before) = clock::now().checked_sub(memory)
        && let Err(error) = store.forget_approvals(before).await
    {
        tracing::warn!(%error, "cannot delete old approvals");
    }
    if let Err(error) = store.forget_days(Day::of(clock::now()).before(MOST_DAYS)).await {
        tracing::warn!(%error, "cannot delete the usage of old days");
    }
}

/// Writes what waits for the next commit, if none comes by itself.
pub(crate) async fn settle(engine: Arc<Engine>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(SETTLE_EVERY) => {}
            () = stop.cancelled() => return,
        }
        engine.audit.flush();
        if let Err(error) = engine.store.settle().await {
            tracing::warn!(%error, "cannot write what was used and done");
        }
    }
}

/// Deletes old entries of the audit, once an hour.
pub(crate) async fn forget_audit(store: Arc<dyn Store>, keep: Duration, stop: CancellationToken) {
    let keep = SignedDuration::try_from(keep).unwrap_or(SignedDuration::MAX);
    loop {
        if is_due(&*store, "forget-audit", FORGET_EVERY).await
            && let Ok(before) = clock::now().checked_sub(keep)
            && let Err(error) = store.forget_audit(before).await
        {
            tracing::warn!(%error, "cannot delete old entries of the audit");
        }
        tokio::select! {
            () = tokio::time::sleep(FORGET_EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Records about once a minute when keys were used last.
pub(crate) async fn keep_uses(engine: Arc<Engine>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(USES_EVERY) => {}
            () = stop.cancelled() => {}
        }
        let used = engine.users.take_used();
        if !used.is_empty()
            && let Err(error) = engine.store.keys_used(used).await
        {
            tracing::warn!(%error, "cannot record when keys were used");
        }
        if stop.is_cancelled() {
            return;
        }
    }
}

/// Indexes new messages now and then, so that a search finds little left to index, and removes the
/// words of deleted sessions.
pub(crate) async fn keep_index(store: Arc<dyn Store>, stop: CancellationToken) {
    let mut pause = INDEX_EVERY;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        // What was begun is gone on with.
        if pause == INDEX_EVERY && !is_due(&*store, "index", INDEX_EVERY).await {
            continue;
        }
        let kept = async {
            let purged = store.purge_words(INDEX_STEPS).await?;
            Ok::<_, bowline_store::Error>(store.index(INDEX_STEPS).await? && purged)
        };
        pause = match kept.await {
            Ok(false) => INDEX_PAUSE,
            Ok(true) => INDEX_EVERY,
            Err(_) if stop.is_cancelled() => return,
            Err(error) => {
                tracing::warn!(%error, "cannot keep the search index");
                INDEX_EVERY
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use bowline_store::Federation;
    use bowline_store::sqlite::Sqlite;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn sbp_l6_02_the_id_of_a_token_is_kept_longer_than_any_replica_takes_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path()).unwrap();
        let [recent, old] = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let is_new = async |jti, minutes_ago| {
            let until = clock::now() - SignedDuration::from_mins(minutes_ago);
            store.use_peer_token("work".parse().unwrap(), jti, until).await.unwrap()
        };
        assert!(is_new(recent, 9).await && is_new(old, 11).await);
        forget_old(&store, SignedDuration::from_hours(1)).await;
        assert!(!is_new(recent, 9).await, "a replica whose clock is behind would take it again");
        assert!(is_new(old, 11).await, "it is forgotten");
    }
}
