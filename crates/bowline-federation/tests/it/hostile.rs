//! Peers that lie: each is refused, nothing is kept, and the peer is left alone afterwards.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bowline_federation::limits::Lateness;
use bowline_federation::{
    Freshness, Lookup, NotPublic, PeerClient, PeerFault, PeerRequest, ReadLimits, Target,
};
use bowline_sbp::bundle::OpenError;
use bowline_sbp::federation::{FederationAction, ManifestError, Role};

use crate::captured_log::CapturedLog;
use crate::world::{
    Peer, Reply, bundle, fetch, fetch_within, id, identity, manifest, peers, sealed,
};

/// Fetches the bundle of "hello" from a peer that answers so. Nothing is kept, and the peer is left
/// alone.
async fn refused(reply: Reply) -> PeerFault {
    let peer = Peer::gateway(1, move |_| reply.clone()).await;
    let (peers, _) = peers(&[peer.named()]);
    let (cid, spool) = (sealed("hello", 1).cid, tempfile::tempdir().unwrap());
    let fault = fetch(&peers, &peer.target(), cid, spool.path()).await.unwrap_err();
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0, "{fault}");
    // For a second at first, which a busy machine may need until here; longer after each time.
    for _ in 0..8 {
        let asked = peer.paths().len();
        let again = fetch(&peers, &peer.target(), cid, spool.path()).await.unwrap_err();
        if matches!(again, PeerFault::BackedOff { .. }) {
            assert_eq!(peer.paths().len(), asked, "{fault}: it is not asked again");
            return fault;
        }
        assert_eq!(again, fault);
    }
    panic!("{fault}: it is not left alone");
}

fn ok(text: &str) -> Reply {
    Reply::Json(200, text.to_owned())
}

#[tokio::test]
async fn sbp_l6_06_another_bundle_than_the_one_that_was_asked_for_is_refused() {
    assert_eq!(refused(ok(&sealed("other", 1).text)).await, PeerFault::OtherBundle);
    // It claims to be the one, and is not.
    let text = sealed("hello", 1).text.replace("hello", "hallo");
    assert_eq!(refused(ok(&text)).await, PeerFault::Bundle(OpenError::WrongCid));
    assert!(matches!(refused(ok("{}")).await, PeerFault::Bundle(OpenError::NoCid)));
    let html = refused(ok("<html>")).await;
    assert!(matches!(html, PeerFault::Bundle(OpenError::NotJson(_))), "{html}");
}

#[tokio::test]
async fn sbp_l6_06_a_bundle_with_the_right_id_and_a_wrong_signature_is_refused() {
    // Signed by another gateway, by nobody, and with a signature that does not fit.
    let stranger = sealed("hello", 2);
    let unsigned = bundle("hello").seal();
    let signature = |text: &str| {
        let at = text.rfind("\"value\":").unwrap() + 10;
        text[at..at + 86].to_owned()
    };
    let ours = sealed("hello", 1).text;
    let wrong = ours.replace(&signature(&ours), &signature(&sealed("other", 1).text));
    let mut wrong = bowline_pyjson::Value::parse(&wrong).unwrap().into_owned();
    let cid = bowline_sbp::cid::Cid::of_bundle(&wrong);
    wrong.as_object_mut().unwrap().insert("bundle_cid", cid.to_string());
    let key = identity(2).public().fingerprint();
    for (cid, text, fault) in [
        (stranger.cid, stranger.text, OpenError::OtherSigner(key)),
        (unsigned.cid, unsigned.text, OpenError::Unsigned),
        (cid, wrong.to_json(), OpenError::BrokenSignature),
    ] {
        let peer = Peer::gateway(1, move |_| ok(&text)).await;
        let (peers, _) = peers(&[peer.named()]);
        let spool = tempfile::tempdir().unwrap();
        let refused = fetch(&peers, &peer.target(), cid, spool.path()).await.unwrap_err();
        assert_eq!(refused, PeerFault::Bundle(fault));
        assert!(peers.waits(&peer.target()).unwrap() > Duration::from_secs(50), "it lied");
    }
}

#[tokio::test]
async fn sbp_l6_06_a_body_without_end_is_left_at_the_limit() {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut again = b"10000\r\n".to_vec();
    again.extend_from_slice(&[b' '; 0x10000]);
    again.extend_from_slice(b"\r\n");
    let endless = Reply::Endless { head, again, pause: Duration::ZERO };
    assert_eq!(refused(endless).await, PeerFault::TooLarge { most: 4 << 20 });
}

#[tokio::test]
async fn sbp_l6_06_ten_gigabytes_are_refused_before_any_of_them_is_read() {
    let head = "HTTP/1.1 200 OK\ncontent-length: 10737418240";
    assert_eq!(refused(Reply::raw(head, b"{")).await, PeerFault::TooLarge { most: 4 << 20 });
    // Below the limit, and then nothing comes.
    let head = "HTTP/1.1 200 OK\ncontent-length: 1000";
    assert_eq!(refused(Reply::raw(head, b"{")).await, PeerFault::BrokenOff);
}

#[tokio::test]
async fn sbp_l6_06_a_slow_body_is_given_up() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n".to_vec();
    let (short, long) = (Duration::from_millis(500), Duration::from_secs(60));
    let free = ReadLimits { body: 4 << 20, head: long, idle: long, total: long, least_rate: 0 };
    let slow = |again: &[u8], pause| Reply::Endless {
        head: head.clone(),
        again: again.to_vec(),
        pause: Duration::from_millis(pause),
    };
    let silent = Reply::Endless { head: Vec::new(), again: Vec::new(), pause: long };
    // One limit is short at a time: how busy this machine is does not decide which one is exceeded.
    for (reply, limits, late) in [
        (silent, ReadLimits { head: short, ..free }, Lateness::Head),
        (slow(b" ", 60_000), ReadLimits { idle: short, ..free }, Lateness::Idle),
        // Never silent for long: a byte now and then.
        (slow(b" ", 20), ReadLimits { total: short, ..free }, Lateness::Total),
        (slow(b" ", 20), ReadLimits { least_rate: 1 << 10, ..free }, Lateness::Rate),
    ] {
        let peer = Peer::gateway(1, move |_| reply.clone()).await;
        let (peers, _) = peers(&[peer.named()]);
        let (cid, spool) = (sealed("hello", 1).cid, tempfile::tempdir().unwrap());
        let target = peer.target();
        let fault = fetch_within(&peers, &target, cid, spool.path(), limits).await.unwrap_err();
        assert_eq!(fault, PeerFault::Late(late));
        assert!(peers.waits(&target).is_some());
    }
}

#[tokio::test]
async fn sbp_l6_06_no_redirect_is_followed() {
    let elsewhere = Peer::gateway(1, |_| ok(&sealed("hello", 1).text)).await;
    for status in [301, 302, 303, 307, 308] {
        let to = format!("HTTP/1.1 {status} X\nlocation: {}/x\ncontent-length: 0", elsewhere.url);
        assert_eq!(refused(Reply::raw(&to, b"")).await, PeerFault::Redirect);
    }
    assert_eq!(elsewhere.paths(), [""; 0], "nothing was asked there");
    let to = format!("HTTP/1.1 302 X\nlocation: {}/x\ncontent-length: 0", elsewhere.url);
    let peer = Peer::start(move |_| Reply::raw(&to, b"")).await;
    let (peers, _) = peers(&[]);
    let refused = peers.manifest(&peer.target(), Freshness::Cached).await;
    assert_eq!(refused, Err(PeerFault::Redirect));
    assert_eq!(elsewhere.paths(), [""; 0]);
}

#[tokio::test]
async fn sbp_l6_06_what_is_wrong_at_one_address_is_not_blamed_on_another_one_of_that_host() {
    let peer = Peer::start(|asked| match asked.path.as_str() {
        "/.well-known/sbp" => Reply::Json(200, manifest("a", 1, Role::Gateway).sign(&identity(1))),
        _ => Reply::raw("HTTP/1.1 302 X\nlocation: /elsewhere\ncontent-length: 0", b""),
    })
    .await;
    let (peers, _) = peers(&[]);
    let at = |path: &str| {
        let url = format!("{}{path}", peer.url).parse().unwrap();
        Target { expected: None, url, ..peer.target() }
    };
    let redirected = peers.manifest(&at("/any/path"), Freshness::Cached).await;
    assert_eq!(redirected, Err(PeerFault::Redirect));
    assert!(peers.waits(&at("/any/path")).is_some());
    assert_eq!(peers.waits(&at("")), None, "whoever named that path punishes nobody with it");
    peers.manifest(&at(""), Freshness::Cached).await.unwrap();
}

#[tokio::test]
async fn sbp_l6_05_a_peer_that_is_left_alone_is_told_what_it_waits_to_hear() {
    let peer = Peer::gateway(1, |asked| match asked.path.as_str() {
        "/release" => Reply::Json(204, String::new()),
        _ => Reply::raw("HTTP/1.1 302 X\nlocation: /x\ncontent-length: 0", b""),
    })
    .await;
    let (peers, _) = peers(&[peer.named()]);
    let (cid, spool) = (sealed("hello", 1).cid, tempfile::tempdir().unwrap());
    let fault = fetch(&peers, &peer.target(), cid, spool.path()).await.unwrap_err();
    assert_eq!(fault, PeerFault::Redirect);
    let (request, limits) = (PeerRequest::get("/release"), ReadLimits::small(1 << 10));
    let release = (FederationAction::Release, "x");
    let asked = peers.ask(&peer.target(), release.0, release.1, request.clone(), limits).await;
    assert!(matches!(asked, Err(PeerFault::BackedOff { .. })), "{asked:?}");
    let told = peers.tell(&peer.target(), &id("a"), release, request, limits).await.unwrap();
    assert_eq!(told.0, 204);
    assert_eq!(peer.paths().last().unwrap(), "/release");
}

#[tokio::test]
async fn g20_a_gateway_that_says_who_it_is_is_remembered_only_when_it_was_met() {
    use bowline_federation::Pins as _;
    let peer = Peer::gateway(1, |_| Reply::Json(404, "{}".into())).await;
    let (peers, pins) = peers(&[]);
    for _ in 0..2 {
        let (manifest, _) = peers.claimed(&peer.target()).await.unwrap();
        assert_eq!(pins.pin(&id("a")).await, Ok(None));
        assert_eq!(manifest.key, identity(1).public());
    }
    // Another one of that id comes first with something that it may have.
    let other = Peer::gateway(2, |_| Reply::Json(404, "{}".into())).await;
    let (manifest, _) = peers.claimed(&other.target()).await.unwrap();
    peers.met(&other.target(), &manifest).await.unwrap();
    let pinned = pins.pin(&id("a")).await.unwrap().unwrap();
    assert_eq!(pinned.key, identity(2).public());
    let changed = peers.claimed(&peer.target()).await.unwrap_err();
    assert!(matches!(changed, PeerFault::Manifest(ManifestError::KeyChanged { .. })), "{changed}");
}

#[tokio::test]
async fn sbp_l6_06_a_gzip_bomb_is_not_inflated() {
    // 64 MiB of zeros, packed by gzip itself.
    let mut gzip = std::process::Command::new("gzip")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut into = gzip.stdin.take().unwrap();
    let writing = std::thread::spawn(move || {
        (0..1024).try_for_each(|_| into.write_all(&[0; 64 << 10])).unwrap();
    });
    let packed = gzip.wait_with_output().unwrap().stdout;
    writing.join().unwrap();
    assert!(packed.len() < 1 << 20);
    for encoding in ["gzip", "deflate", "br", "zstd", "identity, gzip"] {
        let head = format!(
            "HTTP/1.1 200 OK\ncontent-encoding: {encoding}\ncontent-length: {}",
            packed.len()
        );
        assert_eq!(refused(Reply::raw(&head, &packed)).await, PeerFault::Encoded);
    }
    // Without saying so: bytes that are no bundle.
    let head = format!("HTTP/1.1 200 OK\ncontent-length: {}", packed.len());
    assert_eq!(refused(Reply::raw(&head, &packed)).await, PeerFault::OtherBundle);
}

#[tokio::test]
async fn sbp_l6_06_what_is_no_http_or_a_head_without_end_is_given_up() {
    let garbage = refused(Reply::Raw(b"\x00\x01\x02 hello\r\n\r\n".to_vec())).await;
    assert!(matches!(garbage, PeerFault::Unreachable(_)), "{garbage}");
    let head = b"HTTP/1.1 200 OK\r\n".to_vec();
    let again = format!("x-header: {}\r\n", "x".repeat(1000)).into_bytes();
    let endless = refused(Reply::Endless { head, again, pause: Duration::ZERO }).await;
    assert!(matches!(endless, PeerFault::Unreachable(_)), "{endless}");
    let broken = refused(Reply::Json(500, "{}".into())).await;
    assert_eq!(broken, PeerFault::Status(500));
}

async fn manifest_fault(text: String) -> PeerFault {
    let peer = Peer::start(move |_| Reply::Json(200, text.clone())).await;
    let (peers, pins) = peers(&[]);
    let fault = peers.manifest(&peer.target(), Freshness::Cached).await.unwrap_err();
    use bowline_federation::Pins as _;
    assert_eq!(pins.pin(&id("a")).await, Ok(None), "{fault}: nothing is pinned");
    fault
}

#[tokio::test]
async fn sbp_l6_06_a_manifest_that_lies_pins_nothing() {
    let good = manifest("a", 1, Role::Gateway);
    let text = good.sign(&identity(1));
    let signature = manifest_fault(text.replace("a.example", "b.example")).await;
    assert_eq!(signature, ManifestError::Signature.into());
    let other = manifest_fault(manifest("b", 1, Role::Gateway).sign(&identity(1))).await;
    assert!(matches!(other, PeerFault::Manifest(ManifestError::OtherGateway { .. })), "{other}");
    let mut future = good.clone();
    future.issued_at += 3600;
    assert_eq!(manifest_fault(future.sign(&identity(1))).await, ManifestError::Future.into());
    let large = format!("{}{text}", " ".repeat(64 << 10));
    assert_eq!(manifest_fault(large).await, PeerFault::TooLarge { most: 64 << 10 });
    assert_eq!(manifest_fault("<html>".into()).await, ManifestError::Unreadable.into());
}

#[tokio::test]
async fn sbp_l6_06_a_gateway_with_another_key_is_refused_until_it_is_approved() {
    let (peers, pins) = peers(&[]);
    let first = Peer::gateway(1, |_| Reply::Json(404, "{}".into())).await;
    peers.manifest(&first.target(), Freshness::Cached).await.unwrap();
    let second = Peer::gateway(2, |_| Reply::Json(404, "{}".into())).await;
    let refused = peers.manifest(&second.target(), Freshness::Cached).await.unwrap_err();
    assert!(matches!(refused, PeerFault::Manifest(ManifestError::KeyChanged { .. })), "{refused}");
    assert_eq!(pins.waiting(&id("a")), Some(identity(2).public()));
    pins.approve(&id("a"), identity(2).public());
    peers.forgive(&second.target());
    let manifest = peers.manifest(&second.target(), Freshness::Cached).await.unwrap();
    assert_eq!(manifest.key, identity(2).public());
}

/// Says that every name is at that address.
#[derive(Debug)]
struct Liar(SocketAddr, AtomicUsize);

#[async_trait]
impl Lookup for Liar {
    async fn addresses(&self, _: &str, _: u16) -> std::io::Result<Vec<SocketAddr>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(vec![self.0])
    }
}

#[tokio::test]
async fn sbp_l6_06_a_stranger_on_this_machine_gets_no_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move { listener.accept().await.is_ok() });
    let liar = Arc::new(Liar(address, AtomicUsize::new(0)));
    let client = PeerClient::new(Arc::clone(&liar) as _).unwrap();
    let ask = async |url: String| {
        let target = Target::stranger(None, url.parse().unwrap());
        let limits = ReadLimits::small(1 << 10);
        client.ask(&target, PeerRequest::get("/x"), limits).await.unwrap_err()
    };
    let by_name = ask("https://gw.example".into()).await;
    let PeerFault::NotPublic(why) = by_name else { panic!("{by_name}") };
    assert!(why.contains(&NotPublic::Loopback.to_string()), "{why}");
    assert_eq!(liar.1.load(Ordering::Relaxed), 1, "resolved once");
    for url in [
        format!("https://{address}"),
        format!("https://[::ffff:127.0.0.1]:{}", address.port()),
        format!("https://2130706433:{}", address.port()),
        format!("https://0x7f.1:{}", address.port()),
        format!("https://0177.0.0.1:{}", address.port()),
        format!("https://localhost:{}", address.port()),
        format!("http://{address}"),
    ] {
        let fault = ask(url.clone()).await;
        assert!(matches!(fault, PeerFault::Target(_)), "{url}: {fault}");
    }
    assert!(!accepted.is_finished(), "nothing was dialled");
    accepted.abort();
}

#[tokio::test]
async fn sbp_l6_06_a_peer_that_lies_is_named_in_the_log_and_what_it_said_is_not() {
    let (log, _guard) = CapturedLog::start();
    let text = sealed("words-canary-zq", 2).text;
    refused(ok(&text)).await;
    let line = log.line("a peer lied and is backed off");
    assert!(line.contains("WARN") && line.contains("peer=\"a\""), "{line}");
    let said = log.text();
    // Nor the token that it was shown, which begins as every JWT does.
    for secret in ["canary-zq", "eyJ", "Bearer"] {
        assert!(!said.contains(secret), "{secret} was logged");
    }
}

#[tokio::test]
async fn sbp_l6_06_a_stranger_that_lies_is_named_in_the_log_with_the_id_that_was_expected() {
    let (log, _guard) = CapturedLog::start();
    let (peers, _) = peers(&[]);
    let target = Target::stranger(Some(id("a")), "https://gw.example:8443".parse().unwrap());
    let lied = peers.asked(&target, async { Err::<(), _>(PeerFault::Redirect) }).await;
    assert_eq!(lied, Err(PeerFault::Redirect));
    let line = log.line("a peer lied and is backed off");
    assert!(line.contains("gw.example:8443") && line.contains("gateway=a"), "{line}");
    assert!(peers.waits(&target).is_some());
}
