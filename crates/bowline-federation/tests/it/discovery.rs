//! The order of the sources, over real sockets: configuration, trackers, DNS.

use std::sync::Arc;

use bowline_federation::{
    Candidate, Discovery, DnsSrv, FoundBy, Freshness, PeerFault, Pins as _, Reach, StaticPeer,
    Wanted,
};
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::{Holder, Manifest, RegistryAnswer, Role};
use jiff::Timestamp;
use tokio::net::UdpSocket;

use crate::name_server::NameServer;
use crate::world::{Peer, Reply, id, identity, manifest, peers};

const BUNDLE: &[u8] = b"bundle";

/// A tracker `t1` or the like that says that these gateways have the bundle.
async fn tracker(name: &'static str, n: u8, holders: &[(&'static str, &'static str)]) -> Peer {
    let holders = holders.to_vec();
    Peer::start(move |asked| {
        let now = Timestamp::now().as_second();
        let holder = |(name, url): &(&str, &str)| Holder {
            gateway_id: id(name),
            url: url.parse().unwrap(),
            expires_at: now + 60,
        };
        let answer = RegistryAnswer {
            cid: Cid::of_bytes(BUNDLE),
            gateways: holders.iter().map(holder).collect(),
            issued_at: now,
            tracker_id: id(name),
        };
        Reply::Json(
            200,
            match asked.path.as_str() {
                "/.well-known/sbp" => manifest(name, n, Role::Tracker).sign(&identity(n)),
                _ => answer.sign(&identity(n)),
            },
        )
    })
    .await
}

fn named(name: &str, url: &str) -> StaticPeer {
    StaticPeer { id: id(name), url: url.parse().unwrap(), key: None }
}

fn shown(candidate: &Candidate) -> (String, String) {
    let by = match &candidate.found_by {
        FoundBy::Configuration => "configuration".to_owned(),
        FoundBy::Token => "token".to_owned(),
        FoundBy::Tracker(id) => id.to_string(),
        FoundBy::Dns { domain } => domain.clone(),
    };
    (candidate.target.url.as_str().to_owned(), by)
}

#[tokio::test]
async fn sbp_l6_04_static_peers_come_first_then_trackers_then_dns() {
    let first = tracker(
        "t1",
        1,
        &[
            ("x", "https://x.example"),
            ("b", "https://liar.example"),
            ("me", "https://elsewhere.example"),
        ],
    )
    .await;
    let second = tracker("t2", 2, &[("x", "https://x.example"), ("y", "https://y.example")]).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = NameServer::on(
        socket,
        &[(20, 0, 8443, "late.example.test"), (10, 0, 443, "early.example.test")],
    );
    let (peers, _) = peers(&[named("b", "http://127.0.0.1:9"), named("c", "https://c.example")]);
    let discovery = Discovery {
        peers,
        trackers: vec![named("t1", &first.url), named("t2", &second.url)],
        dns: Arc::new(DnsSrv::servers(&[server.address]).unwrap()),
        domains: vec!["example.test".into()],
    };
    let wanted = Wanted { cid: Some(Cid::of_bytes(BUNDLE)), ..Wanted::default() };
    let mut search = discovery.search(wanted.clone());
    let mut found = Vec::new();
    while let Some(candidate) = search.next().await {
        match found.len() {
            // Each source is asked only when those before it are used up.
            0..=1 => assert!(first.paths().is_empty() && second.paths().is_empty()),
            2 => assert!(second.paths().is_empty()),
            3 => assert!(server.asked.lock().unwrap().is_empty()),
            _ => {}
        }
        let is_named = candidate.found_by == FoundBy::Configuration;
        assert_eq!(candidate.target.reach == Reach::Static, is_named, "{candidate:?}");
        found.push(shown(&candidate));
    }
    let expected = [
        ("http://127.0.0.1:9", "configuration"),
        ("https://c.example", "configuration"),
        ("https://x.example", "t1"),
        ("https://y.example", "t2"),
        ("https://early.example.test", "example.test"),
        ("https://late.example.test:8443", "example.test"),
    ];
    assert_eq!(found, expected.map(|(url, by)| (url.to_owned(), by.to_owned())));

    // Of one gateway: where it is configured; and others are asked at what was found.
    for (gateway, said, expected) in [
        ("c", None, vec![("https://c.example", "configuration")]),
        ("y", None, vec![("https://y.example", "t2")]),
        ("b", None, vec![("http://127.0.0.1:9", "configuration")]),
        // The address in a token counts before trackers, and not for whom the configuration names.
        (
            "y",
            Some("https://old.example"),
            vec![("https://old.example", "token"), ("https://y.example", "t2")],
        ),
        ("b", Some("https://liar.example"), vec![("http://127.0.0.1:9", "configuration")]),
    ] {
        let said = said.map(|url| url.parse().unwrap());
        let wanted = Wanted { gateway: Some(id(gateway)), said, ..wanted.clone() };
        let mut search = discovery.search(wanted);
        for (url, by) in expected {
            let candidate = search.next().await.unwrap();
            assert_eq!(shown(&candidate), (url.to_owned(), by.to_owned()), "{gateway}");
            assert_eq!(candidate.target.expected, Some(id(gateway)));
        }
        if gateway == "b" {
            assert_eq!(search.next().await, None, "the configuration has the last word");
        }
    }
}

#[tokio::test]
async fn sbp_l6_04_nothing_is_remembered_of_a_gateway_that_is_not_the_one_that_signed() {
    let peer = Peer::gateway(1, |_| Reply::Json(404, String::new())).await;
    let (peers, pins) = peers(&[peer.named()]);
    let signed_by = |n| move |manifest: &Manifest| manifest.key == identity(n).public();
    let target = peer.target();
    let other = peers.introduced(&target, Freshness::Cached, signed_by(2)).await;
    assert_eq!(other, Err(PeerFault::OtherSigner));
    assert_eq!(pins.pin(&id("a")).await, Ok(None));
    assert_eq!(peers.waits(&target), None, "it is not to blame for what others say of it");
    let known = peers.introduced(&target, Freshness::Cached, signed_by(1)).await.unwrap();
    assert_eq!(pins.pin(&id("a")).await, Ok(Some(known.pin())));
    let other = peers.introduced(&target, Freshness::Cached, signed_by(2)).await;
    assert_eq!(other, Err(PeerFault::OtherSigner), "also where it is cached");
}

#[tokio::test]
async fn sbp_l6_04_a_source_that_fails_or_lies_is_passed_over() {
    let liar = tracker("t1", 1, &[]).await;
    let honest = tracker("t2", 2, &[("x", "https://x.example")]).await;
    let (peers, _) = peers(&[]);
    let discovery = Discovery {
        peers,
        // Another tracker than it says, one that is not there, and an honest one.
        trackers: vec![
            named("other", &liar.url),
            named("gone", "http://127.0.0.1:1"),
            named("t2", &honest.url),
        ],
        dns: Arc::new(DnsSrv::servers(&["127.0.0.1:1".parse().unwrap()]).unwrap()),
        domains: vec!["not a domain".into()],
    };
    let wanted = Wanted { cid: Some(Cid::of_bytes(BUNDLE)), ..Wanted::default() };
    let mut search = discovery.search(wanted);
    let found = search.next().await.unwrap();
    assert_eq!(shown(&found), ("https://x.example".into(), "t2".into()));
    assert_eq!(search.next().await, None);
    // Without a content id no tracker has anything to say.
    assert_eq!(discovery.search(Wanted::default()).next().await, None);
}
