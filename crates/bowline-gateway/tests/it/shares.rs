//! Sessions that are shared with other users (G20).

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, hello, turn};
use crate::people::{call, get, person, session_of, share};

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
