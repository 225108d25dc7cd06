//! One sign of life for each pair of replicas, in place of one for each session that they share.
//!
//! Once a second a replica tells every other one with which it has links that it is there. Links that have
//! nothing to say are silent meanwhile. So that both ends of a link know of its end although a message was
//! lost, each link is named in beats of both now and then, and who does not have it says so. What else could
//! be lost is acknowledged.
//!
//! A replica of a release without beats sends none: then each link goes on by itself.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::{Duration, Instant};

use bowline_bus::Lane;
use bowline_sbp::session::ReplicaId;
use tokio_util::sync::CancellationToken;

use super::wire::{Beat, LinkId, Message};
use super::{Incoming, Routes};
use crate::session::registry::{Identity, LiveSessions};

const EVERY: Duration = Duration::from_secs(1);
/// After a beat, its sender is taken to be there for so long.
pub(super) const TRUSTED: Duration = Duration::from_secs(3);
/// How often a link is named. The first time, its first message has long arrived.
const NAMED: Duration = Duration::from_secs(10);
/// Links that one beat names; the others are named by the next ones.
const AT_ONCE: usize = 1024;

/// Sends beats until this replica ends or goes on under another id.
pub(super) async fn send(sessions: Weak<LiveSessions>, identity: Identity) {
    let Identity { me, ended } = identity;
    while !is_over(&ended).await {
        let Some(sessions) = sessions.upgrade() else { return };
        let beats = sessions.remote.routes().beats(Instant::now());
        for (peer, beat) in beats {
            sessions.remote.send(me, peer, Lane::Control, &Message::Beat(beat)).await;
        }
    }
}

async fn is_over(ended: &CancellationToken) -> bool {
    tokio::time::timeout(EVERY, ended.cancelled()).await.is_ok()
}

impl Routes {
    /// What the replicas are told that are to hear of this one.
    fn beats(&mut self, now: Instant) -> HashMap<ReplicaId, Beat> {
        let mut beats: HashMap<_, Beat> = HashMap::new();
        for (link, route) in &mut self.links {
            let beat = beats.entry(route.peer).or_default();
            let named = if route.is_proxy { &mut beat.links } else { &mut beat.served };
            if now - route.named >= NAMED && named.len() < AT_ONCE {
                route.named = now;
                named.push(*link);
            }
        }
        self.heard.retain(|peer, _| beats.contains_key(peer));
        beats
    }

    /// A beat of another replica came. Returns the links in it that are not here.
    pub(super) fn heard(&mut self, from: ReplicaId, beat: Beat, now: Instant) -> Beat {
        // Others are of no interest, and would be kept for ever.
        if self.links.values().any(|route| route.peer == from) {
            self.heard.insert(from, now);
        }
        let Beat { mut links, mut served } = beat;
        for (named, is_proxy) in [(&mut links, false), (&mut served, true)] {
            named.truncate(AT_ONCE);
            named.retain(|link| {
                let route = self.links.get(link);
                route.is_none_or(|route| (route.peer, route.is_proxy) != (from, is_proxy))
            });
        }
        Beat { links, served }
    }

    /// That replica has no proxy for these links any more.
    pub(super) fn gone(&self, from: ReplicaId, links: &[LinkId]) {
        let its = |link: &LinkId| self.links.get(link).filter(|r| r.peer == from && !r.is_proxy);
        for route in links.iter().filter_map(its) {
            // A full queue is read soon, and the link is named again.
            let _ = route.incoming.try_send(Incoming::Dead);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use uuid::Uuid;

    use super::super::Route;
    use super::*;

    fn link(n: usize) -> LinkId {
        LinkId(Uuid::from_u128(n as u128))
    }

    fn replica(n: u128) -> ReplicaId {
        ReplicaId(Uuid::from_u128(n))
    }

    fn routes(count: usize, peer: ReplicaId, is_proxy: bool, now: Instant) -> Routes {
        let route =
            |n| (link(n), Route { peer, incoming: mpsc::channel(1).0, is_proxy, named: now });
        Routes { links: (0..count).map(route).collect(), ..Routes::default() }
    }

    #[test]
    fn g11_10_000_silent_links_are_a_message_a_second_and_each_is_named_in_its_time() {
        let (start, peer) = (Instant::now(), replica(1));
        let mut routes = routes(10_000, peer, true, start);
        let mut named = Vec::new();
        for second in 1..=30 {
            let mut beats = routes.beats(start + EVERY * second);
            assert_eq!(beats.len(), 1, "one for the pair");
            let Beat { links, served } = beats.remove(&peer).unwrap();
            assert!(served.is_empty());
            assert!(links.len() <= AT_ONCE && (second >= 10 || links.is_empty()));
            named.extend(links);
        }
        let all = named.len();
        named.sort_by_key(|link| link.0);
        named.dedup();
        assert_eq!(named.len(), 10_000);
        assert!(all <= 2 * 10_000 + AT_ONCE, "{all}");
    }

    #[test]
    fn who_does_not_have_a_link_says_so() {
        let (now, peer) = (Instant::now(), replica(1));
        let mut routes = routes(2, peer, false, now);
        let named = |links: &[usize]| links.iter().map(|n| link(*n)).collect::<Vec<_>>();
        let beat = |links, served| Beat { links: named(links), served: named(served) };
        let all: Vec<_> = (0..5000).collect();
        assert_eq!(routes.heard(peer, beat(&[0, 7, 1], &[0]), now), beat(&[7], &[0]));
        assert_eq!(
            routes.heard(replica(2), beat(&[0], &[]), now),
            beat(&[0], &[]),
            "another one's"
        );
        assert_eq!(routes.heard.keys().collect::<Vec<_>>(), [&peer], "strangers are forgotten");
        assert_eq!(routes.heard(peer, beat(&all, &[]), now).links.len(), AT_ONCE - 2);
        assert!(routes.beats(now + NAMED)[&peer].served.len() == 2 && !routes.heard.is_empty());
        routes.links.clear();
        assert!(routes.beats(now).is_empty() && routes.heard.is_empty());
    }

    #[test]
    fn a_link_whose_proxy_is_gone_ends_and_no_other() {
        let (now, peer) = (Instant::now(), replica(1));
        let mut routes = routes(2, peer, false, now);
        let (incoming, mut received) = mpsc::channel(1);
        routes.links.insert(link(9), Route { peer, incoming, is_proxy: false, named: now });
        routes.gone(replica(2), &[link(9)]);
        assert!(received.try_recv().is_err());
        routes.gone(peer, &[link(8), link(9)]);
        assert!(matches!(received.try_recv(), Ok(Incoming::Dead)));
    }
}
