//! Clients get a token for a daemon of their own, and for no other.

use bowline_sbrp::token::{Admission, ClientPass};
use serde_json::{Value, json};

use crate::control::bench::{Bench, RELAY, identity, now};
use reqwest::Method;

async fn pass(bench: &Bench, token: &str) -> ClientPass {
    match bench.admit(token).await.unwrap() {
        Admission::Client(pass) => pass,
        Admission::Daemon(_) => panic!("a daemon's token"),
    }
}

#[tokio::test]
async fn an_owner_gets_a_token_that_a_relay_takes_for_two_minutes() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let opened = bench.open(&key, &daemon).await;
    assert_eq!((opened.status, opened.text_of("relayUrl").as_str()), (200, RELAY));
    assert_eq!(opened.header("cache-control"), "no-store");
    let left = opened.body["expiresAt"].as_u64().unwrap() - now();
    assert!((90..=120).contains(&left), "{left}");
    let first = pass(&bench, &opened.text_of("token")).await;
    assert_eq!(first.daemon.as_str(), daemon);
    assert_eq!(first.session.to_string(), opened.text_of("sessionId"));
    assert_eq!(first.user, bench.registry().users().unwrap()[0].id, "not by name");

    let second = bench.open(&key, &daemon).await;
    let second = pass(&bench, &second.text_of("token")).await;
    assert_ne!(second.session, first.session);
    assert_eq!(second.user, first.user);
}

#[tokio::test]
async fn anothers_daemon_is_as_good_as_none() {
    let bench = Bench::start().await;
    let (alice, mallory) = (bench.user("alice"), bench.user("mallory"));
    let daemon = bench.daemon(&alice, 1).await;
    let gone = bench.daemon(&alice, 2).await;
    assert_eq!(bench.revoke(&alice, &gone).await.status, 204);
    let none = "00000000-0000-4000-8000-000000000000";
    for id in [daemon.as_str(), gone.as_str()] {
        let pairs = [
            (bench.open(&mallory, id).await, bench.open(&mallory, none).await),
            (bench.renew(&mallory, id).await, bench.renew(&mallory, none).await),
            (bench.revoke(&mallory, id).await, bench.revoke(&mallory, none).await),
            (
                bench.set_devices(&mallory, id, json!([])).await,
                bench.set_devices(&mallory, none, json!([])).await,
            ),
        ];
        for (theirs, none) in pairs {
            assert_eq!(theirs.refusal(), (404, "not_found"));
            assert_eq!(theirs.text, none.text, "ids cannot be probed");
        }
    }
    assert_eq!(bench.open(&alice, &daemon).await.status, 200, "and it is still in force");
}

#[tokio::test]
async fn everyone_sees_their_own_daemons() {
    let bench = Bench::with(unreachable_relay).await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    assert_eq!(bench.get("/api/daemons", Some(&alice)).await.body, json!([]));
    let body = json!({ "apiKey": alice, "identityPublicKey": identity(1), "name": "laptop" });
    let laptop = bench.register_as(body).await.text_of("daemonId");
    let server = bench.daemon(&alice, 2).await;
    bench.daemon(&bob, 3).await;
    let seen = bench.get("/api/daemons", Some(&alice)).await;
    assert_eq!(
        seen.body,
        json!([
            { "id": laptop, "identityPublicKey": identity(1), "status": "unknown",
              "name": "laptop" },
            { "id": server, "identityPublicKey": identity(2), "status": "unknown" },
        ])
    );
    assert_eq!(bench.get("/api/daemons", Some(&bob)).await.body.as_array().unwrap().len(), 1);
}

pub(crate) fn unreachable_relay(config: &mut bowline_relay::control::ControlConfig) {
    config.relay_url = "ws://127.0.0.1:1/relay".parse().unwrap();
}

#[tokio::test]
async fn without_a_key_there_is_nothing() {
    let bench = Bench::start().await;
    let daemon = bench.daemon(&bench.user("alice"), 1).await;
    let calls = [
        (Method::GET, "/api/daemons".to_owned()),
        (Method::POST, format!("/api/daemons/{daemon}/presence")),
        (Method::DELETE, format!("/api/daemons/{daemon}")),
        (Method::PATCH, format!("/api/daemons/{daemon}")),
        (Method::PUT, format!("/api/daemons/{daemon}/devices")),
        (Method::POST, "/api/sessions".to_owned()),
    ];
    for (method, path) in calls {
        for key in [None, Some("bck_of-nobody")] {
            let body = Some(json!({ "daemonId": daemon, "name": "x" }));
            let refused = bench.call(method.clone(), &path, key, body).await;
            assert_eq!(refused.refusal(), (401, "unauthorized"), "{method} {path} {key:?}");
            assert_eq!(refused.header("www-authenticate"), "Bearer");
        }
    }
    let request = bench.http.get(format!("{}/api/daemons", bench.url));
    let basic = request.header("authorization", "Basic YWxpY2U6").send().await.unwrap();
    assert_eq!(basic.status(), 401, "another scheme is none");
}

#[tokio::test]
async fn an_owner_and_nobody_else_gives_a_daemon_another_name() {
    let bench = Bench::with(unreachable_relay).await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    let daemon = bench.daemon(&alice, 1).await;
    let named = async || bench.get("/api/daemons", Some(&alice)).await.body[0]["name"].clone();
    assert_eq!(bench.rename(&alice, &daemon, json!({ "name": " workshop " })).await.status, 204);
    assert_eq!(named().await, "workshop");
    let refused = bench.rename(&bob, &daemon, json!({ "name": "mine" })).await;
    assert_eq!(refused.refusal(), (404, "not_found"));
    for body in [json!({}), json!({ "name": "" }), json!({ "name": 5 }), json!([])] {
        let refused = bench.rename(&alice, &daemon, body).await;
        assert_eq!(refused.refusal(), (400, "invalid_request"));
    }
    assert_eq!(named().await, "workshop");
    assert_eq!(bench.revoke(&alice, &daemon).await.status, 204);
    let refused = bench.rename(&alice, &daemon, json!({ "name": "late" })).await;
    assert_eq!(refused.refusal(), (403, "forbidden"));
}

#[tokio::test]
async fn a_session_without_a_daemon_is_refused() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    for body in [json!({}), json!({ "daemonId": "" }), json!({ "daemonId": 5 }), json!([])] {
        let refused = bench.call(Method::POST, "/api/sessions", Some(&key), Some(body)).await;
        assert_eq!(refused.refusal(), (400, "invalid_request"));
    }
    let refused = bench.call(Method::POST, "/api/sessions", Some(&key), None).await;
    assert_eq!(refused.refusal(), (400, "invalid_request"));
    assert_eq!(bench.open(&key, "no-such-daemon").await.refusal(), (404, "not_found"));
    let long = bench.renew(&key, &"x".repeat(4000)).await;
    assert_eq!(long.refusal(), (404, "not_found"));
}

#[tokio::test]
async fn who_did_what_is_written_down() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    for _ in 0..3 {
        assert_eq!(bench.renew(&key, &daemon).await.status, 200);
    }
    for _ in 0..2 {
        assert_eq!(bench.open(&key, &daemon).await.status, 200);
    }
    assert_eq!(bench.revoke(&key, &daemon).await.status, 204);
    assert_eq!(bench.revoke(&key, &daemon).await.status, 204, "again changes nothing");
    bench.registry().rotate(now()).unwrap();
    bench.get("/api/daemons", Some("bck_of-nobody")).await;
    bench.get("/api/daemons", None).await;
    let folder = bench.stop().await;
    let mut registry = crate::control::bench::registry(folder.path());
    registry.revoke_user("alice", now()).unwrap();

    let mut log = registry.audit(100).unwrap();
    log.reverse();
    let log: Vec<_> = log
        .iter()
        .map(|r| (r.actor.as_str(), r.event.as_str(), r.subject.as_str(), r.count))
        .collect();
    let kid = registry.published(now()).unwrap()[1].0.clone();
    let expected = [
        ("operator", "user_added", "alice", 1),
        ("alice", "daemon_registered", daemon.as_str(), 1),
        ("alice", "presence_renewed", daemon.as_str(), 3),
        ("alice", "session_issued", daemon.as_str(), 2),
        ("alice", "daemon_revoked", daemon.as_str(), 1),
        ("operator", "key_rotated", kid.as_str(), 1),
        ("anyone", "refused", "unauthorized", 2),
        ("operator", "user_revoked", "alice", 1),
    ];
    assert_eq!(log, expected);
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let body = json!({ "daemonId": daemon, "later": { "x": [Value::Null] } });
    let opened = bench.call(Method::POST, "/api/sessions", Some(&key), Some(body)).await;
    assert_eq!(opened.status, 200);
}
