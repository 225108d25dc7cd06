//! What belongs to whom: sessions, memory, exports, devices (G20); and who is let in without a key.

use std::sync::Arc;

use bowline_gateway::config::Loopback;
use bowline_store::sqlite::Sqlite;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, DEADLINE, LOCAL_KEY, Session, list, plain, turn};
use crate::people::{call, get, person, session_of};

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
