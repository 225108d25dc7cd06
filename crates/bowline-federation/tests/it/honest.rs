//! Peers that do as they should.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use bowline_federation::{BundleRequest, Freshness, PeerFault, PeerRequest, ReadLimits};
use bowline_sbp::federation::{
    Asked as AskedFor, FederationAction, FederationClaims, FederationTokenError, PreviousKey,
    ReservationId, Role, UnverifiedFederationToken,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::world::{Asked, Peer, Reply, fetch, id, identity, manifest, peers, sealed};

#[tokio::test]
async fn sbp_l6_02_a_bundle_is_asked_for_with_a_token_and_returned_verified() {
    let large = "x".repeat(2 << 20);
    for said in ["hello", &large] {
        let sealed = sealed(said, 1);
        let text = sealed.text.clone();
        let peer = Peer::gateway(1, move |_| Reply::Json(200, text.clone())).await;
        let (peers, _) = peers(&[peer.named()]);
        let spool = tempfile::tempdir().unwrap();
        let request = BundleRequest {
            cid: sealed.cid,
            roaming_token: Some("a.roaming.token"),
            reservation: Some(ReservationId(Uuid::from_u128(7))),
            limits: ReadLimits::bundle(4 << 20),
            spool: spool.path(),
        };
        let fetched = peers.bundle(&peer.target(), request).await.unwrap();
        assert_eq!((fetched.opened.cid, fetched.signer), (sealed.cid, identity(1).public()));
        assert!(fetched.text == sealed.text && fetched.opened.contents.messages.len() == 1);
        assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
        let asked = peer.asked.lock().unwrap()[1].clone();
        assert_eq!(asked.path, format!("/v1/sbp/bundles/{}", sealed.cid));
        assert_eq!(asked.headers["accept-encoding"], "identity");
        assert_eq!(asked.headers["sbp-roaming-token"], "a.roaming.token");
        assert_eq!(asked.headers["sbp-reservation"], Uuid::from_u128(7).to_string());
        let token = asked.headers["authorization"].trim_start_matches("Bearer ").to_owned();
        let token = UnverifiedFederationToken::peek(&token).unwrap();
        let (gateway, subject) = (id("a"), sealed.cid.to_string());
        let action = FederationAction::Bundle;
        let asked = AskedFor { gateway: &gateway, action, subject: &subject };
        let claims = token.verify(&identity(99).public(), asked, Timestamp::now()).unwrap();
        assert_eq!((claims.iss, claims.url.as_str()), (id("me"), "https://me.example"));
    }
}

type Change = dyn Fn(&mut FederationClaims);

/// What a gateway does with a token: verified for this gateway and this bundle, and used up.
fn gatekeeper(asked: &Asked, used: &Mutex<HashSet<Uuid>>) -> Result<(), FederationTokenError> {
    let gateway = id("a");
    let subject = asked.path.rsplit('/').next().unwrap();
    let wanted = AskedFor { gateway: &gateway, action: FederationAction::Bundle, subject };
    let token = asked.headers.get("authorization").map_or("", String::as_str);
    let token = UnverifiedFederationToken::peek(token.trim_start_matches("Bearer "))?;
    let claims = token.verify(&identity(99).public(), wanted, Timestamp::now())?;
    let is_new = used.lock().unwrap().insert(claims.jti);
    if is_new { Ok(()) } else { Err(FederationTokenError::Time) }
}

#[tokio::test]
async fn sbp_l6_02_each_request_has_a_token_of_its_own_and_others_are_refused_over_the_wire() {
    let (first, used) = (sealed("hello", 1), Arc::new(Mutex::new(HashSet::new())));
    let text = first.text.clone();
    let peer = Peer::gateway(1, move |asked| match gatekeeper(asked, &used) {
        Ok(()) => Reply::Json(200, text.clone()),
        Err(_) => Reply::Json(401, "{}".into()),
    })
    .await;
    let (peers, _) = peers(&[peer.named()]);
    let (spool, target) = (tempfile::tempdir().unwrap(), peer.target());
    for _ in 0..3 {
        fetch(&peers, &target, first.cid, spool.path()).await.unwrap();
    }
    let client = bowline_federation::PeerClient::new(Arc::new(bowline_federation::SystemLookup));
    let client = client.unwrap();
    let show = async |token: &str| {
        let request = PeerRequest::get(format!("/v1/sbp/bundles/{}", first.cid)).bearer(token);
        let answer = client.ask(&target, request, ReadLimits::small(1 << 20)).await.unwrap();
        answer.status.as_u16()
    };
    let sign = |change: &dyn Fn(&mut FederationClaims)| {
        let (gateway, subject) = (id("a"), first.cid.to_string());
        let action = FederationAction::Bundle;
        let asked = AskedFor { gateway: &gateway, action, subject: &subject };
        let url = "https://me.example".parse().unwrap();
        let mut claims =
            FederationClaims::new(id("me"), url, asked, Uuid::new_v4(), Timestamp::now());
        change(&mut claims);
        claims.sign(&identity(99))
    };
    let once = sign(&|_| ());
    assert_eq!((show(&once).await, show(&once).await), (200, 401), "replayed");
    let changes: [(&str, &Change); 4] = [
        ("expired", &|claims| claims.exp = claims.iat - 1),
        ("foreign audience", &|claims| claims.aud = id("b")),
        ("lasts too long", &|claims| claims.exp = claims.iat + 301),
        ("other bundle", &|claims| claims.subject = "x".into()),
    ];
    for (what, change) in changes {
        assert_eq!(show(&sign(change)).await, 401, "{what}");
    }
}

#[tokio::test]
async fn sbp_l6_02_a_refusal_is_no_fault_and_no_lie() {
    for (status, fault) in
        [(404, PeerFault::NotFound), (401, PeerFault::Status(401)), (403, PeerFault::Status(403))]
    {
        let peer = Peer::gateway(1, move |_| Reply::Json(status, "{}".into())).await;
        let (peers, _) = peers(&[peer.named()]);
        let (cid, spool) = (sealed("x", 1).cid, tempfile::tempdir().unwrap());
        let refused = fetch(&peers, &peer.target(), cid, spool.path()).await;
        assert_eq!(refused.err(), Some(fault));
        assert_eq!(peers.waits(&peer.target()), None);
    }
}

#[tokio::test]
async fn sbp_l6_01_a_manifest_is_fetched_once_and_its_key_pinned() {
    let peer = Peer::gateway(1, |_| Reply::Json(404, "{}".into())).await;
    let (peers, _) = peers(&[peer.named()]);
    for _ in 0..5 {
        let manifest = peers.manifest(&peer.target(), Freshness::Cached).await.unwrap();
        assert_eq!(manifest.key, identity(1).public());
    }
    peers.manifest(&peer.target(), Freshness::Fresh).await.unwrap();
    assert_eq!(peer.paths(), ["/.well-known/sbp"], "also not again at once");
}

#[tokio::test]
async fn sbp_l6_01_a_bundle_that_was_signed_before_a_rotation_is_taken_during_the_overlap() {
    let old = sealed("hello", 1);
    let text = old.text.clone();
    let peer = Peer::start(move |asked| match asked.path.as_str() {
        "/.well-known/sbp" => {
            let mut manifest = manifest("a", 2, Role::Gateway);
            let until = Timestamp::from_second(manifest.issued_at + 60).unwrap();
            let previous = PreviousKey::sign(&identity(1), &id("a"), &manifest.key, until);
            manifest.previous.push(previous);
            Reply::Json(200, manifest.sign(&identity(2)))
        }
        _ => Reply::Json(200, text.clone()),
    })
    .await;
    let (peers, pins) = peers(&[peer.named()]);
    pins.approve(&id("a"), identity(1).public());
    let spool = tempfile::tempdir().unwrap();
    let fetched = fetch(&peers, &peer.target(), old.cid, spool.path()).await.unwrap();
    assert_eq!(fetched.signer, identity(1).public());
    assert_eq!(pins.waiting(&id("a")), None);
}
