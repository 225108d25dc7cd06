//! Users' keys: scopes, agents, models, expiry, revocation, and what is not handed out to them (G20, G21).

use bowline_gateway::config::Loopback;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, LOCAL_KEY, Session, eventually, list, plain, turn};
use crate::people::{add_user, call, get, key, person, session_of};

#[tokio::test]
async fn g20_a_revoked_or_expired_key_opens_nothing_and_its_surfaces_are_cut_off() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    let by_key = Session { token: ada.key.clone(), ..session.clone() };
    let (mut phone, _) = bench.attach_as(&by_key, json!({})).await;
    let keys = get(&bench, LOCAL_KEY, "/v1/keys?user=ada").await;
    let known = &list(&keys.body["keys"])[0];
    assert_eq!((&known["id"], &known["user"]), (&json!(ada.id), &json!("ada")));
    assert!(!known["last_used_at"].is_null() && known["revoked_at"].is_null(), "{known}");
    assert!(!keys.text.contains(&ada.key), "its secret is shown once");
    let path = format!("/v1/keys/{}", ada.id);
    assert_eq!(call(&bench, LOCAL_KEY, Method::DELETE, &path, Value::Null).await.status, 204);
    assert_eq!(call(&bench, LOCAL_KEY, Method::DELETE, &path, Value::Null).await.status, 404);
    assert_eq!(get(&bench, &ada.key, "/v1/sessions").await.status, 403);
    assert_eq!(phone.next().await["type"], "FORBIDDEN");
    assert_eq!(phone.closed().await, 4003);
    // The session's own token was not made from the key.
    bench.attach(&session).await;
    let short = key(&bench, "ada", json!({ "expires_in": 1 })).await;
    eventually("it expires", async || get(&bench, &short.key, "/v1/sessions").await.status == 403)
        .await;
}

#[tokio::test]
async fn g20_a_key_is_for_its_agents_and_models() {
    let bench = Bench::start().await;
    add_user(&bench, "ada").await;
    let limits = json!({ "agents": ["cook", "travel-*"], "models": ["small*"] });
    let ada = key(&bench, "ada", limits).await;
    let made = |agent: &str| json!({ "agent_id": agent });
    for (agent, status) in [("cook", 201), ("travel-france", 201), ("banker", 403)] {
        let said = call(&bench, &ada.key, Method::POST, "/v1/sessions", made(agent)).await;
        assert_eq!(said.status, status, "{agent}: {}", said.text);
        let path = format!("/v1/agents/{agent}/memory");
        let read = get(&bench, &ada.key, &path).await.status;
        assert_eq!(read, if status == 201 { 200 } else { 403 });
    }
    let session = call(&bench, &ada.key, Method::POST, "/v1/sessions", made("cook")).await;
    let session = Session::of(&session.body);
    // On a socket, too, where a message may name no model.
    let by_key = Session { token: ada.key.clone(), ..session.clone() };
    assert_eq!(session.token, "", "a token knows no limits");
    let (mut phone, _) = bench.attach_as(&by_key, json!({})).await;
    for (n, model) in [Some("small-1"), None, Some("large")].into_iter().enumerate() {
        let mut message = json!({ "type": "USER_MESSAGE", "content": "echo x" });
        message["client_turn_id"] = json!(n.to_string());
        message["model"] = json!(model);
        phone.send(message).await;
        let answer = if n == 0 { "TURN_ACCEPTED" } else { "TURN_FAILED" };
        phone.until(answer).await;
    }
    let device = format!("/v1/sessions/{}/surfaces", session.id);
    let refused = call(&bench, &ada.key, Method::POST, &device, json!({})).await;
    assert_eq!(refused.status, 403, "nor does a device's: {}", refused.text);
    let twice = r#"{"model":"small-1","input":"x","model":"large"}"#;
    let request = bench.http.post(bench.url("/v1/embeddings")).bearer_auth(&ada.key);
    let refused = request.header("content-type", "application/json").body(twice).send().await;
    assert_eq!(refused.unwrap().status(), 403);
    for (model, status) in [("small-1", 200), ("large", 403)] {
        let bodies = [plain(model, "echo x"), turn(&session, model, "echo x")];
        for body in bodies {
            let said = call(&bench, &ada.key, Method::POST, "/v1/chat/completions", body).await;
            assert_eq!(said.status, status, "{model}: {}", said.text);
        }
    }
}

#[tokio::test]
async fn g20_a_key_gets_no_token_that_may_do_more() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let full = session_of(&bench, &ada.key).await;
    assert!(full.token.starts_with("sbt_"));
    let short = key(&bench, "ada", json!({ "expires_in": 3600 })).await;
    assert_eq!(session_of(&bench, &short.key).await.token, "", "it would outlive the key");
    let talks = key(&bench, "ada", json!({ "scopes": ["turns"] })).await;
    let takes = key(&bench, "ada", json!({ "scopes": ["export"] })).await;
    let made = session_of(&bench, &talks.key).await;
    assert_eq!(made.token, "");
    let said =
        call(&bench, &talks.key, Method::POST, "/v1/chat/completions", turn(&full, "m", "echo a"));
    let said = said.await;
    assert_eq!((said.status, said.header("x-session-token")), (200, ""), "{}", said.text);
    let one = format!("/v1/sessions/{}", full.id);
    for (key, path, body) in [
        (&talks.key, format!("{one}/surfaces"), json!({})),
        (&talks.key, "/v1/sessions".to_owned(), json!({ "session_token": "x".repeat(40) })),
    ] {
        let refused = call(&bench, key, Method::POST, &path, body).await;
        assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "{path}: {}", refused.text);
    }
    add_user(&bench, "bob").await;
    let shares = format!("{one}/shares/bob");
    for (scope, status) in [("read", 403), ("talk", 403)] {
        let said = call(&bench, &talks.key, Method::PUT, &shares, json!({ "scope": scope })).await;
        assert_eq!(said.status, status, "{scope}: {}", said.text);
    }
    let forked = call(&bench, &takes.key, Method::POST, &format!("{one}/fork"), json!({})).await;
    assert_eq!(
        (forked.status, &forked.body["session_token"]),
        (201, &json!("")),
        "{}",
        forked.text
    );
    // A token is not for the user's memory, also where it is in an older bundle.
    let memory = json!({ "memories": [{ "text": "a secret" }] });
    call(&bench, &ada.key, Method::POST, "/v1/agents/default/memory", memory).await;
    let exported = call(&bench, &ada.key, Method::POST, &format!("{one}/export"), json!({})).await;
    let id = exported.body["export_id"].as_str().unwrap();
    let bundle = format!("{one}/exports/{id}/bundle");
    for (shown, status) in [(&full.token, 403), (&takes.key, 403), (&ada.key, 200)] {
        let said = get(&bench, shown, &bundle).await;
        assert_eq!(said.status, status, "{}", said.text);
    }
}

#[tokio::test]
async fn g20_a_wrong_key_is_nobody_also_where_the_gateway_is_open() {
    let bench = Bench::with(|config| config.access.loopback = Loopback::Open).await;
    let ada = person(&bench, "ada").await;
    let path = format!("/v1/keys/{}", ada.id);
    call(&bench, LOCAL_KEY, Method::DELETE, &path, Value::Null).await;
    assert_eq!(get(&bench, &ada.key, "/v1/sessions").await.status, 403);
    let chat = plain("m", "echo x");
    let said = call(&bench, &ada.key, Method::POST, "/v1/chat/completions", chat).await;
    assert_eq!(said.status, 403, "{}", said.text);
    // A user that could not be added closes nothing.
    let open = Bench::start().await;
    assert_eq!(open.post_as_owner("/v1/users", json!({ "name": "owner" })).await.status, 409);
    assert_eq!(open.get("/v1/sessions").await.status, 200);
}

#[tokio::test]
async fn g20_keys_have_no_more_than_their_users_role() {
    let bench = Bench::start().await;
    add_user(&bench, "ada").await;
    let asked = json!({ "user": "ada", "name": "x", "scopes": ["read", "admin"] });
    let refused = bench.post_as_owner("/v1/keys", asked).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    for wrong in [
        json!({ "user": "nobody", "name": "x" }),
        json!({ "user": "ada", "name": "" }),
        json!({ "user": "ada", "name": "x", "scopes": ["root"] }),
        json!({ "user": "ada", "name": "x", "scopes": [] }),
        json!({ "user": "ada", "name": "x", "expires_in": 0 }),
    ] {
        let refused = bench.post_as_owner("/v1/keys", wrong.clone()).await.status;
        assert!((400..500).contains(&refused), "{wrong}");
    }
    let taken = bench.post_as_owner("/v1/users", json!({ "name": "ADA" })).await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    let admin = bench.post_as_owner("/v1/keys", json!({ "name": "x", "scopes": ["admin"] })).await;
    let admin = admin.body["key"].as_str().unwrap();
    assert_eq!(get(&bench, admin, "/v1/users").await.status, 200);
    assert_eq!(
        get(&bench, admin, "/v1/sessions").await.status,
        403,
        "it manages, and reads nothing"
    );
}

#[tokio::test]
async fn g21_a_token_never_approves() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let id = Uuid::now_v7();
    phone.send(json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": true })).await;
    let refused = phone.until("PROTOCOL_ERROR").await.pop().unwrap();
    assert!(refused["detail"].as_str().unwrap().contains("`approve`"), "{refused}");
    let path = format!("/v1/sessions/{}/approvals/{id}", session.id);
    let decision = json!({ "approved": true });
    for (shown, status) in [(session.token.as_str(), 403), (LOCAL_KEY, 404)] {
        let said = call(&bench, shown, Method::POST, &path, decision.clone()).await;
        assert_eq!(said.status, status, "{}", said.text);
    }
    assert_eq!(bench.post(&path, decision).await.status, 403, "nor does whoever comes");
}
