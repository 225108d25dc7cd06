//! The issuer's keys: rotation, outages, answers that cannot be trusted (G15).

use std::time::Duration;

use bowline_relay::relay::RelayConfig;
use bowline_sbrp::control::ControlCode::SessionEnded;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::issuer::{Issuer, Mood};
use super::server::{PATIENCE, Server, start, start_at, start_with, until};

async fn ready(server: &Server) {
    until("ready", || async { server.get("/readyz", None).await.0 == 200 }).await;
}

fn eager(config: &mut RelayConfig) {
    config.keys.retry_every = Duration::from_millis(20);
}

#[tokio::test]
async fn g15_ready_once_keys_are_there() {
    let issuer = Issuer::start().await;
    issuer.set(Mood::Failing);
    let server = start_at(issuer, eager).await;
    let (status, body) = server.get("/readyz", None).await;
    assert_eq!(status, 503);
    assert!(body.contains("keys"), "{body}");
    let (status, body) = server.refusal(&server.issuer.daemon("d")).await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("keys_unavailable")));
    // What no key could make good is not put off.
    assert_eq!(server.refusal("a.b.c").await.0, 401);
    server.issuer.set(Mood::Well);
    ready(&server).await;
    server.daemon("d").await.expect_quiet().await;
}

#[tokio::test]
async fn g15_a_relay_that_started_first_does_not_wait_for_its_usual_pause() {
    let issuer = Issuer::start().await;
    issuer.set(Mood::Down);
    let server = start_at(issuer, |config| {
        // Longer than the test waits.
        config.keys.retry_every = Duration::from_secs(3600);
        config.keys.revoked_every = Duration::from_secs(3600);
    })
    .await;
    until("tried", || async { server.issuer.fetches() >= 2 }).await;
    assert_eq!(server.get("/readyz", None).await.0, 503);
    server.issuer.revoke(&["gone"]);
    server.issuer.set(Mood::Well);
    ready(&server).await;
    server.daemon("d").await.expect_quiet().await;
    let gone = server.issuer.daemon("gone");
    until("the list is there", || async { server.get("/status", Some(&gone)).await.0 == 401 })
        .await;
    let asked = server.issuer.fetches();
    let nobody = server.issuer.signer("nobody").presence(&server.issuer.presence("d"));
    assert_eq!(server.refusal(&nobody).await.0, 401);
    assert_eq!(server.issuer.fetches(), asked, "from then on it keeps its pause");
}

#[tokio::test]
async fn g15_an_unknown_key_is_asked_for_and_a_withdrawn_one_forgotten() {
    let server = start_with(eager).await;
    ready(&server).await;
    let new = server.issuer.signer("new");
    server.issuer.publish(vec![new.jwk()]);
    let token = new.presence(&server.issuer.presence("d"));
    until("known", || async { server.get("/status", Some(&token)).await.0 == 200 }).await;
    let (status, body) = server.refusal(&server.issuer.daemon("d")).await;
    assert_eq!((status, &body["error"]["reason"]), (401, &json!("unknown_key")));
}

#[tokio::test]
async fn g15_unknown_keys_do_not_make_the_relay_ask_more_often() {
    let server = start().await;
    ready(&server).await;
    let asked = server.issuer.fetches();
    let nobody = server.issuer.signer("nobody");
    for _ in 0..20 {
        assert_eq!(server.refusal(&nobody.presence(&server.issuer.presence("d"))).await.0, 401);
    }
    assert_eq!(server.issuer.fetches(), asked, "within ten seconds of the last");
}

/// Sends a request for `/status`, and does not wait for the response.
async fn ask(server: &Server, token: &str) -> TcpStream {
    let request = format!(
        "GET /status HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// Twenty requests that came before the issuer answered are all answered with 200 after it did.
async fn all_wait(server: &Server, token: &str, held: watch::Sender<()>) {
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(ask(server, token).await);
    }
    // Requests are served meanwhile.
    assert_eq!(server.get("/healthz", None).await.0, 200);
    drop(held);
    for mut socket in waiting {
        let mut answer = String::new();
        let reading = socket.read_to_string(&mut answer);
        tokio::time::timeout(PATIENCE, reading).await.expect("an answer").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn g15_those_who_ask_at_once_wait_for_one_fetch() {
    let issuer = Issuer::start().await;
    let held = issuer.hold();
    let server = start_at(issuer, |_| {}).await;
    until("asked", || async { server.issuer.fetches() == 1 }).await;
    let token = server.issuer.daemon("d");
    all_wait(&server, &token, held).await;
    assert_eq!(server.issuer.fetches(), 1);
}

#[tokio::test]
async fn g15_those_who_ask_for_an_unknown_key_at_once_make_one_fetch() {
    let server = start_with(|config| config.keys.retry_every = Duration::from_millis(100)).await;
    ready(&server).await;
    let asked = server.issuer.fetches();
    let new = server.issuer.signer("new");
    server.issuer.publish(vec![new.jwk()]);
    let token = new.presence(&server.issuer.presence("d"));
    let held = server.issuer.hold();
    // Until the relay may fetch again, an unknown key is refused at once; then one request fetches.
    let mut first = Vec::new();
    let fetching = async {
        while server.issuer.fetches() == asked {
            first.push(ask(&server, &token).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, fetching).await.expect("a fetch");
    all_wait(&server, &token, held).await;
    assert_eq!(server.issuer.fetches(), asked + 1);
}

#[tokio::test]
async fn g15_an_outage_drops_nobody_and_lets_nobody_in_who_is_not_known() {
    let server = start_with(|config| {
        eager(config);
        config.keys.max_age = Duration::from_millis(50);
    })
    .await;
    ready(&server).await;
    let mut daemon = server.daemon("d").await;
    for mood in [
        Mood::Down,
        Mood::Failing,
        Mood::Nonsense,
        Mood::Endless,
        Mood::Elsewhere(format!("{}/other", server.issuer.url)),
    ] {
        server.issuer.set(mood.clone());
        let asked = server.issuer.fetches();
        let new = server.issuer.signer("new");
        server.issuer.publish(vec![new.jwk()]);
        until("asked again", || async { server.issuer.fetches() > asked + 1 }).await;
        // The keys are older than their age now; those that were known still count.
        daemon.expect_quiet().await;
        server.client("d", 1).await.expect_quiet().await;
        daemon.expect_code(SessionEnded, 1).await;
        let unknown = new.presence(&server.issuer.presence("d"));
        assert_eq!(server.refusal(&unknown).await.0, 401, "{mood:?}");
    }
}

#[tokio::test]
async fn g15_stale_keys_end() {
    let server = start_with(|config| {
        eager(config);
        config.keys.max_age = Duration::from_millis(20);
        config.keys.stale_for = Duration::from_millis(200);
    })
    .await;
    ready(&server).await;
    let mut daemon = server.daemon("d").await;
    server.issuer.set(Mood::Down);
    let token = server.issuer.daemon("d");
    until("nobody is let in", || async { server.get("/status", Some(&token)).await.0 == 503 })
        .await;
    daemon.expect_quiet().await;
    server.issuer.set(Mood::Well);
    until("let in again", || async { server.get("/status", Some(&token)).await.0 == 200 }).await;
}

#[tokio::test]
async fn sbrp_token_03_keys_of_other_kinds_are_passed_over() {
    let server = start_with(eager).await;
    ready(&server).await;
    let mut foreign = server.issuer.signer("a").jwk();
    foreign["kty"] = json!("RSA");
    foreign["n"] = json!("AQAB");
    let mut signing = server.issuer.signer("b").jwk();
    signing["alg"] = json!("ES256");
    let good = server.issuer.signer("c");
    server.issuer.publish(vec![foreign, signing, good.jwk()]);
    let token = good.presence(&server.issuer.presence("d"));
    until("known", || async { server.get("/status", Some(&token)).await.0 == 200 }).await;
    for kid in ["a", "b"] {
        let token = server.issuer.signer(kid).presence(&server.issuer.presence("d"));
        let (status, body) = server.refusal(&token).await;
        assert_eq!((status, &body["error"]["reason"]), (401, &json!("unknown_key")));
    }
}
