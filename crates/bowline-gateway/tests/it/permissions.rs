//! Tools that ask: what runs by itself, who is asked, what a yes is for, and what is remembered (G21).

use bowline_gateway::config::{ApprovalsMode, Config, Policy, ToolRule};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, LOCAL_KEY, Phone, Session, eventually, list};
use crate::people::{call, get, key, person, session_of, share};

/// As it is without a configuration.
fn by_default(config: &mut Config) {
    config.tools.rules.clear();
    config.tools.approvals = ApprovalsMode::default();
}

async fn asking() -> Bench {
    Bench::with(by_default).await
}

fn rule(policy: Policy) -> ToolRule {
    ToolRule { user: None, agent: None, server: None, tool: None, policy, second_person: false }
}

fn camera(name: &str) -> Value {
    json!({ "surface_id": name, "mcp_tools": ["camera"] })
}

/// Has the built-in agent call the camera; the answer to the HTTP request is its answer.
fn use_camera(bench: &Bench, session: &Session, sbp: Value) -> tokio::task::JoinHandle<String> {
    let body = json!({
        "model": "bowline/offline",
        "messages": [{ "role": "user", "content": "call surface tool camera with {\"zoom\":2}" }],
        "sbp": sbp,
    });
    let url = bench.url("/v1/chat/completions");
    let request = bench.http.post(url).header("x-session-token", &session.token).json(&body);
    tokio::spawn(async move {
        let said: Value = request.send().await.unwrap().json().await.unwrap();
        said["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    })
}

async fn approvals(bench: &Bench, session: &Session) -> Vec<Value> {
    let path = format!("/v1/sessions/{}/approvals", session.id);
    list(&get(bench, LOCAL_KEY, &path).await.body["approvals"])
}

async fn takes_photo(phone: &mut Phone) {
    let called = phone.until("TOOL_CALL").await.pop().unwrap();
    assert_eq!(called["tool_input"], json!({ "zoom": 2 }));
    let (call_id, result) = (&called["call_id"], "a cat");
    phone.send(json!({ "type": "TOOL_RESULT", "call_id": call_id, "result": result })).await;
}

async fn decides(phone: &mut Phone, approved: bool, always: bool) -> Value {
    let asked = phone.until("APPROVAL_REQUEST").await.pop().unwrap();
    let id = &asked["approval_id"];
    phone
        .send(json!({
            "type": "APPROVAL_DECISION", "approval_id": id, "approved": approved, "always": always,
        }))
        .await;
    asked
}

#[tokio::test]
async fn g21_a_devices_tool_asks_and_one_person_at_one_device_says_yes_there() {
    let bench = asking().await;
    let session = bench.session().await;
    let (mut phone, hello) = bench.attach_as(&session.as_owner(), camera("phone")).await;
    assert_eq!(hello["mcp_tools_registered"], json!(["camera"]));
    for approved in [false, true] {
        let answer = use_camera(&bench, &session, json!({}));
        let asked = decides(&mut phone, approved, false).await;
        assert_eq!((&asked["tool_name"], &asked["device"]), (&json!("camera"), &json!("phone")));
        assert_eq!(asked["tool_input"], json!({ "zoom": 2 }));
        if approved {
            takes_photo(&mut phone).await;
        }
        let answer = answer.await.unwrap();
        assert_eq!(answer.contains("a cat"), approved, "{answer}");
    }
    // Who, when and from where.
    let decided = &approvals(&bench, &session).await[0];
    let decision = &decided["decision"];
    assert_eq!(decision["credential"], "local", "{decided}");
    assert_eq!(decision["from"], "127.0.0.1");
    assert!(decision["at"].is_string() && decision["user"].is_string());
    assert_eq!(decided["state"], "used");
}

#[tokio::test]
async fn g21_always_here_holds_for_session_tool_device_and_definition() {
    let bench = asking().await;
    let session = bench.session().await;
    let owner = session.as_owner();
    let (mut phone, _) = bench.attach_as(&owner, camera("phone")).await;
    let answer = use_camera(&bench, &session, json!({}));
    decides(&mut phone, true, true).await;
    takes_photo(&mut phone).await;
    assert!(answer.await.unwrap().contains("a cat"));
    // The same device again, also after it was away.
    drop(phone);
    let (mut phone, _) = bench.attach_as(&owner, camera("phone")).await;
    let answer = use_camera(&bench, &session, json!({}));
    takes_photo(&mut phone).await;
    assert!(answer.await.unwrap().contains("a cat"));
    assert_eq!(approvals(&bench, &session).await.len(), 1, "it was asked once");
    // Another device.
    let (mut tablet, _) = bench.attach_as(&owner, camera("tablet")).await;
    let answer = use_camera(&bench, &session, json!({}));
    assert_eq!(decides(&mut tablet, false, false).await["device"], "tablet");
    assert!(!answer.await.unwrap().contains("a cat"));
    drop(tablet);
    // Another definition: what changed is shown.
    let said = |about: &str| json!({ "surface_id": "phone", "mcp_tools": [{ "name": "camera", "description": about }] });
    let (mut phone, _) = bench.attach_as(&owner, said("Sends photos away.")).await;
    let answer = use_camera(&bench, &session, json!({}));
    let asked = decides(&mut phone, true, true).await;
    let now = asked["changed"]["now"].as_str().unwrap();
    assert!(now.contains("Sends photos away."), "{asked}");
    assert!(!asked["changed"]["before"].as_str().unwrap().contains("Sends"), "{asked}");
    takes_photo(&mut phone).await;
    answer.await.unwrap();
    // Another session.
    let other = bench.session().await;
    let (mut phone, _) = bench.attach_as(&other.as_owner(), camera("phone")).await;
    let answer = use_camera(&bench, &other, json!({}));
    decides(&mut phone, false, false).await;
    answer.await.unwrap();
}

#[tokio::test]
async fn g21_what_was_allowed_for_good_survives_a_restart() {
    let bench = asking().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session.as_owner(), camera("phone")).await;
    let answer = use_camera(&bench, &session, json!({}));
    decides(&mut phone, true, true).await;
    takes_photo(&mut phone).await;
    answer.await.unwrap();
    let Bench { gateway, store, folder, .. } = bench;
    drop(phone);
    gateway.stop().await;
    let bench = Bench::on(store, folder, by_default).await;
    let (mut phone, _) = bench.attach_as(&session.as_owner(), camera("phone")).await;
    let answer = use_camera(&bench, &session, json!({}));
    takes_photo(&mut phone).await;
    assert!(answer.await.unwrap().contains("a cat"));
    assert_eq!(approvals(&bench, &session).await.len(), 1);
}

#[tokio::test]
async fn g21_a_yes_is_for_the_device_that_was_shown() {
    let bench = asking().await;
    let session = bench.session().await;
    let owner = session.as_owner();
    let (mut desk, _) = bench.attach_as(&owner, json!({ "surface_id": "desk" })).await;
    let joined = |name: &str| {
        let mut frame = crate::bench::hello(&owner, camera(name));
        frame["join"] = json!(true);
        frame
    };
    let mut phone = bench.socket(&session.id).await;
    phone.send(joined("phone")).await;
    phone.until("SESSION_ATTACHED").await;
    let answer = use_camera(&bench, &session, json!({}));
    let asked = desk.until("APPROVAL_REQUEST").await.pop().unwrap();
    assert_eq!(asked["device"], "phone");
    // A newer device with a tool of that name comes before the yes.
    let mut other = bench.socket(&session.id).await;
    other.send(joined("other")).await;
    other.until("SESSION_ATTACHED").await;
    let id = &asked["approval_id"];
    desk.send(json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": true })).await;
    takes_photo(&mut phone).await;
    assert!(answer.await.unwrap().contains("a cat"));
}

#[tokio::test]
async fn g21_a_device_that_asks_by_itself_is_not_asked_for_unless_a_rule_says_so() {
    let tool = json!({ "surface_id": "phone", "mcp_tools": [{ "name": "camera", "asks": true }] });
    let bench = asking().await;
    let session = bench.session().await;
    // With a token, which may not approve: the device itself asks its user.
    let (mut phone, _) = bench.attach_as(&session, tool.clone()).await;
    let answer = use_camera(&bench, &session, json!({}));
    takes_photo(&mut phone).await;
    assert!(answer.await.unwrap().contains("a cat"));
    let bench = Bench::with(|config| {
        by_default(config);
        config.tools.rules.push(rule(Policy::Ask));
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session.as_owner(), tool).await;
    let answer = use_camera(&bench, &session, json!({}));
    decides(&mut phone, false, false).await;
    assert!(!answer.await.unwrap().contains("a cat"));
}

#[tokio::test]
async fn g21_where_nobody_can_be_asked_the_tool_says_so_at_once_and_names_the_rule() {
    let bench = asking().await;
    let session = bench.session().await;
    // A token never approves: nobody is there.
    let (mut phone, _) = bench.attach_as(&session, camera("phone")).await;
    let answer = use_camera(&bench, &session, json!({})).await.unwrap();
    assert!(answer.contains("[[tools.rules]]") && answer.contains("camera"), "{answer}");
    assert!(approvals(&bench, &session).await.is_empty());
    // Nor is a surface that may, where nobody answers.
    let mut mute = bench.socket(&session.id).await;
    let mut hello = crate::bench::hello(&session.as_owner(), json!({ "surface_id": "script" }));
    (hello["join"], hello["approves"]) = (json!(true), json!(false));
    mute.send(hello).await;
    mute.until("SESSION_ATTACHED").await;
    let answer = use_camera(&bench, &session, json!({})).await.unwrap();
    assert!(answer.contains("[[tools.rules]]"), "{answer}");
    // Who says that they wait gets an answer later, from anywhere.
    let answer = use_camera(&bench, &session, json!({ "approvals": "wait" }));
    eventually("it is asked", async || approvals(&bench, &session).await.len() == 1).await;
    let id = approvals(&bench, &session).await[0]["approval_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{}/approvals/{id}", session.id);
    let said = json!({ "approved": true });
    let decided = call(&bench, LOCAL_KEY, Method::POST, &path, said).await;
    assert_eq!(decided.status, 200, "{}", decided.text);
    takes_photo(&mut phone).await;
    assert!(answer.await.unwrap().contains("a cat"));
    let wrong = use_camera(&bench, &session, json!({ "approvals": "never" })).await.unwrap();
    assert_eq!(wrong, "", "an unknown mode is refused");
}

#[tokio::test]
async fn g21_two_people_where_a_rule_says_so() {
    let bench = Bench::with(|config| {
        by_default(config);
        config.tools.rules.push(ToolRule { second_person: true, ..rule(Policy::Ask) });
    })
    .await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let session = session_of(&bench, &ada.key).await;
    share(&bench, &ada.key, &session, "bob", "approve").await;
    let by = |key: &str| Session { token: key.to_owned(), ..session.clone() };
    let (mut phone, _) = bench.attach_as(&by(&ada.key), camera("phone")).await;
    // Only ada is there: nobody who may approve can be reached.
    let answer = use_camera(&bench, &session, json!({})).await.unwrap();
    assert!(answer.contains("[[tools.rules]]"), "{answer}");
    let (mut desk, _) = bench.attach_as(&by(&bob.key), json!({ "surface_id": "desk" })).await;
    let answer = use_camera(&bench, &session, json!({}));
    let asked = desk.until("APPROVAL_REQUEST").await.pop().unwrap();
    assert_eq!(asked["second_person"], true);
    let path =
        format!("/v1/sessions/{}/approvals/{}", session.id, asked["approval_id"].as_str().unwrap());
    let yes = || json!({ "approved": true, "always": true });
    let refused = call(&bench, &ada.key, Method::POST, &path, yes()).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert_eq!(call(&bench, &bob.key, Method::POST, &path, yes()).await.status, 200);
    takes_photo(&mut phone).await;
    answer.await.unwrap();
    // "Always" is no answer to a question for two.
    let answer = use_camera(&bench, &session, json!({}));
    decides(&mut desk, false, false).await;
    answer.await.unwrap();
}

#[tokio::test]
async fn g21_an_mcp_host_does_not_approve_the_call_it_made() {
    let bench = asking().await;
    let ada = person(&bench, "ada").await;
    let session = session_of(&bench, &ada.key).await;
    let host = key(&bench, "ada", json!({})).await;
    let by_key = Session { token: ada.key.clone(), ..session.clone() };
    let (mut phone, _) = bench.attach_as(&by_key, camera("phone")).await;
    let short = session.id.replace('-', "");
    let name = format!("{}_camera", &short[short.len() - 7..]);
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": name, "arguments": { "zoom": 2 } },
    });
    let request = bench.http.post(bench.url("/mcp")).bearer_auth(&host.key).json(&body);
    let request = request.header("accept", "application/json, text/event-stream");
    let called = tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    let asked = phone.until("APPROVAL_REQUEST").await.pop().unwrap();
    let path =
        format!("/v1/sessions/{}/approvals/{}", session.id, asked["approval_id"].as_str().unwrap());
    let yes = || json!({ "approved": true });
    let own = call(&bench, &host.key, Method::POST, &path, yes()).await;
    assert_eq!(own.status, 403, "{}", own.text);
    assert_eq!(call(&bench, &ada.key, Method::POST, &path, yes()).await.status, 200);
    takes_photo(&mut phone).await;
    let answer = called.await.unwrap();
    assert!(answer.contains("a cat"), "{answer}");
}

#[tokio::test]
async fn g21_rules_hold_by_user_and_agent() {
    let bench = Bench::with(|config| {
        by_default(config);
        let ada = ToolRule { user: Some("ada".into()), ..rule(Policy::Allow) };
        let never = ToolRule { agent: Some("careful*".into()), ..rule(Policy::Deny) };
        config.tools.rules = vec![ada, never];
    })
    .await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    for (person, agent, runs) in
        [(&ada, "any", true), (&bob, "any", false), (&ada, "careful-1", false)]
    {
        let made = json!({ "agent_id": agent });
        let made = call(&bench, &person.key, Method::POST, "/v1/sessions", made).await;
        let session = Session::of(&made.body);
        let (mut phone, _) = bench.attach_as(&session, camera("phone")).await;
        let answer = use_camera(&bench, &session, json!({}));
        if runs {
            takes_photo(&mut phone).await;
        }
        let answer = answer.await.unwrap();
        assert_eq!(answer.contains("a cat"), runs, "{agent}: {answer}");
    }
}

#[tokio::test]
async fn g20_a_shared_session_says_who_said_what() {
    let bench = asking().await;
    let (ada, bob) = (person(&bench, "ada").await, person(&bench, "bob").await);
    let session = session_of(&bench, &ada.key).await;
    share(&bench, &ada.key, &session, "bob", "talk").await;
    let by = |key: &str| Session { token: key.to_owned(), ..session.clone() };
    let joining = |name: &str| {
        let mut hello = crate::bench::hello(&by(&ada.key), json!({ "surface_id": name }));
        hello["join"] = json!(true);
        hello
    };
    let mut late = bench.socket(&session.id).await;
    late.send(joining("late")).await;
    late.until("SESSION_ATTACHED").await;
    drop(late);
    let mut first = bench.socket(&session.id).await;
    first.send(joining("a")).await;
    first.until("SESSION_ATTACHED").await;
    let (mut guest, _) = bench.attach_as(&by(&bob.key), json!({})).await;
    let says = |n: &str, text: &str| {
        json!({
            "type": "USER_MESSAGE", "client_turn_id": n, "content": format!("echo {text}"),
        })
    };
    guest.send(says("1", "from bob")).await;
    let shown = first.until("USER_TURN").await.pop().unwrap();
    assert_eq!((&shown["author"], &shown["content"]), (&json!("bob"), &json!("echo from bob")));
    first.until("TURN_COMPLETE").await;
    first.send(says("2", "from ada")).await;
    first.until("TURN_COMPLETE").await;
    let body = json!({
        "model": "bowline/offline", "messages": [{ "role": "user", "content": "echo by http" }],
        "sbp": { "session_id": session.id },
    });
    let bearer = format!("Bearer {}", bob.key);
    assert_eq!(bench.chat_as(&[("authorization", &bearer)], body).await.status, 200);
    let path = format!("/v1/sessions/{}/messages", session.id);
    let messages = list(&get(&bench, &ada.key, &path).await.body["messages"]);
    let said: Vec<_> = messages
        .iter()
        .filter(|entry| entry["kind"] == "message")
        .map(|entry| (entry["message"]["content"].clone(), entry.get("author").cloned()))
        .collect();
    let bob = Some(json!("bob"));
    let expected = [("echo from bob", bob.clone()), ("echo from ada", None), ("echo by http", bob)];
    assert_eq!(said, expected.map(|(text, author)| (json!(text), author)));
    // A surface that was away is told, too.
    let mut late = bench.socket(&session.id).await;
    late.send(joining("late")).await;
    let missed = late.until("TETHER_TURN").await;
    let first = missed.iter().find(|frame| frame["type"] == "USER_TURN").unwrap();
    assert_eq!((&first["content"], &first["author"]), (&json!("echo from bob"), &json!("bob")));
}

#[tokio::test]
async fn g21_a_stream_is_kept_alive_while_a_person_is_asked() {
    use futures_util::StreamExt as _;
    let bench = Bench::with(|config| {
        by_default(config);
        config.limits.stream_keep_alive = std::time::Duration::from_millis(50);
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session.as_owner(), camera("phone")).await;
    let body = json!({
        "model": "bowline/offline", "stream": true,
        "messages": [{ "role": "user", "content": "call surface tool camera with {\"zoom\":2}" }],
    });
    let request = bench.http.post(bench.url("/v1/chat/completions"));
    let request = request.header("x-session-token", &session.token).json(&body);
    let stream = tokio::spawn(async move { request.send().await.unwrap() });
    let asked = phone.until("APPROVAL_REQUEST").await.pop().unwrap();
    let response = stream.await.unwrap();
    assert_eq!(response.status(), 200);
    let mut chunks = response.bytes_stream();
    // Nobody has decided yet.
    while !chunks.next().await.unwrap().unwrap().starts_with(b": keep-alive\n\n") {}
    let id = &asked["approval_id"];
    phone.send(json!({ "type": "APPROVAL_DECISION", "approval_id": id, "approved": true })).await;
    takes_photo(&mut phone).await;
    let mut rest = String::new();
    while let Some(chunk) = chunks.next().await {
        rest += &String::from_utf8_lossy(&chunk.unwrap());
    }
    assert!(rest.contains("cat") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
}
