//! Where a gateway or a bundle may be: peers of the configuration, then the address that a token names, then
//! trackers, then DNS (SBP-L6-04).
//!
//! Lazy: a later source is asked only when nothing before it led to what was wanted, so what a gateway
//! looks for is told to as few as possible. What is found is a place to ask, and nothing more.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bowline_sbp::cid::Cid;
use bowline_sbp::federation::{BaseUrl, GatewayId};

use crate::peers::Peers;
use crate::srv::{self, SrvLookup};
use crate::target::{StaticPeer, Target};

/// The most candidates of one search.
const MOST: usize = 64;

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The gateway; none: any that has the bundle.
    pub gateway: Option<GatewayId>,
    /// The bundle; without one trackers have nothing to say.
    pub cid: Option<Cid>,
    /// Where a token says that the gateway is. Counts only with `gateway`.
    pub said: Option<BaseUrl>,
}

/// Which source named a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundBy {
    Configuration,
    /// The token that leads there.
    Token,
    Tracker(GatewayId),
    Dns {
        domain: String,
    },
}

/// A place to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub target: Target,
    pub found_by: FoundBy,
}

/// The sources.
#[derive(Debug, Clone)]
pub struct Discovery {
    pub peers: Arc<Peers>,
    /// In the order in which they are asked.
    pub trackers: Vec<StaticPeer>,
    pub dns: Arc<dyn SrvLookup>,
    pub domains: Vec<String>,
}

impl Discovery {
    pub fn search(&self, wanted: Wanted) -> Search<'_> {
        let named = self.peers.named().iter();
        let fits = |peer: &&StaticPeer| wanted.gateway.as_ref().is_none_or(|id| *id == peer.id);
        let named: Vec<_> = named
            .filter(fits)
            .map(|peer| Candidate { target: Target::named(peer), found_by: FoundBy::Configuration })
            .collect();
        let said = match (&wanted.gateway, &wanted.said) {
            (Some(id), Some(url)) => {
                let target = self.peers.target(id, url);
                Some(Candidate { target, found_by: FoundBy::Token })
            }
            _ => None,
        };
        // Where the configuration says that a gateway is, it is: nobody else is asked for it.
        let is_named = wanted.gateway.is_some() && !named.is_empty();
        let elsewhere =
            if is_named { (&[][..], &[][..]) } else { (&*self.trackers, &*self.domains) };
        let mut search = Search {
            discovery: self,
            ready: VecDeque::new(),
            seen: HashSet::new(),
            trackers: elsewhere.0.iter(),
            domains: elsewhere.1.iter(),
            wanted,
        };
        search.add(named);
        search.add(said.into_iter().collect());
        search
    }
}

/// A search that goes on while it is asked for more.
#[derive(Debug)]
pub struct Search<'a> {
    discovery: &'a Discovery,
    wanted: Wanted,
    ready: VecDeque<Candidate>,
    seen: HashSet<BaseUrl>,
    trackers: std::slice::Iter<'a, StaticPeer>,
    domains: std::slice::Iter<'a, String>,
}

impl Search<'_> {
    /// The next place to ask; none: there is no other.
    pub async fn next(&mut self) -> Option<Candidate> {
        loop {
            if let Some(candidate) = self.ready.pop_front() {
                return Some(candidate);
            }
            if let (Some(cid), Some(tracker)) = (self.wanted.cid, self.trackers.next()) {
                self.ask_tracker(tracker, cid).await;
            } else {
                let domain = self.domains.next()?;
                self.ask_dns(domain).await;
            }
        }
    }

    async fn ask_tracker(&mut self, tracker: &StaticPeer, cid: Cid) {
        let answer = match self.discovery.peers.look_up(&Target::named(tracker), cid).await {
            Ok(answer) => answer,
            Err(fault) => {
                tracing::debug!(tracker = %tracker.id, %fault, "a tracker did not help");
                return;
            }
        };
        let is_wanted = |id: &GatewayId| self.wanted.gateway.as_ref().is_none_or(|want| want == id);
        let holders = answer.gateways.into_iter().filter(|holder| is_wanted(&holder.gateway_id));
        let found = holders.map(|holder| Candidate {
            target: self.discovery.peers.target(&holder.gateway_id, &holder.url),
            found_by: FoundBy::Tracker(tracker.id.clone()),
        });
        let found: Vec<_> = found.collect();
        self.add(found);
    }

    async fn ask_dns(&mut self, domain: &str) {
        let records = match self.discovery.dns.records(domain).await {
            Ok(records) => records,
            Err(error) => {
                tracing::debug!(domain, %error, "DNS did not help");
                return;
            }
        };
        let random = || getrandom::u32().unwrap_or(u32::MAX / 2);
        let found = srv::in_order(records, random).into_iter().filter_map(|record| {
            let url: BaseUrl = match record.port {
                443 => format!("https://{}", record.host),
                port => format!("https://{}:{port}", record.host),
            }
            .parse()
            .ok()?;
            let target = match &self.wanted.gateway {
                Some(id) => self.discovery.peers.target(id, &url),
                None => Target::stranger(None, url),
            };
            Some(Candidate { target, found_by: FoundBy::Dns { domain: domain.to_owned() } })
        });
        let found: Vec<_> = found.collect();
        self.add(found);
    }

    /// Each place once, and not this gateway itself.
    fn add(&mut self, found: Vec<Candidate>) {
        let me = self.discovery.peers.me();
        for candidate in found {
            let Target { url, expected, .. } = &candidate.target;
            let is_me = *url == me.url || expected.as_ref() == Some(&me.id);
            if !is_me && self.seen.len() < MOST && self.seen.insert(url.clone()) {
                self.ready.push_back(candidate);
            }
        }
    }
}
