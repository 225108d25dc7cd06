//! Who gets what an agent remembers by imports, exports and handoffs (G20).

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, Session, list, turn};
use crate::people::{Person, call, get, key, person, session_of, share};
use crate::roaming::{IMPORT, STRANGER, made, of, parsed, part, sealed, text};
use crate::upstream::MockUpstream;

const TEA: &str = "Anna drinks tea.";

async fn remember(bench: &Bench, key: &str, agent: &str, texts: &[&str]) {
    let memories: Vec<_> = texts.iter().map(|text| json!({ "text": text })).collect();
    let path = format!("/v1/agents/{agent}/memory");
    let put = call(bench, key, Method::PUT, &path, json!({ "memories": memories })).await;
    assert_eq!(put.status, 200, "{}", put.text);
}

/// What that user's agent remembers.
async fn memory(bench: &Bench, key: &str, agent: &str) -> Vec<String> {
    let seen = get(bench, key, &format!("/v1/agents/{agent}/memory")).await;
    assert_eq!(seen.status, 200, "{}", seen.text);
    let mut found: Vec<_> =
        list(&seen.body["memories"]).iter().map(|memory| text(&memory["text"])).collect();
    found.sort();
    found
}

async fn export(bench: &Bench, shown: &str, session: &Session, body: Value) -> Answer {
    call(bench, shown, Method::POST, &of(session, "export"), body).await
}

async fn download(bench: &Bench, shown: &str, session: &Session, exported: &Answer) -> Answer {
    assert_eq!(exported.status, 201, "{}", exported.text);
    let export = text(&exported.body["export_id"]);
    get(bench, shown, &of(session, &format!("exports/{export}/bundle"))).await
}

async fn import(bench: &Bench, shown: &str, body: Value) -> Answer {
    call(bench, shown, Method::POST, IMPORT, body).await
}

/// A gateway with a user whose agent remembers something, and a session of hers.
async fn with_ada(upstream: &MockUpstream) -> (Bench, Person, Session) {
    let bench = Bench::before_with(upstream, |_| {}).await;
    let ada = person(&bench, "ada").await;
    remember(&bench, &ada.key, "default", &[TEA]).await;
    let session = session_of(&bench, &ada.key).await;
    let said = turn(&session, "m", "hi");
    call(&bench, &ada.key, Method::POST, "/v1/chat/completions", said).await;
    (bench, ada, session)
}

#[tokio::test]
async fn g20_an_import_writes_no_memory_unless_it_is_asked_to() {
    let upstream = MockUpstream::start().await;
    let (bench, ada, session) = with_ada(&upstream).await;
    let bob = person(&bench, "bob").await;
    remember(&bench, &bob.key, "default", &["The oven is slow."]).await;
    let exported = export(&bench, &ada.key, &session, json!({})).await;
    let bundle: Value =
        serde_json::from_str(&download(&bench, &ada.key, &session, &exported).await.text).unwrap();
    // He has the file from her.
    let imported = import(&bench, &bob.key, json!({ "bundle": bundle })).await;
    let new = made(&imported);
    let said = (&imported.body["memory_restored"], &imported.body["memory_count"]);
    assert_eq!(said, (&json!(false), &json!(1)));
    assert_eq!(memory(&bench, &bob.key, "default").await, ["The oven is slow."]);
    // It is in the session: for its model, and for the next export.
    upstream.forget();
    call(&bench, &bob.key, Method::POST, "/v1/chat/completions", turn(&new, "m", "what?")).await;
    let asked = upstream.calls().pop().unwrap();
    assert!(asked.text.contains(TEA) && asked.text.contains("oven"), "{:?}", asked.said());
    let exported = export(&bench, &bob.key, &new, json!({})).await;
    let again = download(&bench, &bob.key, &new, &exported).await.text;
    let semantic = part(&parsed(&again), &["memory", "payload", "semantic"]);
    assert!(semantic.contains(TEA) && semantic.contains("oven"), "{semantic}");
    // Asked to, into his own agent and nobody else's.
    let asked = json!({ "bundle": bundle, "with_memory": true, "target_agent_id": "cook" });
    let imported = import(&bench, &bob.key, asked).await;
    made(&imported);
    assert_eq!(imported.body["memory_restored"], true);
    assert_eq!(memory(&bench, &bob.key, "cook").await, [TEA]);
    assert_eq!(memory(&bench, &ada.key, "cook").await, [""; 0]);
    assert_eq!(memory(&bench, &ada.key, "default").await, [TEA]);
    let wrong = import(&bench, &bob.key, json!({ "bundle": bundle, "with_memory": "yes" })).await;
    assert_eq!(wrong.refusal(), (422, "SBP_INVALID_REQUEST"), "{}", wrong.text);
}

#[tokio::test]
async fn g20_nobody_gets_more_memory_by_an_export_than_by_reading_it() {
    let upstream = MockUpstream::start().await;
    let (bench, ada, session) = with_ada(&upstream).await;
    let takes = key(&bench, "ada", json!({ "scopes": ["export"] })).await;
    let reads = key(&bench, "ada", json!({ "scopes": ["export", "read"] })).await;
    let mut whole = None;
    for (shown, has) in
        [(&session.token, false), (&takes.key, false), (&reads.key, true), (&ada.key, true)]
    {
        let read = get(&bench, shown, "/v1/agents/default/memory").await;
        assert_eq!(read.status == 200, has, "{}", read.text);
        let exported = export(&bench, shown, &session, json!({})).await;
        assert_eq!(exported.body["with_memory"], has, "{}", exported.text);
        let bundle = download(&bench, shown, &session, &exported).await;
        assert_eq!(bundle.status, 200, "{}", bundle.text);
        assert_eq!(bundle.text.contains(TEA), has, "{}", bundle.text);
        let asked = export(&bench, shown, &session, json!({ "with_memory": true })).await;
        assert_eq!(asked.status, if has { 201 } else { 403 }, "{}", asked.text);
        let left_out = export(&bench, shown, &session, json!({ "with_memory": false })).await;
        assert_eq!(left_out.body["with_memory"], false, "{}", left_out.text);
        let bundle = download(&bench, shown, &session, &left_out).await;
        assert!(!bundle.text.contains(TEA), "{}", bundle.text);
        whole = Some(exported).filter(|_| has);
    }
    // What somebody else exported is checked when it is taken.
    let whole = whole.unwrap();
    for (shown, status) in
        [(&session.token, 403), (&takes.key, 403), (&reads.key, 200), (&ada.key, 200)]
    {
        let bundle = download(&bench, shown, &session, &whole).await;
        assert_eq!(bundle.status, status, "{}", bundle.text);
    }
    // Every list says which ones have it.
    let token = text(&whole.body["roaming_token"]);
    assert_eq!(bench.inspect(&token).await.body["with_memory"], true);
    let listed = get(&bench, &ada.key, &of(&session, "exports")).await;
    let marks: Vec<_> =
        list(&listed.body["exports"]).iter().rev().map(|e| e["with_memory"] == true).collect();
    let no = [false, false];
    let yes = [true, true, false];
    assert_eq!(marks, [&no[..], &no, &yes, &yes].concat());
}

#[tokio::test]
async fn g20_memory_that_a_session_carries_is_not_for_its_token() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |_| {}).await;
    let ada = person(&bench, "ada").await;
    for schema in ["urn:bowline:memory:1", "urn:someone:else"] {
        let memory = format!(
            r#""memory": {{"schema_id": "{schema}", "payload": {{"semantic": [
                {{"text": "A secret.", "created_at": "2026-03-14T08:00:00Z"}}], "episodic": []}}}}"#
        );
        let bundle = sealed(&STRANGER.replace(r#""memory": null"#, &memory));
        let bundle: Value = serde_json::from_str(&bundle).unwrap();
        let new = made(&import(&bench, &ada.key, json!({ "bundle": bundle })).await);
        for (shown, has) in [(&new.token, false), (&ada.key, true)] {
            let exported = export(&bench, shown, &new, json!({})).await;
            assert_eq!(exported.body["with_memory"], has, "{schema}: {}", exported.text);
            let taken = download(&bench, shown, &new, &exported).await.text;
            let memory = part(&parsed(&taken), &["memory"]);
            assert_eq!(memory.contains("A secret."), has, "{schema}: {memory}");
        }
    }
}

#[tokio::test]
async fn g20_an_export_with_memory_is_imported_by_who_may_read_it() {
    let upstream = MockUpstream::start().await;
    let (bench, ada, session) = with_ada(&upstream).await;
    let bob = person(&bench, "bob").await;
    let talks = key(&bench, "ada", json!({ "scopes": ["turns"] })).await;
    let other = key(&bench, "ada", json!({ "agents": ["cook"] })).await;
    let exported = export(&bench, &ada.key, &session, json!({})).await;
    let token = text(&exported.body["roaming_token"]);
    for shown in [&bob.key, &talks.key, &other.key] {
        for more in [json!({}), json!({ "with_memory": true }), json!({ "allow_reuse": true })] {
            let mut asked = json!({ "roaming_token": token, "target_agent_id": "cook" });
            asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let refused = import(&bench, shown, asked).await;
            assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "{}", refused.text);
            assert!(refused.text.contains("without memory"), "{}", refused.text);
        }
    }
    assert_eq!(memory(&bench, &bob.key, "cook").await, [""; 0]);
    // It was not used up.
    made(&import(&bench, &ada.key, json!({ "roaming_token": token })).await);
    let exported = export(&bench, &ada.key, &session, json!({ "with_memory": false })).await;
    let token = text(&exported.body["roaming_token"]);
    let imported = import(&bench, &bob.key, json!({ "roaming_token": token })).await;
    let his = made(&imported);
    assert_eq!(imported.body["memory_count"], 0, "{}", imported.text);
    let log = get(&bench, &bob.key, &format!("/v1/sessions/{}/messages", his.id)).await;
    assert!(!log.text.contains("tea"), "{}", log.text);
}

#[tokio::test]
async fn g20_a_handoff_stays_with_its_user() {
    let upstream = MockUpstream::start().await;
    let (bench, ada, session) = with_ada(&upstream).await;
    let bob = person(&bench, "bob").await;
    remember(&bench, &ada.key, "cook", &["Her oven is slow."]).await;
    remember(&bench, &bob.key, "cook", &["His oven is hot."]).await;
    share(&bench, &ada.key, &session, "bob", "approve").await;
    // With whom it is shared does not hand it off; to others it is not there.
    let carol = person(&bench, "carol").await;
    let to = json!({ "to_agent_id": "cook" });
    for (shown, status) in [(&bob.key, 403), (&carol.key, 404)] {
        let refused = call(&bench, shown, Method::POST, &of(&session, "handoff"), to.clone()).await;
        assert_eq!(refused.status, status, "{}", refused.text);
    }
    let handed = call(&bench, &ada.key, Method::POST, &of(&session, "handoff"), to).await;
    let new = made(&handed);
    let log = format!("/v1/sessions/{}/messages", new.id);
    for shown in [&bob.key, &carol.key] {
        assert_eq!(get(&bench, shown, &log).await.status, 404);
    }
    upstream.forget();
    call(&bench, &ada.key, Method::POST, "/v1/chat/completions", turn(&new, "m", "the oven?"))
        .await;
    let asked = upstream.calls().pop().unwrap();
    assert!(asked.text.contains("Her oven is slow."), "{:?}", asked.said());
    assert!(!asked.text.contains("His oven"), "{:?}", asked.said());
    assert_eq!(memory(&bench, &bob.key, "cook").await, ["His oven is hot."]);
    assert_eq!(memory(&bench, &ada.key, "cook").await, ["Her oven is slow."]);
}

#[tokio::test]
async fn g20_a_handoff_to_an_agent_of_ones_own_takes_no_more_than_the_session() {
    let upstream = MockUpstream::start().await;
    let (bench, ada, _) = with_ada(&upstream).await;
    let takes = key(&bench, "ada", json!({ "scopes": ["export"] })).await;
    let limited = key(&bench, "ada", json!({ "agents": ["default"] })).await;
    let to = json!({ "to_agent_id": "cook" });
    let session = session_of(&bench, &ada.key).await;
    let path = of(&session, "handoff");
    let refused = call(&bench, &limited.key, Method::POST, &path, to.clone()).await;
    assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "the key is not for that agent");
    for by_token in [true, false] {
        let session = session_of(&bench, &ada.key).await;
        let shown = if by_token { &session.token } else { &takes.key };
        let path = of(&session, "handoff");
        let handed = call(&bench, shown, Method::POST, &path, to.clone()).await;
        assert_eq!(handed.status, 201, "{}", handed.text);
        let new = text(&handed.body["session_id"]);
        let seen = get(&bench, &ada.key, &format!("/v1/sessions/{new}")).await;
        assert_eq!((seen.status, &seen.body["agent_id"]), (200, &json!("cook")));
        // Neither may read what the former agent remembered, so the next one is not told.
        let log = get(&bench, &ada.key, &format!("/v1/sessions/{new}/messages")).await;
        assert!(!log.text.contains("tea"), "{}", log.text);
        let listed = get(&bench, &ada.key, &of(&session, "exports")).await;
        assert_eq!(listed.body["exports"][0]["with_memory"], false, "{}", listed.text);
    }
}
