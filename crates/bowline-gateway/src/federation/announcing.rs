//! Tells trackers which exports can be fetched here: those that are marked for it, and no others (SBP-L6-03).
//!
//! The store says what is to be known, so a crash forgets nothing; what a tracker was told already is
//! remembered here, and only so that it is not told all the time. Each tracker has a task of its own: one that is
//! slow or down delays nobody else. Each replica tells them by itself, since it is the same that they say.
//!
//! Invariants
//! - No tracker is told of an export that is not marked, and of none longer than its token is valid.
//! - What was used up, moved away or deleted is withdrawn, also after a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_federation::{PeerFault, StaticPeer, Target};
use bowline_net::backoff::{Backoff, Retry};
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::Announced;
use bowline_sbp::federation::registry::LONGEST_ANNOUNCEMENT;
use bowline_store::{AnnouncedExport, Store};
use tokio_util::sync::CancellationToken;

use super::Federation;
use crate::clock;

/// How soon a tracker hears of what nobody reports, such as a session that was deleted.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The most exports that trackers are told of: the newest.
const MOST: u32 = 10_000;
/// The wait after a tracker failed or refused.
const PATIENCE: Backoff = Backoff { start: Duration::from_secs(1), cap: Duration::from_secs(300) };

impl Federation {
    /// There may be something that trackers are to be told.
    pub(crate) fn exports_changed(&self) {
        self.exports.send_replace(());
    }

    /// Whether there is a tracker to be told.
    pub(crate) fn has_trackers(&self) -> bool {
        !self.discovery.trackers.is_empty()
    }

    /// Tells all trackers until `stop`.
    pub(crate) fn announce(self: &Arc<Self>, store: &Arc<dyn Store>, stop: &CancellationToken) {
        for tracker in self.discovery.trackers.clone() {
            let telling = Arc::clone(self).keep_telling(tracker, Arc::clone(store));
            tokio::spawn(stop.clone().run_until_cancelled_owned(telling));
        }
    }

    async fn keep_telling(self: Arc<Self>, tracker: StaticPeer, store: Arc<dyn Store>) {
        let (target, every) = (Target::named(&tracker), self.announce_every.as_secs());
        let mut told = Told::new(i64::try_from(every).unwrap_or(i64::MAX));
        let (mut changed, mut retry) = (self.exports.subscribe(), Retry::new(PATIENCE));
        loop {
            changed.mark_unchanged();
            let failed = match self.tell(&target, &mut told, &*store).await {
                Ok(()) => {
                    retry.reset();
                    None
                }
                Err(Untold::Store(error)) => {
                    tracing::warn!(%error, "cannot read what trackers are to be told");
                    Some(LOOK_EVERY)
                }
                Err(Untold::Tracker(fault)) => {
                    tracing::debug!(tracker = %tracker.id, %fault, "a tracker was not told");
                    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
                    let wait = self.peers.waits(&target).unwrap_or_default();
                    Some(retry.wait(random).max(wait))
                }
            };
            match failed {
                Some(wait) => tokio::time::sleep(wait).await,
                None => {
                    // Elapsed or changed: it looks again.
                    let _ = tokio::time::timeout(LOOK_EVERY, changed.changed()).await;
                }
            }
        }
    }

    async fn tell(
        &self,
        tracker: &Target,
        told: &mut Told,
        store: &dyn Store,
    ) -> Result<(), Untold> {
        let now = clock::now();
        let exports = store.announced_exports(now, MOST).await.map_err(Untold::Store)?;
        let news = told.news(&exports, now.as_second());
        if news.announce.is_empty() && news.withdraw.is_empty() {
            return Ok(());
        }
        let telling = self.peers.announce(tracker, &news.announce, &news.withdraw).await;
        telling.map_err(Untold::Tracker)?;
        told.record(&news, &exports, now.as_second());
        Ok(())
    }
}

/// Why a tracker was not told.
enum Untold {
    Store(bowline_store::Error),
    Tracker(PeerFault),
}

/// What one tracker was told by this process. Pure.
#[derive(Debug)]
struct Told {
    /// In seconds.
    every: i64,
    exports: HashMap<Cid, Standing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// To be announced again from that second on.
    Announced {
        again_at: i64,
    },
    Withdrawn,
}

/// What a tracker is to be told.
#[derive(Debug, Default, PartialEq, Eq)]
struct News {
    announce: Vec<Announced>,
    withdraw: Vec<Cid>,
}

impl Told {
    fn new(every: i64) -> Self {
        Self { every: every.clamp(1, LONGEST_ANNOUNCEMENT / 3), exports: HashMap::new() }
    }

    fn news(&self, exports: &[AnnouncedExport], now: i64) -> News {
        let mut news = News::default();
        for export in exports {
            match (export.is_open, self.exports.get(&export.cid)) {
                (true, Some(Standing::Announced { again_at })) if *again_at > now => {}
                (true, _) => news.announce.push(Announced {
                    cid: export.cid,
                    expires_at: export.expires_at.as_second().min(now + 3 * self.every),
                }),
                (false, Some(Standing::Withdrawn)) => {}
                // Perhaps an earlier process announced it.
                (false, _) => news.withdraw.push(export.cid),
            }
        }
        news
    }

    /// The tracker took these news of these exports. What has expired since is forgotten: so it is there.
    fn record(&mut self, news: &News, exports: &[AnnouncedExport], now: i64) {
        for Announced { cid, expires_at } in &news.announce {
            // What lasts to the end of its token is not announced again.
            let lasts = expires_at - now < 3 * self.every;
            let again_at = if lasts { i64::MAX } else { now + self.every };
            self.exports.insert(*cid, Standing::Announced { again_at });
        }
        for cid in &news.withdraw {
            self.exports.insert(*cid, Standing::Withdrawn);
        }
        let known: std::collections::HashSet<_> = exports.iter().map(|export| export.cid).collect();
        self.exports.retain(|cid, _| known.contains(cid));
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn export(n: u8, expires_at: i64, is_open: bool) -> AnnouncedExport {
        let expires_at = Timestamp::from_second(expires_at).unwrap();
        AnnouncedExport { cid: Cid::from_bytes([n; 32]), expires_at, is_open }
    }

    /// What a tracker hears then: announced until, or withdrawn.
    fn hears(told: &mut Told, exports: &[AnnouncedExport], now: i64) -> Vec<(u8, Option<i64>)> {
        let news = told.news(exports, now);
        told.record(&news, exports, now);
        let announced =
            news.announce.iter().map(|one| (one.cid.as_bytes()[0], Some(one.expires_at)));
        announced.chain(news.withdraw.iter().map(|cid| (cid.as_bytes()[0], None))).collect()
    }

    #[test]
    fn sbp_l6_03_an_export_is_announced_again_in_time_and_never_longer_than_its_token() {
        let mut told = Told::new(100);
        let all = [export(1, 1_000, true), export(2, 250, true)];
        assert_eq!(hears(&mut told, &all, 0), [(1, Some(300)), (2, Some(250))]);
        assert_eq!(hears(&mut told, &all, 99), []);
        assert_eq!(hears(&mut told, &all, 100), [(1, Some(400))], "the other one lasts to its end");
        let one = [export(1, 1_000, true)];
        assert_eq!(hears(&mut told, &one, 700), [(1, Some(1_000))]);
        assert_eq!(hears(&mut told, &one, 800), [(1, Some(1_000))]);
        assert_eq!(hears(&mut told, &one, 999), []);
        assert_eq!(hears(&mut told, &[], 1_000), []);
        assert!(told.exports.is_empty(), "nothing is remembered of what has expired");
    }

    #[test]
    fn sbp_l6_03_what_is_used_up_is_withdrawn_once_also_by_the_next_process() {
        let mut told = Told::new(100);
        let (open, used) = ([export(1, 1_000, true)], [export(1, 1_000, false)]);
        assert_eq!(hears(&mut told, &open, 0), [(1, Some(300))]);
        assert_eq!(hears(&mut told, &used, 1), [(1, None)]);
        assert_eq!(hears(&mut told, &used, 500), []);
        assert_eq!(hears(&mut Told::new(100), &used, 2), [(1, None)]);
    }

    #[test]
    fn sbp_l6_03_what_a_tracker_did_not_take_is_told_again() {
        let told = Told::new(100);
        let all = [export(1, 1_000, true), export(2, 1_000, false)];
        let news = told.news(&all, 0);
        assert_eq!((news.announce.len(), news.withdraw.len()), (1, 1));
        assert_eq!(told.news(&all, 1).announce.len(), 1, "nothing was recorded");
        assert_eq!(Told::new(i64::MAX).every, LONGEST_ANNOUNCEMENT / 3);
    }
}
