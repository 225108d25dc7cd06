//! Test fixture: a scripted peer that is a gateway, and the peers of a gateway.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_federation::{
    BundleRequest, Credentials, FetchedBundle, MemoryPins, OwnKeys, PeerFault, Peers, ReadLimits,
    StaticPeer, SystemLookup, Target,
};
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::Role;

pub(crate) use crate::documents::{bundle, id, identity, manifest, sealed};
pub(crate) use crate::scripted::{Asked, Peer, Reply};

impl Peer {
    /// A gateway `a` with that key, whose manifest is as it should be, and whose other answers are of
    /// the script.
    pub(crate) async fn gateway(
        n: u8,
        script: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |asked| match asked.path.as_str() {
            "/.well-known/sbp" => Reply::Json(200, manifest("a", n, Role::Both).sign(&identity(n))),
            _ => script(asked),
        })
        .await
    }

    pub(crate) fn named(&self) -> StaticPeer {
        StaticPeer { id: id("a"), url: self.url.parse().unwrap(), key: None }
    }

    pub(crate) fn target(&self) -> Target {
        Target::named(&self.named())
    }
}

/// The peers of a gateway `me`.
pub(crate) fn peers(named: &[StaticPeer]) -> (Arc<Peers>, Arc<MemoryPins>) {
    let pins = Arc::new(MemoryPins::default());
    let me = Credentials {
        id: id("me"),
        url: "https://me.example".parse().unwrap(),
        keys: Arc::new(OwnKeys::new(identity(99), Vec::new())),
    };
    let peers = Peers::new(me, named.to_vec(), Arc::clone(&pins) as _, Arc::new(SystemLookup));
    (Arc::new(peers.unwrap()), pins)
}

/// Fetches a bundle of at most 4 MiB, with deadlines for a test.
pub(crate) async fn fetch(
    peers: &Peers,
    target: &Target,
    cid: Cid,
    spool: &Path,
) -> Result<FetchedBundle, PeerFault> {
    let limits = ReadLimits {
        head: Duration::from_secs(5),
        idle: Duration::from_secs(2),
        ..ReadLimits::bundle(4 << 20)
    };
    fetch_within(peers, target, cid, spool, limits).await
}

pub(crate) async fn fetch_within(
    peers: &Peers,
    target: &Target,
    cid: Cid,
    spool: &Path,
    limits: ReadLimits,
) -> Result<FetchedBundle, PeerFault> {
    let asked = BundleRequest { cid, roaming_token: None, reservation: None, limits, spool };
    peers.bundle(target, asked).await
}
