//! Daemons get an id and a presence token from their owner's key.

use bowline_sbrp::token::{Admission, DaemonPass, Relay};
use reqwest::Method;
use serde_json::{Value, json};

use crate::control::bench::{Bench, ISSUER, RELAY, identity, now};

fn pass(admitted: Admission) -> DaemonPass {
    match admitted {
        Admission::Daemon(pass) => pass,
        Admission::Client(_) => panic!("a client's token"),
    }
}

#[tokio::test]
async fn a_registered_daemon_gets_a_token_that_a_relay_takes() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let made = bench.register(&key, &identity(1)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.header("cache-control"), "no-store");
    assert_eq!(made.text_of("relayUrl"), RELAY);
    let (from, until) =
        (made.body["issuedAt"].as_u64().unwrap(), made.body["expiresAt"].as_u64().unwrap());
    assert!(now() - from < 30 && until - from == 3600, "{from} {until}");
    let pass = pass(bench.admit(&made.text_of("presenceToken")).await.unwrap());
    assert_eq!(pass.daemon.as_str(), made.text_of("daemonId"));
    assert!(pass.resumable, "unless told otherwise");
    assert_eq!(pass.concurrent_sessions, None);
}

#[tokio::test]
async fn the_same_key_of_the_same_owner_is_the_same_daemon() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let id = bench.daemon(&key, 1).await;
    let body = json!({ "identityPublicKey": identity(1), "name": "laptop" });
    let path = "/api/daemons/register";
    let again = bench.call(Method::POST, path, Some(&key), Some(body)).await;
    assert_eq!((again.status, again.text_of("daemonId")), (200, id.clone()), "by Bearer as well");
    bench.admit(&again.text_of("presenceToken")).await.unwrap();
    let unnamed = bench.register(&key, &identity(1)).await;
    assert_eq!(unnamed.status, 200);
    let list = bench.registry().daemons().unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].id.as_str(), list[0].name.as_deref()), (id.as_str(), Some("laptop")));
}

#[tokio::test]
async fn whether_sessions_outlive_the_connection_is_the_daemons_choice() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let resumable = async |answer: &crate::control::bench::Answer| {
        pass(bench.admit(&answer.text_of("presenceToken")).await.unwrap()).resumable
    };
    let body = |resumable: Value| json!({ "apiKey": key, "identityPublicKey": identity(1), "resumable": resumable });
    let made = bench.register_as(body(json!(false))).await;
    assert!(!resumable(&made).await);
    let id = made.text_of("daemonId");
    assert!(!resumable(&bench.renew(&key, &id).await).await, "a renewal remembers");
    assert!(!resumable(&bench.register_as(body(Value::Null)).await).await);
    assert!(resumable(&bench.register_as(body(json!(true))).await).await);
    assert!(resumable(&bench.renew(&key, &id).await).await);
}

#[tokio::test]
async fn a_key_cannot_be_taken_from_its_owner_by_registering_it_first() {
    let bench = Bench::start().await;
    let (alice, mallory) = (bench.user("alice"), bench.user("mallory"));
    let squatted = bench.daemon(&mallory, 1).await;
    let own = bench.daemon(&alice, 1).await;
    assert_ne!(squatted, own);
    assert_eq!(bench.open(&mallory, &own).await.refusal(), (404, "not_found"));
}

#[tokio::test]
async fn registered_twice_at_once_it_is_still_one_daemon() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let identity = identity(1);
    let all = futures_util::future::join_all((0..16).map(|_| bench.register(&key, &identity)));
    let all = all.await;
    let created = all.iter().filter(|answer| answer.status == 201).count();
    let found = all.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((created, found), (1, 15));
    assert!(all.iter().all(|answer| answer.body["daemonId"] == all[0].body["daemonId"]));
}

#[tokio::test]
async fn sbrp_token_13_tokens_name_the_region() {
    let bench = Bench::with(|config| config.region = Some("eu".into())).await;
    let key = bench.user("alice");
    let made = bench.register(&key, &identity(1)).await;
    let opened = bench.open(&key, &made.text_of("daemonId")).await;
    let keys = bench.keys().await;
    for token in [made.text_of("presenceToken"), opened.text_of("token")] {
        let admit = |region: Option<&str>| {
            let relay = Relay { issuer: ISSUER.into(), region: region.map(str::to_owned) };
            relay.admit(&token, &keys, now()).is_ok()
        };
        assert!(admit(Some("eu")) && !admit(Some("us")) && !admit(None));
    }
}

#[tokio::test]
async fn a_renewal_gives_a_new_token_for_the_same_daemon() {
    let bench =
        Bench::with(|config| config.presence_ttl = std::time::Duration::from_secs(600)).await;
    let key = bench.user("alice");
    let id = bench.daemon(&key, 1).await;
    let renewed = bench.renew(&key, &id).await;
    assert_eq!((renewed.status, renewed.text_of("daemonId")), (200, id.clone()));
    let (from, until) = (&renewed.body["issuedAt"], &renewed.body["expiresAt"]);
    assert_eq!(until.as_u64().unwrap() - from.as_u64().unwrap(), 600, "as configured");
    let pass = pass(bench.admit(&renewed.text_of("presenceToken")).await.unwrap());
    assert_eq!(pass.daemon.as_str(), id);
    let noted = bench.registry().daemons().unwrap();
    assert_eq!(noted[0].presence_until, until.as_u64().unwrap());
}

#[tokio::test]
async fn what_is_wrong_with_a_registration_is_said() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let mut weak = [0; 32];
    weak[0] = 1;
    let weak = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, weak);
    for (change, code) in [
        (json!({ "apiKey": null }), (401, "unauthorized")),
        (json!({ "apiKey": "bck_of-nobody" }), (401, "unauthorized")),
        (json!({ "apiKey": "" }), (400, "invalid_request")),
        (json!({ "apiKey": 5 }), (400, "invalid_request")),
        (json!({ "identityPublicKey": null }), (400, "invalid_request")),
        (json!({ "identityPublicKey": "AAAA" }), (400, "invalid_request")),
        (json!({ "identityPublicKey": weak }), (400, "invalid_request")),
        (json!({ "name": "two\nlines" }), (400, "invalid_request")),
        (json!({ "resumable": "yes" }), (400, "invalid_request")),
    ] {
        let mut body = json!({ "apiKey": key, "identityPublicKey": identity(1) });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = bench.register_as(body).await;
        assert_eq!(refused.refusal(), code, "{change}");
        if code.0 == 401 {
            assert_eq!(refused.header("www-authenticate"), "Bearer");
        }
    }
    assert_eq!(bench.registry().daemons().unwrap(), [], "nothing half-done stays");
}

#[tokio::test]
async fn g11_a_user_has_a_bounded_number_of_daemons() {
    let bench = Bench::with(|config| config.limits.daemons_per_user = 2).await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    let first = bench.daemon(&alice, 1).await;
    bench.daemon(&alice, 2).await;
    assert_eq!(bench.register(&alice, &identity(3)).await.refusal(), (403, "forbidden"));
    assert_eq!(bench.register(&alice, &identity(2)).await.status, 200, "known ones go on");
    bench.daemon(&bob, 3).await;
    assert_eq!(bench.revoke(&alice, &first).await.status, 204);
    bench.daemon(&alice, 3).await;
}
