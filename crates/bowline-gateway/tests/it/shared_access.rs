//! Two gateways on one store: what is changed at one holds at the other, without a restart.

use std::sync::Arc;
use std::time::Duration;

use bowline_gateway::config::{Config, Loopback};
use bowline_gateway::identity_file;
use bowline_store::sqlite::Sqlite;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, LOCAL_KEY, Phone, Session, eventually, list, plain, turn};
use crate::people::{add_user, call, get, key, person, session_of, share};
use crate::roaming::IMPORT;

impl Bench {
    /// Two replicas: gateways on one store, the first one and the second.
    pub(crate) async fn two(change: impl Fn(&mut Config, usize)) -> [Self; 2] {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path()).unwrap().for_several_gateways();
        let store = Arc::new(store);
        let first = Self::on(Arc::clone(&store), folder, |config| change(config, 0)).await;
        // They have the same identity.
        let folder = tempfile::tempdir().unwrap();
        let name = identity_file::IDENTITY_FILE;
        std::fs::copy(first.folder.path().join(name), folder.path().join(name)).unwrap();
        [first, Self::on(store, folder, |config| change(config, 1)).await]
    }
}

async fn replicas() -> [Bench; 2] {
    Bench::two(|_, _| {}).await
}

/// A surface that attached with that key.
async fn attached(bench: &Bench, session: &Session, key: &str) -> Phone {
    let session = Session { token: key.into(), ..session.clone() };
    bench.attach(&session).await.0
}

async fn is_cut_off(mut phone: Phone) {
    phone.until("FORBIDDEN").await;
    assert_eq!(phone.closed().await, 4003);
}

#[tokio::test]
async fn g20_a_key_that_is_revoked_at_one_replica_opens_nothing_at_the_other() {
    let [a, b] = replicas().await;
    let ada = person(&a, "ada").await;
    let session = session_of(&b, &ada.key).await;
    let phone = attached(&b, &session, &ada.key).await;
    let revoked =
        call(&a, LOCAL_KEY, Method::DELETE, &format!("/v1/keys/{}", ada.id), Value::Null).await;
    assert_eq!(revoked.status, 204, "{}", revoked.text);
    is_cut_off(phone).await;
    assert_eq!(get(&b, &ada.key, "/v1/sessions").await.status, 403);
}

#[tokio::test]
async fn g20_a_user_who_is_disabled_at_one_replica_is_cut_off_at_the_other() {
    let [a, b] = replicas().await;
    let ada = person(&a, "ada").await;
    let session = session_of(&a, &ada.key).await;
    // By the session's token, which has no key that could be looked up.
    let (phone, _) = b.attach(&session).await;
    let disable = json!({ "disabled": true });
    let disabled = call(&a, LOCAL_KEY, Method::PATCH, "/v1/users/ada", disable).await;
    assert_eq!(disabled.status, 200, "{}", disabled.text);
    is_cut_off(phone).await;
    assert_eq!(get(&b, &ada.key, "/v1/sessions").await.status, 403);
    assert_ne!(get(&b, &session.token, &format!("/v1/sessions/{}", session.id)).await.status, 200);
}

#[tokio::test]
async fn g20_a_token_that_is_replaced_at_one_replica_opens_nothing_at_the_other() {
    let [a, b] = replicas().await;
    let session = a.session().await;
    let (phone, _) = b.attach(&session).await;
    let path = format!("/v1/sessions/{}/token", session.id);
    let made = call(&a, LOCAL_KEY, Method::POST, &path, Value::Null).await;
    assert_eq!(made.status, 200, "{}", made.text);
    is_cut_off(phone).await;
    let (_phone, _) = b.attach(&Session::of(&made.body)).await;
}

#[tokio::test]
async fn g20_a_session_that_is_not_shared_any_more_is_closed_to_its_guest_at_the_other_replica() {
    let [a, b] = replicas().await;
    let (ada, bob) = (person(&a, "ada").await, person(&a, "bob").await);
    let session = session_of(&a, &ada.key).await;
    share(&a, &ada.key, &session, "bob", "talk").await;
    let phone = attached(&b, &session, &bob.key).await;
    let path = format!("/v1/sessions/{}/shares/bob", session.id);
    let unshared = call(&a, &ada.key, Method::DELETE, &path, Value::Null).await;
    assert_eq!(unshared.status, 204, "{}", unshared.text);
    is_cut_off(phone).await;
}

#[tokio::test]
async fn g20_the_first_user_closes_every_replica() {
    let [a, b] = Bench::two(|config, _| config.access.loopback = Loopback::Auto).await;
    assert_eq!(b.get("/v1/sessions").await.status, 200);
    add_user(&a, "ada").await;
    eventually("the other replica asks for a key", async || {
        b.get("/v1/sessions").await.status == 401
    })
    .await;
    assert!(!b.gateway.is_open());
}

#[tokio::test]
async fn what_is_spent_at_one_replica_is_used_up_at_the_other() {
    let [a, b] = replicas().await;
    let ada = person(&a, "ada").await;
    let limits = json!({ "limits": { "tokens_per_day": 1 } });
    assert_eq!(call(&a, LOCAL_KEY, Method::PATCH, "/v1/users/ada", limits).await.status, 200);
    let ask = async |bench: &Bench| {
        call(bench, &ada.key, Method::POST, "/v1/chat/completions", plain("m", "echo x")).await
    };
    assert_eq!(ask(&a).await.status, 200);
    // The other one learns of the limit, and of what was spent, by itself.
    eventually("the other replica refuses", async || ask(&b).await.status == 429).await;
    let limits = json!({ "limits": { "tokens_per_day": "none" } });
    assert_eq!(call(&b, LOCAL_KEY, Method::PATCH, "/v1/users/ada", limits).await.status, 200);
    eventually("the first one lets it pass", async || ask(&a).await.status == 200).await;
}

#[tokio::test]
async fn turns_that_run_at_one_replica_count_at_the_other() {
    let [a, b] = Bench::two(|config, _| config.offline.pace = Duration::from_millis(20)).await;
    add_user(&a, "ada").await;
    let ada = key(&a, "ada", json!({ "limits": { "turns_at_once": 1 } })).await;
    let running = session_of(&a, &ada.key).await;
    let mut phone = attached(&a, &running, &ada.key).await;
    let long =
        json!({ "type": "USER_MESSAGE", "client_turn_id": "a", "content": "count to 10000" });
    phone.send(long).await;
    phone.until("TURN_CHUNK").await;
    let other = session_of(&b, &ada.key).await;
    let ask = async || {
        let body = turn(&other, "m", "echo x");
        call(&b, &ada.key, Method::POST, "/v1/chat/completions", body).await.status
    };
    eventually("the other replica refuses", async || ask().await == 429).await;
    phone.send(json!({ "type": "CANCEL_TURN" })).await;
    eventually("the other replica lets it run", async || ask().await == 200).await;
}

#[tokio::test]
async fn a_signing_key_that_is_made_at_one_replica_verifies_at_the_other_at_once() {
    let [a, b] = replicas().await;
    let rotate = async |bench: &Bench| {
        let rotated =
            call(bench, LOCAL_KEY, Method::POST, "/v1/sbp/keys/rotate", Value::Null).await;
        assert_eq!(rotated.status, 200, "{}", rotated.text);
    };
    let session = a.session_with(1).await;
    let before = a.token_of(&session).await;
    rotate(&a).await;
    let after = a.token_of(&session).await;
    for token in [after, before] {
        let imported = b.post(IMPORT, json!({ "roaming_token": token })).await;
        assert_eq!(imported.status, 201, "{}", imported.text);
    }
    // Both make keys at once: each knows all of them.
    tokio::join!(rotate(&a), rotate(&b));
    for (from, to) in [(&a, &b), (&b, &a)] {
        let token = from.token_of(&session).await;
        eventually("the other replica knows the key", async || {
            to.inspect(&token).await.status == 200
        })
        .await;
    }
}

#[tokio::test]
async fn g13_a_replica_says_who_it_is_and_what_is_degraded() {
    let [a, b] = replicas().await;
    let mut ids = Vec::new();
    for bench in [&a, &b] {
        let ready = bench.get("/readyz").await;
        assert_eq!((ready.status, &ready.body["degraded"]), (200, &json!([])));
        let listed = list(&get(bench, LOCAL_KEY, "/v1/replicas").await.body["replicas"]);
        assert_eq!(listed.len(), 2, "{listed:?}");
        let answers: Vec<_> = listed.iter().filter(|one| one["answers"] == true).collect();
        assert_eq!((answers.len(), &answers[0]["replica"]), (1, &ready.body["replica"]));
        ids.push(ready.body["replica"].clone());
    }
    assert_ne!(ids[0], ids[1]);
}
