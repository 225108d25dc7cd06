//! Guessing keys gets slow, and so does asking for more tokens than anyone needs. Guesses cost those
//! with a right key nothing.

use std::time::Duration;

use bowline_net::DoorConfig;
use bowline_net::rate::Rate;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::control::bench::{Bench, DEADLINE, eventually, identity, registry};

/// So many, and then none for as long as a test runs.
fn only(burst: u32) -> Rate {
    Rate { burst, every: Duration::from_secs(3600) }
}

#[tokio::test]
async fn after_some_wrong_keys_further_ones_are_told_to_wait() {
    let bench = Bench::with(|config| config.limits.failures_per_address = only(3)).await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    for guess in 0..3 {
        let refused = bench.open(&format!("bck_guess-{guess}"), &daemon).await;
        assert_eq!(refused.refusal(), (401, "unauthorized"));
    }
    let body = json!({ "apiKey": "bck_guess", "identityPublicKey": identity(1) });
    for refused in [
        bench.open("bck_guess-3", &daemon).await,
        bench.renew("bck_guess-3", &daemon).await,
        bench.revoke("bck_guess-3", &daemon).await,
        bench.get("/api/daemons", Some("bck_guess-3")).await,
        bench.register_as(body).await,
    ] {
        assert_eq!(refused.refusal(), (429, "rate_limited"));
        let wait: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=3600).contains(&wait));
    }
    assert_eq!(bench.keys().await.len(), 2, "relays still get the keys");
}

#[tokio::test]
async fn wrong_keys_never_lock_out_a_right_one_of_the_same_address() {
    let listen = DoorConfig {
        behind_proxy: vec!["127.0.0.0/8".parse().unwrap()],
        ..DoorConfig::plain("127.0.0.1:0".parse().unwrap())
    };
    let bench = Bench::at(tempfile::tempdir().unwrap(), listen, |config| {
        config.limits.failures_per_address = only(3);
        config.limits.failures_per_key = only(3);
        config.limits.tokens_per_address = only(5);
    })
    .await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    // Directly, and through a proxy that names one client address for all.
    for forwarded in [None, Some("203.0.113.9")] {
        let call = async |method: Method, path: &str, key: &str| {
            let request = bench.http.request(method, format!("{}{path}", bench.url));
            let request = request.bearer_auth(key).body(json!({ "daemonId": daemon }).to_string());
            let request = match forwarded {
                Some(client) => request.header("x-forwarded-for", client),
                None => request,
            };
            request.send().await.unwrap().status().as_u16()
        };
        for guess in 0..50 {
            let status = call(Method::POST, "/api/sessions", &format!("bck_guess-{guess}")).await;
            assert_eq!(status, if guess < 3 { 401 } else { 429 }, "{guess}");
        }
        let renew = format!("/api/daemons/{daemon}/presence");
        assert_eq!(call(Method::POST, "/api/sessions", &key).await, 200);
        assert_eq!(call(Method::POST, &renew, &key).await, 200);
        assert_eq!(call(Method::GET, "/api/daemons", &key).await, 200);
    }
    assert_eq!(bench.revoke(&key, &daemon).await.status, 204);
}

#[tokio::test]
async fn a_wrong_key_is_refused_before_its_body_is_read() {
    let bench = Bench::start().await;
    let address = bench.url.strip_prefix("http://").unwrap();
    for (method, path) in [
        ("POST", "/api/sessions"),
        ("POST", "/api/daemons/register"),
        ("POST", "/api/daemons/some/presence"),
        ("PATCH", "/api/daemons/some"),
        ("PUT", "/api/daemons/some/devices"),
        ("DELETE", "/api/daemons/some"),
    ] {
        for expect in ["", "Expect: 100-continue\r\n"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{expect}Authorization: Bearer \
                 bck_wrong\r\nContent-Length: 1000\r\n\r\n{{"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = [0; 12];
            let answered = tokio::time::timeout(DEADLINE, stream.read_exact(&mut answer)).await;
            answered.expect("it waits for the body").unwrap();
            let answer = String::from_utf8_lossy(&answer);
            assert!(["HTTP/1.1 401", "HTTP/1.1 429"].contains(&&*answer), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn right_keys_are_not_counted_as_guesses_and_missing_ones_are_none() {
    let bench = Bench::with(|config| config.limits.failures_per_address = only(2)).await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    for _ in 0..5 {
        assert_eq!(bench.open(&key, &daemon).await.status, 200);
        assert_eq!(bench.open(&key, "none").await.status, 404);
        assert_eq!(bench.get("/api/daemons", None).await.status, 401);
    }
}

#[tokio::test]
async fn one_wrong_key_shown_again_and_again_is_not_looked_up_again() {
    let bench = Bench::with(|config| config.limits.failures_per_key = only(2)).await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    for _ in 0..2 {
        assert_eq!(bench.open("bck_revoked", &daemon).await.status, 401);
    }
    assert_eq!(bench.open("bck_revoked", &daemon).await.refusal(), (429, "rate_limited"));
    assert_eq!(bench.open("bck_another", &daemon).await.status, 401);
    assert_eq!(bench.open(&key, &daemon).await.status, 200);
}

#[tokio::test]
async fn tokens_are_bounded_for_each_key() {
    let bench = Bench::with(|config| config.limits.tokens_per_key = only(4)).await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    let daemon = bench.daemon(&alice, 1).await;
    assert_eq!(bench.renew(&alice, &daemon).await.status, 200);
    assert_eq!(bench.open(&alice, &daemon).await.status, 200);
    assert_eq!(bench.register(&alice, &identity(1)).await.status, 200);
    for refused in [
        bench.open(&alice, &daemon).await,
        bench.renew(&alice, &daemon).await,
        bench.register(&alice, &identity(1)).await,
        bench.get("/api/daemons", Some(&alice)).await,
    ] {
        assert_eq!(refused.refusal(), (429, "rate_limited"));
    }
    bench.daemon(&bob, 1).await;
    assert_eq!(bench.revoke(&alice, &daemon).await.status, 204, "revoking is always possible");
}

#[tokio::test]
async fn tokens_are_bounded_for_each_address() {
    let bench = Bench::with(|config| config.limits.tokens_per_address = only(2)).await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    bench.daemon(&alice, 1).await;
    bench.daemon(&bob, 1).await;
    assert_eq!(bench.register(&alice, &identity(1)).await.refusal(), (429, "rate_limited"));
}

#[tokio::test]
async fn refusals_are_soon_in_the_audit_log() {
    let bench = Bench::start().await;
    for _ in 0..5 {
        assert_eq!(bench.get("/api/daemons", Some("bck_guess")).await.status, 401);
    }
    assert_eq!(bench.get("/nowhere", None).await.status, 404);
    eventually("written down", async || {
        let log = registry(bench.folder.path()).audit(10).unwrap();
        let count = |code: &str| {
            log.iter().filter(|r| r.subject == code && r.event == "refused").map(|r| r.count).sum()
        };
        let (unauthorized, nowhere): (u64, u64) = (count("unauthorized"), count("not_found"));
        unauthorized == 5 && nowhere == 1
    })
    .await;
}
