//! Paired devices get session tokens with a key of their own, and nothing else.

use std::time::Duration;

use bowline_net::rate::Rate;
use bowline_relay::control::registry::FILE;
use bowline_sbrp::api::{MOST_DEVICES, OpenDeviceSession};
use bowline_sbrp::device_auth::DeviceRequest;
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::token::{Admission, ClientPass};
use reqwest::Method;
use serde_json::{Value, json};

use crate::control::bench::{Answer, Bench, RELAY, identity, now};

/// The devices of these tests have seeds from here on; daemons have smaller ones.
const PHONE: u8 = 101;
const TABLET: u8 = 102;

fn entry(seed: u8) -> Value {
    json!({ "publicKey": identity(seed) })
}

fn signed(seed: u8, daemon: &str, at: u64) -> Value {
    let device = IdentitySecret::from_seed(&[seed; 32]);
    let request = DeviceRequest::sign(&device, &DaemonId::new(daemon), at);
    serde_json::to_value(OpenDeviceSession::from(&request)).unwrap()
}

async fn ask(bench: &Bench, body: Value) -> Answer {
    bench.call(Method::POST, "/api/sessions", None, Some(body)).await
}

async fn open(bench: &Bench, seed: u8, daemon: &str) -> Answer {
    ask(bench, signed(seed, daemon, now())).await
}

async fn pass(bench: &Bench, opened: &Answer) -> ClientPass {
    match bench.admit(&opened.text_of("token")).await.unwrap() {
        Admission::Client(pass) => pass,
        Admission::Daemon(_) => panic!("a daemon's token"),
    }
}

/// A user's key, a daemon of theirs, and the phone registered for it.
async fn paired(bench: &Bench) -> (String, String) {
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let set = bench.set_devices(&key, &daemon, json!([entry(PHONE)])).await;
    assert_eq!((set.status, set.text.as_str()), (204, ""));
    (key, daemon)
}

const UNKNOWN: (u16, &str) = (401, "unknown_device");

fn only(burst: u32) -> Rate {
    Rate { burst, every: Duration::from_secs(3600) }
}

#[tokio::test]
async fn sbrp_peer_01_a_paired_device_gets_the_token_that_its_owner_would_get() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    let opened = open(&bench, PHONE, &daemon).await;
    assert_eq!((opened.status, opened.text_of("relayUrl").as_str()), (200, RELAY));
    assert_eq!(opened.header("cache-control"), "no-store");
    let left = opened.body["expiresAt"].as_u64().unwrap() - now();
    assert!((90..=120).contains(&left), "{left}");
    let (devices, owners) = (pass(&bench, &opened).await, bench.open(&key, &daemon).await);
    let owners = pass(&bench, &owners).await;
    assert_eq!(devices.daemon.as_str(), daemon);
    assert_eq!(devices.session.to_string(), opened.text_of("sessionId"));
    assert_eq!((devices.user, &devices.daemon), (owners.user, &owners.daemon));
    assert_ne!(devices.session, owners.session);
}

#[tokio::test]
async fn sbrp_peer_01_a_new_set_of_devices_applies_at_once_and_replaces_the_old_one() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    assert_eq!(open(&bench, TABLET, &daemon).await.refusal(), UNKNOWN);
    bench.set_devices(&key, &daemon, json!([entry(PHONE), entry(TABLET)])).await;
    assert_eq!(open(&bench, TABLET, &daemon).await.status, 200);
    assert_eq!(open(&bench, PHONE, &daemon).await.status, 200);
    bench.set_devices(&key, &daemon, json!([entry(TABLET)])).await;
    assert_eq!(open(&bench, PHONE, &daemon).await.refusal(), UNKNOWN);
    assert_eq!(open(&bench, TABLET, &daemon).await.status, 200);
    bench.set_devices(&key, &daemon, json!([])).await;
    assert_eq!(open(&bench, TABLET, &daemon).await.refusal(), UNKNOWN);
    assert_eq!(bench.open(&key, &daemon).await.status, 200, "the owner goes on");
}

#[tokio::test]
async fn an_expired_device_is_as_good_as_none() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    let until = |at: u64| json!([{ "publicKey": identity(PHONE), "expiresAt": at }]);
    bench.set_devices(&key, &daemon, until(now() + 600)).await;
    assert_eq!(open(&bench, PHONE, &daemon).await.status, 200);
    let database = rusqlite::Connection::open(bench.folder.path().join(FILE)).unwrap();
    database.execute("UPDATE device_keys SET expires_at = ?1", [now() as i64]).unwrap();
    assert_eq!(open(&bench, PHONE, &daemon).await.refusal(), UNKNOWN, "while its row is there");
    let count = || -> u32 {
        database.query_row("SELECT count(*) FROM device_keys", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(), 1);
    let other = bench.daemon(&key, 2).await;
    bench.set_devices(&key, &other, json!([])).await;
    assert_eq!(count(), 0, "deleted when any set is written");
    assert_eq!(bench.set_devices(&key, &daemon, until(now() - 1)).await.status, 204);
    assert_eq!((open(&bench, PHONE, &daemon).await.refusal(), count()), (UNKNOWN, 0));
}

#[tokio::test]
async fn g20_a_refused_device_does_not_learn_what_exists() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    let other = bench.daemon(&key, 2).await;
    bench.set_devices(&key, &other, json!([entry(TABLET)])).await;
    let gone = bench.daemon(&key, 3).await;
    bench.set_devices(&key, &gone, json!([entry(PHONE)])).await;
    assert_eq!(bench.revoke(&key, &gone).await.status, 204);
    let bob = bench.user("bob");
    let his = bench.daemon(&bob, 1).await;
    bench.set_devices(&bob, &his, json!([entry(PHONE)])).await;
    bench.registry().revoke_user("bob", now()).unwrap();

    let at = now();
    let mut forged = signed(PHONE, &daemon, at);
    forged["device"]["signature"] = signed(TABLET, &daemon, at)["device"]["signature"].clone();
    let mut elsewhere = signed(TABLET, &other, at);
    elsewhere["daemonId"] = json!(daemon);
    let mut later = signed(PHONE, &daemon, at);
    later["device"]["signedAt"] = json!(at + 1);
    let cases = [
        ("a key of nobody", signed(250, &daemon, at)),
        ("a daemon that does not exist", signed(PHONE, "none", at)),
        ("another daemon's device", signed(TABLET, &daemon, at)),
        ("a device's signature for another daemon", elsewhere),
        ("another device's signature", forged),
        ("a signature for another time", later),
        ("a revoked daemon", signed(PHONE, &gone, at)),
        ("a revoked user", signed(PHONE, &his, at)),
    ];
    let mut texts = Vec::new();
    for (case, body) in cases {
        let refused = ask(&bench, body).await;
        assert_eq!(refused.refusal(), UNKNOWN, "{case}");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
        texts.push(refused.text);
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert_eq!(open(&bench, PHONE, &daemon).await.status, 200, "and that one goes on");
}

#[tokio::test]
async fn g22_a_request_of_another_time_is_refused_with_the_servers_time() {
    let bench = Bench::start().await;
    let (_, daemon) = paired(&bench).await;
    for at in [0, now() - 310, now() + 310, u64::MAX] {
        let refused = ask(&bench, signed(PHONE, &daemon, at)).await;
        assert_eq!(refused.refusal(), (401, "clock_skew"), "{at}");
        let time = refused.body["error"]["now"].as_u64().unwrap();
        assert!(time.abs_diff(now()) < 30, "{time}");
        assert_eq!(ask(&bench, signed(PHONE, &daemon, time)).await.status, 200);
    }
    for at in [now() - 290, now() + 290] {
        assert_eq!(ask(&bench, signed(PHONE, &daemon, at)).await.status, 200, "{at}");
    }
    let unknown = ask(&bench, signed(PHONE, "none", 0)).await;
    assert_eq!(unknown.refusal(), (401, "clock_skew"), "whatever it asks for");
    assert_eq!(open(&bench, TABLET, &daemon).await.body["error"].get("now"), None);
}

#[tokio::test]
async fn g20_an_owner_and_nobody_else_sets_the_devices_of_a_daemon() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    let mallory = bench.user("mallory");
    let refused = bench.set_devices(&mallory, &daemon, json!([entry(TABLET)])).await;
    assert_eq!(refused.refusal(), (404, "not_found"));
    assert_eq!(refused.text, bench.set_devices(&mallory, "none", json!([])).await.text);
    let path = format!("/api/daemons/{daemon}/devices");
    let body = json!({ "devices": [entry(TABLET)] });
    let refused = bench.call(Method::PUT, &path, None, Some(body)).await;
    assert_eq!(refused.refusal(), (401, "unauthorized"));
    assert_eq!(open(&bench, TABLET, &daemon).await.refusal(), UNKNOWN);
    assert_eq!(open(&bench, PHONE, &daemon).await.status, 200);
    assert_eq!(bench.revoke(&key, &daemon).await.status, 204);
    let refused = bench.set_devices(&key, &daemon, json!([])).await;
    assert_eq!(refused.refusal(), (403, "forbidden"));
}

#[tokio::test]
async fn g20_a_key_that_two_owners_register_reaches_each_daemon_as_its_owner() {
    let bench = Bench::start().await;
    let (_, hers) = paired(&bench).await;
    let bob = bench.user("bob");
    let his = bench.daemon(&bob, 1).await;
    bench.set_devices(&bob, &his, json!([entry(PHONE)])).await;
    let users = bench.registry().users().unwrap();
    for (daemon, user) in [(&hers, &users[0]), (&his, &users[1])] {
        let pass = pass(&bench, &open(&bench, PHONE, daemon).await).await;
        assert_eq!((pass.user.as_str(), pass.daemon.as_str()), (user.id.as_str(), daemon.as_str()));
    }
    bench.set_devices(&bob, &his, json!([])).await;
    assert_eq!(open(&bench, PHONE, &hers).await.status, 200);
}

#[tokio::test]
async fn g11_a_daemon_has_at_most_256_devices() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    let devices = |count: usize| -> Value {
        let key = |n: usize| {
            let mut seed = [7; 32];
            seed[..2].copy_from_slice(&(n as u16).to_be_bytes());
            IdentitySecret::from_seed(&seed).public()
        };
        let spell = |n: usize| {
            use base64::Engine as _;
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(key(n).as_bytes())
        };
        let entry = |n: usize| json!({ "publicKey": spell(n), "expiresAt": 253_402_300_799_u64 });
        (0..count).map(entry).collect()
    };
    assert_eq!(bench.set_devices(&key, &daemon, devices(MOST_DEVICES)).await.status, 204);
    assert_eq!(open(&bench, PHONE, &daemon).await.refusal(), UNKNOWN);
    bench.set_devices(&key, &daemon, json!([entry(PHONE)])).await;
    let refused = bench.set_devices(&key, &daemon, devices(MOST_DEVICES + 1)).await;
    assert_eq!(refused.refusal(), (400, "invalid_request"));
    let refused = bench.set_devices(&key, &daemon, json!(["x".repeat(32 << 10)])).await;
    assert_eq!(refused.refusal(), (413, "invalid_request"));
    assert_eq!(open(&bench, PHONE, &daemon).await.status, 200, "the old set is still in force");
}

#[tokio::test]
async fn what_is_wrong_with_devices_is_said_and_nothing_changes() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    let weak = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for devices in [
        json!({}),
        json!(null),
        json!([5]),
        json!([{ "publicKey": "AAAA" }]),
        json!([entry(TABLET), { "publicKey": weak }]),
        json!([{ "publicKey": identity(TABLET), "expiresAt": 1_900_000_000_000_u64 }]),
        json!([{ "publicKey": identity(TABLET), "expiresAt": "never" }]),
    ] {
        let refused = bench.set_devices(&key, &daemon, devices.clone()).await;
        assert_eq!(refused.refusal(), (400, "invalid_request"), "{devices}");
    }
    assert_eq!(open(&bench, TABLET, &daemon).await.refusal(), UNKNOWN);
    assert_eq!(open(&bench, PHONE, &daemon).await.status, 200);
    let mut broken = signed(PHONE, &daemon, now());
    broken["device"]["signature"] = json!("AAAA");
    assert_eq!(ask(&bench, broken).await.refusal(), (400, "invalid_request"));
}

#[tokio::test]
async fn a_session_needs_a_key_or_a_device() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    for body in [
        None,
        Some(json!({})),
        Some(json!([])),
        Some(json!({ "daemonId": daemon })),
        Some(json!({ "daemonId": daemon, "device": null })),
    ] {
        let refused = bench.call(Method::POST, "/api/sessions", None, body).await;
        assert_eq!(refused.refusal(), (401, "unauthorized"));
    }
    let body = signed(PHONE, &daemon, now());
    let wrong = bench.call(Method::POST, "/api/sessions", Some("bck_wrong"), Some(body)).await;
    assert_eq!(wrong.refusal(), (401, "unauthorized"), "a key that is shown counts");
    let body = signed(TABLET, &daemon, now());
    let owner = bench.call(Method::POST, "/api/sessions", Some(&key), Some(body)).await;
    assert_eq!(owner.status, 200);
}

#[tokio::test]
async fn g4_devices_are_there_after_a_restart() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    let folder = bench.stop().await;
    let bench = Bench::on(folder, |_| {}).await;
    assert_eq!(open(&bench, PHONE, &daemon).await.status, 200);
    bench.set_devices(&key, &daemon, json!([])).await;
    let folder = bench.stop().await;
    let bench = Bench::on(folder, |_| {}).await;
    assert_eq!(open(&bench, PHONE, &daemon).await.refusal(), UNKNOWN);
}

#[tokio::test]
async fn unknown_devices_slow_down_their_address_and_never_a_known_device() {
    let bench = Bench::with(|config| config.limits.failures_per_address = only(3)).await;
    let (key, daemon) = paired(&bench).await;
    assert_eq!(bench.open("bck_guess", &daemon).await.refusal(), (401, "unauthorized"));
    for seed in [TABLET, 250] {
        assert_eq!(open(&bench, seed, &daemon).await.refusal(), UNKNOWN);
    }
    let mut forged = signed(PHONE, &daemon, now());
    forged["device"]["signature"] = json!("A".repeat(86));
    for body in [signed(TABLET, &daemon, now()), forged] {
        let refused = ask(&bench, body).await;
        assert_eq!(refused.refusal(), (429, "rate_limited"));
        assert!(!refused.header("retry-after").is_empty());
    }
    assert_eq!(bench.open("bck_guess", &daemon).await.refusal(), (429, "rate_limited"));
    assert_eq!(open(&bench, PHONE, &daemon).await.status, 200);
    assert_eq!(bench.open(&key, &daemon).await.status, 200);
    bench.set_devices(&key, &daemon, json!([entry(TABLET)])).await;
    assert_eq!(open(&bench, TABLET, &daemon).await.status, 200, "registered a moment later");
}

#[tokio::test]
async fn a_wrong_clock_is_not_counted_as_a_guess() {
    let bench = Bench::with(|config| config.limits.failures_per_address = only(1)).await;
    let (_, daemon) = paired(&bench).await;
    for _ in 0..3 {
        assert_eq!(ask(&bench, signed(PHONE, &daemon, 7)).await.refusal(), (401, "clock_skew"));
    }
    assert_eq!(open(&bench, TABLET, &daemon).await.refusal(), UNKNOWN);
}

#[tokio::test]
async fn tokens_are_bounded_for_each_device() {
    let bench = Bench::with(|config| config.limits.tokens_per_device = only(2)).await;
    let (key, daemon) = paired(&bench).await;
    bench.set_devices(&key, &daemon, json!([entry(PHONE), entry(TABLET)])).await;
    for _ in 0..2 {
        assert_eq!(open(&bench, PHONE, &daemon).await.status, 200);
    }
    assert_eq!(open(&bench, PHONE, &daemon).await.refusal(), (429, "rate_limited"));
    assert_eq!(open(&bench, TABLET, &daemon).await.status, 200);
    assert_eq!(bench.open(&key, &daemon).await.status, 200);
}

#[tokio::test]
async fn changes_of_devices_are_in_the_audit_log_and_the_same_set_again_is_none() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    for _ in 0..3 {
        bench.set_devices(&key, &daemon, json!([entry(PHONE)])).await;
    }
    bench.set_devices(&key, &daemon, json!([entry(TABLET), entry(PHONE)])).await;
    bench.set_devices(&key, &daemon, json!([entry(PHONE), entry(TABLET), entry(PHONE)])).await;
    for device in [PHONE, TABLET] {
        assert_eq!(open(&bench, device, &daemon).await.status, 200);
    }
    assert_eq!(bench.open(&key, &daemon).await.status, 200);
    let log = bench.registry().audit(100).unwrap();
    let log: Vec<_> = log
        .iter()
        .rev()
        .map(|row| (row.actor.as_str(), row.event.as_str(), row.subject.as_str(), row.count))
        .collect();
    let expected = [
        ("operator", "user_added", "alice", 1),
        ("alice", "daemon_registered", daemon.as_str(), 1),
        ("alice", "devices_changed", daemon.as_str(), 2),
        ("alice", "session_issued", daemon.as_str(), 3),
    ];
    assert_eq!(log, expected);
}

#[tokio::test]
async fn devices_of_a_revoked_daemon_are_forgotten() {
    let bench = Bench::start().await;
    let (key, daemon) = paired(&bench).await;
    let other = bench.daemon(&key, 2).await;
    bench.set_devices(&key, &other, json!([entry(PHONE), entry(TABLET)])).await;
    let database = rusqlite::Connection::open(bench.folder.path().join(FILE)).unwrap();
    let count = || -> u32 {
        database.query_row("SELECT count(*) FROM device_keys", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(), 3);
    bench.revoke(&key, &daemon).await;
    assert_eq!(count(), 2);
    bench.registry().revoke_user("alice", now()).unwrap();
    assert_eq!(count(), 0);
}
