//! What a gateway says to trackers, and believes of what they say.

use std::sync::Arc;

use bowline_federation::registry::REGISTRY_PATH;
use bowline_federation::{
    Credentials, MemoryPins, OwnKeys, PeerFault, Peers, StaticPeer, SystemLookup, Target,
};
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::{
    Announced, Announcement, Holder, RegistryAnswer, RegistryError, Role,
};
use jiff::Timestamp;

use crate::world::{Peer, Reply, id, identity, manifest, peers};

fn cid(n: usize) -> Cid {
    Cid::of_bytes(&n.to_be_bytes())
}

fn answer(of: Cid) -> RegistryAnswer {
    let now = Timestamp::now().as_second();
    let url = "https://b.example".parse().unwrap();
    let holder = Holder { gateway_id: id("b"), url, expires_at: now + 60 };
    RegistryAnswer { cid: of, gateways: vec![holder], issued_at: now, tracker_id: id("a") }
}

#[tokio::test]
async fn sbp_l6_03_announcements_and_withdrawals_are_signed_and_split() {
    let tracker = Peer::gateway(1, |_| Reply::Json(200, "{}".into())).await;
    let (peers, _) = peers(&[]);
    let expires_at = Timestamp::now().as_second() + 3600;
    let cids: Vec<_> = (0..1_500).map(|n| Announced { cid: cid(n), expires_at }).collect();
    peers.announce(&tracker.target(), &cids, &[cid(7_000)]).await.unwrap();
    let asked = tracker.asked.lock().unwrap().clone();
    let bodies = asked.iter().filter(|asked| asked.path == REGISTRY_PATH);
    let read = bodies.map(|asked| {
        let announcement = Announcement::peek(&asked.body).unwrap();
        announcement.verify(&identity(99).public(), Timestamp::now()).unwrap()
    });
    let read: Vec<_> = read.collect();
    let sizes: Vec<_> = read.iter().map(|one| (one.cids.len(), one.withdraw.len())).collect();
    assert_eq!(sizes, [(1_000, 0), (500, 0), (0, 1)]);
    assert!(read.iter().all(|one| one.gateway_id == id("me")));
}

#[tokio::test]
async fn sbp_l6_03_an_answer_counts_only_with_the_trackers_signature_and_for_this_question() {
    let good = answer(cid(1)).sign(&identity(1));
    for (text, fault) in [
        (good.clone(), None),
        (answer(cid(1)).sign(&identity(2)), Some(RegistryError::Signature)),
        (good.replace("b.example", "c.example"), Some(RegistryError::Signature)),
        (answer(cid(2)).sign(&identity(1)), Some(RegistryError::Other)),
        ("{}".into(), Some(RegistryError::Signature)),
    ] {
        let tracker = Peer::gateway(1, move |_| Reply::Json(200, text.clone())).await;
        let (peers, _) = peers(&[]);
        let found = peers.look_up(&tracker.target(), cid(1)).await;
        assert_eq!(found.as_ref().err(), fault.map(PeerFault::Registry).as_ref());
        assert_eq!(peers.waits(&tracker.target()).is_some(), fault.is_some());
    }
}

#[tokio::test]
async fn sbp_l6_03_a_gateway_that_is_no_tracker_is_not_asked() {
    let peer =
        Peer::start(|_| Reply::Json(200, manifest("a", 1, Role::Gateway).sign(&identity(1)))).await;
    let (peers, _) = peers(&[]);
    let refused = peers.look_up(&peer.target(), cid(1)).await.unwrap_err();
    assert_eq!(refused, PeerFault::NoTracker);
    assert_eq!(peer.paths(), ["/.well-known/sbp"]);
}

#[test]
fn sbp_l6_06_a_gateway_of_a_trackers_id_is_asked_where_the_tracker_is() {
    let url = "https://tracker.example".parse().unwrap();
    let tracker = StaticPeer { id: id("t"), url, key: Some(identity(7).public()) };
    let me = Credentials {
        id: id("me"),
        url: "https://me.example".parse().unwrap(),
        keys: Arc::new(OwnKeys::new(identity(99), Vec::new())),
    };
    let pins = Arc::new(MemoryPins::default());
    let peers = Peers::new(me, Vec::new(), pins, Arc::new(SystemLookup)).unwrap();
    let peers = peers.with_trackers(vec![tracker.clone()]);
    let elsewhere = "https://elsewhere.example".parse().unwrap();
    assert_eq!(peers.target(&id("t"), &elsewhere), Target::named(&tracker));
    assert!(peers.is_named(&id("t")) && !peers.is_named(&id("u")));
    let stranger = Target::stranger(Some(id("u")), elsewhere.clone());
    assert_eq!(peers.target(&id("u"), &elsewhere), stranger);
}
