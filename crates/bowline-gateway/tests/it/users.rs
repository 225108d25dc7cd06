//! Users, their keys, and what belongs to whom (G20).

use std::sync::Arc;

use bowline_gateway::config::Loopback;
use bowline_sbp::access::{
    Action, Credential, CredentialId, CredentialKind, OWNER, Relation, Scope,
};
use bowline_sbp::access::{Authorization, Scopes, Share, may};
use bowline_sbp::id::UserId;
use bowline_store::sqlite::Sqlite;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{
    Answer, Bench, DEADLINE, LOCAL_KEY, Session, eventually, hello, list, plain, turn,
};
use crate::operations::documented;

/// A user with a key.
#[derive(Debug, Clone)]
struct Person {
    key: String,
    id: String,
}

async fn add_user(bench: &Bench, name: &str) {
    let added = bench.post_as_owner("/v1/users", json!({ "name": name })).await;
    assert_eq!(added.status, 201, "{}", added.text);
}

async fn key(bench: &Bench, user: &str, more: Value) -> Person {
    let mut asked = json!({ "user": user, "name": "laptop" });
    asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = bench.post_as_owner("/v1/keys", asked).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let text = |name: &str| made.body[name].as_str().unwrap().to_owned();
    Person { key: text("key"), id: text("id") }
}

async fn person(bench: &Bench, name: &str) -> Person {
    add_user(bench, name).await;
    key(bench, name, json!({})).await
}

async fn call(bench: &Bench, key: &str, method: Method, path: &str, body: Value) -> Answer {
    let bearer = format!("Bearer {key}");
    bench.call(method, path, &[("authorization", &bearer)], &body).await
}

async fn get(bench: &Bench, key: &str, path: &str) -> Answer {
    call(bench, key, Method::GET, path, Value::Null).await
}

async fn session_of(bench: &Bench, key: &str) -> Session {
    let made = call(bench, key, Method::POST, "/v1/sessions", json!({})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    Session::of(&made.body)
}

async fn share(bench: &Bench, key: &str, session: &Session, with: &str, scope: &str) {
    let path = format!("/v1/sessions/{}/shares/{with}", session.id);
    let shared = call(bench, key, Method::PUT, &path, json!({ "scope": scope })).await;
    assert_eq!(shared.status, 200, "{}", shared.text);
}

#[tokio::test]
async fn g20_the_first_user_closes_loopback_and_disabling_never_opens_it() {
    let bench = Bench::start().await;
    assert_eq!(bench.get("/v1/sessions").await.status, 200);
    assert_eq!(bench.get("/v1/users").await.status, 403, "not by whoever comes");
    let old = bench.session().await;
    let ada = person(&bench, "ada").await;
    assert_eq!(bench.get("/v1/sessions").await.status, 401);
    // What was there is the owner's, and its token still works.
    assert_eq!(
        get(&bench, LOCAL_KEY, "/v1/sessions").await.body["sessions"][0]["session_id"],
        old.id
    );
    assert_eq!(get(&bench, &old.token, &format!("/v1/sessions/{}", old.id)).await.status, 200);
    assert!(list(&get(&bench, &ada.key, "/v1/sessions").await.body["sessions"]).is_empty());
    let disabled = json!({ "disabled": true });
    let said = call(&bench, LOCAL_KEY, Method::PATCH, "/v1/users/Ada", disabled.clone()).await;
    assert_eq!(said.status, 200, "{}", said.text);
    assert_eq!(get(&bench, &ada.key, "/v1/sessions").await.status, 403);
    assert_eq!(bench.get("/v1/sessions").await.status, 401);
    let enabled = json!({ "disabled": false });
    call(&bench, LOCAL_KEY, Method::PATCH, "/v1/users/ada", enabled).await;
    assert_eq!(get(&bench, &ada.key, "/v1/sessions").await.status, 200);
    let owner = call(&bench, LOCAL_KEY, Method::PATCH, "/v1/users/owner", disabled).await;
    assert_eq!(owner.status, 422, "{}", owner.text);
}

/// The folder of a gateway that has stopped: its last tasks may still have it for a moment.
async fn reopened(folder: &std::path::Path) -> Arc<Sqlite> {
    let begun = std::time::Instant::now();
    loop {
        match Sqlite::open(folder) {
            Ok(store) => return Arc::new(store),
            Err(error) => assert!(begun.elapsed() < DEADLINE, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn g20_a_gateway_with_users_is_closed_after_a_restart_and_the_configuration_decides() {
    let bench = Bench::start().await;
    person(&bench, "ada").await;
    let Bench { gateway, store, folder, .. } = bench;
    gateway.stop().await;
    drop(store);
    let bench = Bench::on(reopened(folder.path()).await, folder, |_| {}).await;
    assert!(!bench.gateway.is_open());
    assert_eq!(bench.get("/v1/sessions").await.status, 401);
    let Bench { gateway, store, folder, .. } = bench;
    gateway.stop().await;
    drop(store);
    let bench = Bench::on(reopened(folder.path()).await, folder, |config| {
        config.access.loopback = Loopback::Open;
    })
    .await;
    assert_eq!(bench.get("/v1/sessions").await.status, 200);
    let closed = Bench::with(|config| config.access.loopback = Loopback::Closed).await;
    assert_eq!(closed.get("/v1/sessions").await.status, 401);
}

#[tokio::test]
async fn g20_what_is_not_yours_does_not_exist() {
    let bench = Bench::start().await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let hers = session_of(&bench, &ada.key).await;
    let said = call(
        &bench,
        &ada.key,
        Method::POST,
        "/v1/chat/completions",
        turn(&hers, "m", "echo zebra"),
    );
    assert_eq!(said.await.status, 200);
    let memory = json!({ "memories": [{ "text": "likes zebras" }] });
    call(&bench, &ada.key, Method::POST, "/v1/agents/cook/memory", memory).await;
    for other in [bob.key.as_str(), LOCAL_KEY] {
        for path in [
            "/v1/sessions".to_owned(),
            format!("/v1/sessions?named={}", hers.id),
            "/v1/sessions?named=echo".to_owned(),
            "/v1/sessions/search?q=zebra".to_owned(),
            "/v1/agents/cook/memory".to_owned(),
            "/v1/agents/cook/memory?q=zebras".to_owned(),
        ] {
            let seen = get(&bench, other, &path).await;
            assert_eq!(seen.status, 200, "{}", seen.text);
            assert!(!seen.text.contains(&hers.id) && !seen.text.contains("zebra"), "{}", seen.text);
        }
        // Answered in the same way as a session that is not there.
        let nothing = Uuid::now_v7().to_string();
        for id in [&hers.id, &nothing] {
            let seen = get(&bench, other, &format!("/v1/sessions/{id}")).await;
            assert_eq!(seen.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
            let page = get(&bench, other, &format!("/v1/sessions?before={id}")).await;
            assert_eq!(page.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
            let session = Session { id: id.clone(), token: String::new() };
            let talk = turn(&session, "m", "echo x");
            let talk = call(&bench, other, Method::POST, "/v1/chat/completions", talk).await;
            assert_eq!(talk.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
        }
    }
    // Her own: all of it.
    let own = get(&bench, &ada.key, "/v1/sessions/search?q=zebra").await;
    assert!(own.text.contains(&hers.id), "{}", own.text);
    let own = get(&bench, &ada.key, "/v1/agents/cook/memory").await;
    assert_eq!(list(&own.body["memories"]).len(), 1);
}

#[tokio::test]
async fn g20_a_session_made_by_its_first_turn_or_an_import_is_its_users() {
    let bench = Bench::start().await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let mut first = plain("m", "echo a");
    first["sbp"] = json!({});
    let made = call(&bench, &ada.key, Method::POST, "/v1/chat/completions", first).await;
    let hers = Session::of(&made.body["sbp"]);
    assert_eq!(get(&bench, &ada.key, &format!("/v1/sessions/{}", hers.id)).await.status, 200);
    assert_eq!(get(&bench, &bob.key, &format!("/v1/sessions/{}", hers.id)).await.status, 404);
    let export = format!("/v1/sessions/{}/export", hers.id);
    let exported = call(&bench, &ada.key, Method::POST, &export, json!({})).await;
    let token = json!({ "roaming_token": exported.body["roaming_token"] });
    let imported = call(&bench, &bob.key, Method::POST, "/v1/sbp/sessions/import", token).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    let his = imported.body["session_id"].as_str().unwrap();
    assert_eq!(get(&bench, &bob.key, &format!("/v1/sessions/{his}")).await.status, 200);
    // She learns that it was imported, and not as what.
    for path in ["exports", "lineage"] {
        let seen = get(&bench, &ada.key, &format!("/v1/sessions/{}/{path}", hers.id)).await;
        assert_eq!(seen.status, 200, "{}", seen.text);
        assert!(!seen.text.contains(his), "{path}: {}", seen.text);
        assert!(!list(&seen.body["exports"])[0]["imported_at"].is_null());
    }
    // He knows where it came from, and not what it cost.
    let seen = get(&bench, &bob.key, &format!("/v1/sessions/{his}/lineage")).await;
    let costs = list(&seen.body["sessions"]);
    let of_hers = costs.iter().find(|cost| cost["session_id"] == hers.id.as_str()).unwrap();
    assert!(of_hers["cost_usd"].is_null(), "{of_hers}");
}

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
async fn g20_a_shared_session_gives_what_its_scope_says() {
    let bench = Bench::start().await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let hers = session_of(&bench, &ada.key).await;
    let by_bob = Session { token: bob.key.clone(), ..hers.clone() };
    let talk = async || {
        call(&bench, &bob.key, Method::POST, "/v1/chat/completions", turn(&hers, "m", "echo hi"))
            .await
    };
    share(&bench, &ada.key, &hers, "bob", "read").await;
    let seen = get(&bench, &bob.key, "/v1/sessions").await;
    assert_eq!(seen.body["sessions"][0]["session_id"], hers.id.as_str());
    assert_eq!(talk().await.refusal(), (403, "SBP_FORBIDDEN"));
    // It is read over HTTP: who attaches takes part.
    let mut phone = bench.socket(&hers.id).await;
    phone.send(hello(&by_bob, json!({}))).await;
    assert_eq!(phone.next().await["type"], "FORBIDDEN");
    assert_eq!(phone.closed().await, 4003);
    share(&bench, &ada.key, &hers, "bob", "talk").await;
    let said = talk().await;
    assert_eq!(said.status, 200, "{}", said.text);
    assert!(said.body["sbp"]["session_token"].is_null(), "not the session's token");
    assert_eq!(said.header("x-session-token"), "");
    // A surface of his stays beside hers, offers no tools, and confirms nothing for her.
    let (mut hers_phone, _) = bench.attach_as(&hers, json!({ "surface_id": "pixel" })).await;
    let mut phone = bench.socket(&hers.id).await;
    let mut attach = hello(&by_bob, json!({ "surface_id": "pixel", "mcp_tools": ["camera"] }));
    attach["take_over"] = json!(true);
    phone.send(attach).await;
    let welcome = phone.next().await;
    assert_eq!(
        (&welcome["type"], &welcome["mcp_tools_registered"]),
        (&json!("SESSION_ATTACHED"), &json!([]))
    );
    assert_ne!(welcome["surface_id"], "pixel", "not her device");
    phone.send(json!({ "type": "USER_MESSAGE", "content": "echo x", "client_turn_id": "1" })).await;
    phone.until("TURN_COMPLETE").await;
    hers_phone.until("TURN_COMPLETE").await;
    // The same request again is no way to the token either.
    let body = turn(&hers, "m", "echo again");
    for count in ["0", "1"] {
        let bearer = format!("Bearer {}", bob.key);
        let headers = [("authorization", bearer.as_str()), ("x-stainless-retry-count", count)];
        let said = bench.call(Method::POST, "/v1/chat/completions", &headers, &body).await;
        assert_eq!((said.status, said.header("x-session-token")), (200, ""), "{}", said.text);
    }
    // Her memories are not his: neither those of this agent nor of another one.
    let memory = json!({ "memories": [{ "text": "the zebra is called Zoe" }] });
    for agent in ["default", "banker"] {
        let path = format!("/v1/agents/{agent}/memory");
        call(&bench, &ada.key, Method::POST, &path, memory.clone()).await;
    }
    let mut asked = turn(&hers, "m", "what do you remember about the zebra?");
    asked["sbp"]["memory_retrieval"] = json!(true);
    let said = call(&bench, &bob.key, Method::POST, "/v1/chat/completions", asked.clone()).await;
    assert!(!said.text.contains("Zoe"), "{}", said.text);
    let bearer = format!("Bearer {}", bob.key);
    let headers = [("authorization", bearer.as_str()), ("x-agent-id", "banker")];
    let said = bench.call(Method::POST, "/v1/chat/completions", &headers, &asked).await;
    assert_eq!(said.refusal(), (403, "SBP_FORBIDDEN"), "{}", said.text);
    let lineage = get(&bench, &bob.key, &format!("/v1/sessions/{}/lineage", hers.id)).await;
    assert_eq!(lineage.body["tree"], json!([]));
    let shares = get(&bench, &ada.key, &format!("/v1/sessions/{}/shares", hers.id)).await;
    assert_eq!(shares.body["shares"], json!([{ "user": "bob", "scope": "talk" }]));
    // And back: it is gone for him.
    let path = format!("/v1/sessions/{}/shares/bob", hers.id);
    assert_eq!(call(&bench, &ada.key, Method::DELETE, &path, Value::Null).await.status, 204);
    assert_eq!(talk().await.refusal(), (404, "SBP_SESSION_NOT_FOUND"));
    phone.until("FORBIDDEN").await;
    assert_eq!(phone.closed().await, 4003);
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
async fn g20_a_disabled_users_tokens_open_nothing() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    let (mut phone, _) = bench.attach(&session).await;
    let one = format!("/v1/sessions/{}", session.id);
    assert_eq!(get(&bench, &session.token, &one).await.status, 200);
    let disabled = json!({ "disabled": true });
    call(&bench, LOCAL_KEY, Method::PATCH, "/v1/users/ada", disabled).await;
    phone.until("FORBIDDEN").await;
    assert_eq!(phone.closed().await, 4003);
    assert_eq!(get(&bench, &session.token, &one).await.status, 403);
    let chat = plain("m", "echo x");
    let said = call(&bench, &session.token, Method::POST, "/v1/chat/completions", chat).await;
    assert_eq!(said.status, 403, "{}", said.text);
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

/// What a route does. Every documented address is here: a new one fails the test below.
fn action_of(method: &Method, path: &str) -> Option<Action> {
    let path = path.replace("/v1/sbp/sessions", "/v1/sessions");
    let get = *method == Method::GET;
    Some(match path.as_str() {
        "/healthz" | "/readyz" | "/v1/sbp/token/{token}" => return None,
        path if path.starts_with("/spec/") => return None,
        // On this machine as open as the gateway is; closed here.
        "/metrics" | "/v1/sbp/keys/rotate" => Action::Operate,
        path if path.starts_with("/v1/users") || path.starts_with("/v1/keys") => {
            Action::ManageUsers
        }
        path if path.starts_with("/v1/mcp/servers") => Action::UseServers,
        path if path.starts_with("/v1/agents") && get => Action::ReadMemory,
        path if path.starts_with("/v1/agents") => Action::WriteMemory,
        "/v1/sessions" if get => Action::ListSessions,
        "/v1/sessions/search" => Action::ListSessions,
        "/v1/sessions" => Action::CreateSession,
        "/v1/sessions/import" => Action::ImportSession,
        "/v1/sessions/{id}" if get => Action::ReadSession,
        "/v1/sessions/{id}" if *method == Method::DELETE => Action::DeleteSession,
        "/v1/sessions/{id}" | "/v1/sessions/{id}/status" => Action::ChangeSession,
        "/v1/sessions/{id}/cancel" => Action::Talk,
        "/v1/sessions/{id}/turns" | "/v1/sessions/{id}/messages" => Action::ReadSession,
        "/v1/sessions/{id}/blobs/{hash}" | "/v1/sessions/{id}/lineage" => Action::ReadSession,
        "/v1/sessions/{id}/surfaces" if get => Action::ReadSession,
        path if path.starts_with("/v1/sessions/{id}/surfaces") => Action::ManageDevices,
        "/v1/sessions/{id}/approvals" => Action::ReadSession,
        "/v1/sessions/{id}/approvals/{approval_id}" => Action::Decide,
        path if path.starts_with("/v1/sessions/{id}/shares") => Action::ShareSession,
        "/v1/sessions/{id}/export"
        | "/v1/sessions/{id}/exports"
        | "/v1/sessions/{id}/fork"
        | "/v1/sessions/{id}/handoff"
        | "/v1/sessions/{id}/exports/{export_id}/bundle" => Action::TakeAway,
        "/v1/chat/completions" | "/v1/completions" | "/v1/models" | "/v1/models/{model}" => {
            Action::UseModels
        }
        path if ["embeddings", "moderations", "images", "audio"]
            .iter()
            .any(|kind| path.starts_with(&format!("/v1/{kind}"))) =>
        {
            Action::UseModels
        }
        path => panic!("{method} {path} is not in the table of this test"),
    })
}

/// What is shown, and what it stands for.
struct Shown {
    name: &'static str,
    bearer: String,
    credential: Credential,
    relation: Relation,
}

#[tokio::test]
async fn g20_every_route_asks_the_table() {
    let bench = Bench::start().await;
    let ada = person(&bench, "ada").await;
    let bob = person(&bench, "bob").await;
    let mut single = Vec::new();
    for scope in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin) {
        let made = key(&bench, "ada", json!({ "scopes": [scope.as_str()] })).await;
        single.push((scope, made.key));
    }
    let admin = bench.post_as_owner("/v1/keys", json!({ "name": "x", "scopes": ["admin"] })).await;
    let admin = admin.body["key"].as_str().unwrap().to_owned();
    let of_key = |user: UserId, scopes: Scopes| Credential {
        kind: CredentialKind::Key(CredentialId::from_bytes([1; 8])),
        user,
        scopes,
    };
    let (a, b) = (UserId(Uuid::from_u128(1)), UserId(Uuid::from_u128(2)));
    let all = Scopes::all().without(Scope::Admin);
    let document = bench.get("/openapi.json").await.body;
    let mut checked = 0;
    for (method, path) in documented(&document) {
        let Some(action) = action_of(&method, &path) else {
            assert_ne!(bench.call(method, &path, &[], &Value::Null).await.status, 401, "{path}");
            continue;
        };
        let with_all = [None, Some(Share::Read), Some(Share::Talk), Some(Share::Approve)];
        // Each on a session of its own: some actions delete it.
        let cases = with_all.into_iter().flat_map(|with| {
            let others = if with.is_none() { 5 + single.len() } else { 0 };
            (0..=others).map(move |n| (with, n))
        });
        for (with, n) in cases {
            let session = session_of(&bench, &ada.key).await;
            if let Some(with) = with {
                share(&bench, &ada.key, &session, "bob", with.as_str()).await;
            }
            let id = bowline_sbp::id::SessionId(session.id.parse().unwrap());
            let key_of_a = |scopes: &[Scope]| of_key(a, Scopes::of(scopes));
            let own = |name, bearer: &str, credential| Shown {
                name,
                bearer: bearer.to_owned(),
                credential,
                relation: Relation::Own,
            };
            let foreign = |name, bearer: &str, credential| Shown {
                relation: Relation::Foreign,
                ..own(name, bearer, credential)
            };
            let Shown { name, bearer, credential, relation } = match n {
                0 => Shown {
                    relation: with.map_or(Relation::Foreign, Relation::SharedWith),
                    ..own("bob", &bob.key, of_key(b, all))
                },
                1 => own("token", &session.token, Credential::of_session(id, a)),
                2 => {
                    let path = format!("/v1/sessions/{}/surfaces", session.id);
                    let made = call(&bench, &ada.key, Method::POST, &path, json!({})).await;
                    let token = made.body["surface_token"].as_str().unwrap();
                    own("device", token, Credential::of_device(id, a))
                }
                3 => foreign("admin", &admin, of_key(OWNER, Scopes::of(&[Scope::Admin]))),
                4 => foreign("owner", LOCAL_KEY, Credential::local()),
                5 => own("ada", &ada.key, of_key(a, all)),
                n => {
                    let (scope, key) = &single[n - 6];
                    own(scope.as_str(), key, key_of_a(&[*scope]))
                }
            };
            let expected = may(&credential, action, relation);
            let address = path
                .replace("/v1/users/{name}", "/v1/users/nobody")
                .replace("/v1/keys/{id}", "/v1/keys/nothing")
                .replace("{id}", &session.id)
                .replace("{user}", "nobody")
                .replace("{model}", "bowline/offline")
                .replace("{agent_id}", "a");
            // Sessions' tokens also list models, and take turns instead of passing through.
            if action == Action::UseModels && credential.only().is_some() {
                continue;
            }
            let body = match address.ends_with("completions") {
                true => plain("m", "echo x"),
                false => Value::Null,
            };
            let said = call(&bench, &bearer, method.clone(), &address, body).await;
            let got = match (said.status, said.body["error"]["code"].as_str()) {
                (401 | 403, _) => Authorization::Forbidden,
                (404, Some("SBP_SESSION_NOT_FOUND")) => Authorization::NotFound,
                _ => Authorization::Allowed,
            };
            assert_eq!(got, expected, "{method} {path} by {name} with {with:?}: {}", said.text);
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked}");
}

#[tokio::test]
async fn g20_an_mcp_host_sees_its_users_sessions_and_devices() {
    let bench = Bench::start().await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let hers = session_of(&bench, &ada.key).await;
    let (_phone, _) = bench.attach_as(&hers, json!({ "mcp_tools": ["camera"] })).await;
    let ask = async |key: &str, method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let bearer = format!("Bearer {key}");
        let headers =
            [("authorization", bearer.as_str()), ("accept", "application/json, text/event-stream")];
        bench.call(Method::POST, "/mcp", &headers, &body).await.text
    };
    let read = json!({ "name": "session_read", "arguments": { "session_id": hers.id } });
    let listed = json!({ "name": "sessions_list", "arguments": {} });
    let resource = json!({ "uri": format!("bowline://sessions/{}", hers.id) });
    assert!(ask(&ada.key, "tools/list", json!({})).await.contains("camera"));
    assert!(ask(&ada.key, "tools/call", listed.clone()).await.contains(&hers.id));
    for other in [bob.key.as_str(), LOCAL_KEY] {
        assert!(!ask(other, "tools/list", json!({})).await.contains("camera"));
        assert!(!ask(other, "tools/call", listed.clone()).await.contains(&hers.id));
        assert!(ask(other, "tools/call", read.clone()).await.contains("there is no such session"));
        assert!(ask(other, "resources/read", resource.clone()).await.contains("no such session"));
        assert!(!ask(other, "resources/list", json!({})).await.contains(&hers.id));
    }
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

#[tokio::test]
async fn g20_an_open_gateway_is_not_published_by_a_proxy() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let one = format!("/v1/sessions/{}", session.id);
    let proxied = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.9")];
    for header in proxied {
        for path in ["/v1/sessions", "/v1/models", "/metrics", &one] {
            let refused = bench.call(Method::GET, path, &[header], &Value::Null).await;
            assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "{path}");
            assert!(refused.text.contains("proxy"), "{}", refused.text);
        }
        let chat = plain("m", "echo x");
        let refused = bench.call(Method::POST, "/v1/chat/completions", &[header], &chat).await;
        assert_eq!(refused.status, 403, "{}", refused.text);
        // Who shows a token or key is known.
        let bearer = format!("Bearer {}", session.token);
        let shown = [header, ("authorization", bearer.as_str())];
        assert_eq!(bench.call(Method::GET, &one, &shown, &Value::Null).await.status, 200);
    }
    let meant = Bench::with(|config| config.access.loopback = Loopback::Open).await;
    let seen = meant.call(Method::GET, "/v1/sessions", &[proxied[0]], &Value::Null).await;
    assert_eq!(seen.status, 200, "{}", seen.text);
}
