//! An agent's memories: written by the model and over HTTP, and recalled in later conversations.

use std::sync::Arc;

use bowline_gateway::config::Remember;
use bowline_sbp::completion::ToolCall;
use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_sbp::message::Message;
use bowline_sbp::session::Head;
use bowline_store::sqlite::Sqlite;
use bowline_store::{EntryKind, NewEntry, NewSession, Sessions, SnapshotKind, TokenHash};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, Session, asked, joined, list, spoken, turn, user};
use crate::roaming::made;
use crate::upstream::MockUpstream;
use crate::written::{appended, begun, by_a_dead_process};

const MEMORY: &str = "/v1/agents/default/memory";

async fn texts(bench: &Bench, path: &str) -> Vec<String> {
    let found = list(&bench.get(path).await.body["memories"]);
    found.iter().map(|memory| memory["text"].as_str().unwrap().to_owned()).collect()
}

async fn kinds(bench: &Bench, session: &Session) -> Vec<Value> {
    bench.entries(session).await.into_iter().map(|entry| entry["kind"].clone()).collect()
}

#[tokio::test]
async fn sbp_l1_12_what_the_model_remembers_is_there_in_another_session() {
    let bench = Bench::start().await;
    let first = bench.chat(asked("m", "remember that the cat is called Ada", json!({}))).await;
    assert_eq!(first.content(), "The tool answered: {\"remembered\":true}");
    assert_eq!(texts(&bench, MEMORY).await, ["the cat is called Ada"]);
    let second = bench.chat(asked("m", "what do you remember of my cat?", json!({}))).await;
    assert!(second.content().contains("- the cat is called Ada"), "{}", second.content());

    let without = json!({ "memory_retrieval": false });
    let third = bench.chat(asked("m", "what do you remember of my cat?", without)).await;
    assert!(third.content().contains("nothing"), "{}", third.content());
    let other = [("X-Agent-ID", "another")];
    let fourth = bench.chat_as(&other, asked("m", "what do you remember?", json!({}))).await;
    assert!(fourth.content().contains("nothing"), "memory is its agent's own");
}

#[tokio::test]
async fn sbp_l1_12_memories_reach_the_model_and_never_the_log() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let put = json!({ "memories": [
        { "text": "Tea, not coffee." }, { "text": "We met in May.", "kind": "episodic" },
    ] });
    let put = bench.call(Method::PUT, MEMORY, &[], &put).await;
    assert_eq!((put.status, list(&put.body["memories"]).len()), (200, 2));
    let session = bench.session().await;
    let mut body = turn(&session, "m", "when did we meet?");
    body["messages"] =
        json!([{ "role": "system", "content": "Be kind." }, user("when did we meet?")]);
    bench.post("/v1/chat/completions", body).await;
    let said = upstream.calls()[0].said();
    assert_eq!((said.len(), said[0].as_str()), (3, "system: Be kind."));
    assert!(said[1].contains("We met in May.") && said[1].contains("- Tea"), "{said:?}");
    assert!(!upstream.calls()[0].text.contains("\"tools\""), "a tool is offered when asked for");
    let log = bench.log(&session).await;
    assert_eq!(log.len(), 3);
    assert!(log.iter().all(|(_, text)| !text.contains("Tea")), "{log:?}");
}

#[tokio::test]
async fn sbp_l1_12_the_tool_is_offered_as_configured_and_never_in_anothers_place() {
    let upstream = MockUpstream::start().await;
    let offered = async |remember: Remember, sbp: Value, more: Value| {
        let bench = Bench::before_with(&upstream, |config| config.memory.remember = remember).await;
        let mut body = asked("m", "hi", sbp);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bench.chat(body).await;
        let call = upstream.calls().pop().unwrap();
        call.text.contains("Keep something for later")
    };
    let (yes, no, nothing) =
        (json!({ "memory_retrieval": true }), json!({ "memory_retrieval": false }), json!({}));
    let theirs = json!({ "tools": [{ "function": { "name": "remember" } }] });
    let others = json!({ "tools": [{ "function": { "name": "x" } }] });
    let choice = json!({ "tool_choice": "none" });
    use Remember::*;
    for (config, sbp, more, expected) in [
        (Asked, &nothing, &nothing, false),
        (Asked, &yes, &nothing, true),
        (Always, &nothing, &nothing, true),
        (Always, &no, &nothing, false),
        (Never, &yes, &nothing, false),
        (Asked, &yes, &others, true),
        (Asked, &yes, &theirs, false),
        (Asked, &yes, &choice, false),
    ] {
        let seen = offered(config, sbp.clone(), more.clone()).await;
        assert_eq!(seen, expected, "{config:?} {sbp} {more}");
    }
}

#[tokio::test]
async fn sbp_l1_12_a_tool_the_gateway_runs_is_no_business_of_the_callers() {
    let upstream = MockUpstream::start().await;
    for stream in [false, true] {
        let bench = Bench::before_with(&upstream, |config| {
            config
                .prices
                .insert("*".into(), bowline_gateway::config::Price { input: 1.0, output: 0.0 });
        })
        .await;
        let mut body = asked("remembers", "the cat is Ada", json!({ "memory_retrieval": true }));
        body["stream"] = json!(stream);
        let answer = bench.chat(body).await;
        let words = "One moment. Noted: {\"remembered\":true}";
        let sbp = if stream {
            assert!(!answer.text.contains("tool_calls"), "{}", answer.text);
            let chunks = answer.chunks();
            assert_eq!(spoken(&chunks), words);
            chunks.last().unwrap()["sbp"].clone()
        } else {
            assert_eq!(answer.content(), words);
            assert!(!answer.text.contains("tool_calls"), "{}", answer.text);
            assert_eq!(answer.body["usage"]["total_tokens"], 2200, "both rounds");
            answer.body["sbp"].clone()
        };
        assert_eq!(sbp["cost_usd"], 0.002, "both rounds");
        assert_eq!((&sbp["step_count"], &sbp["seq"]), (&json!(1), &json!(4)));
        let session = Session::of(&sbp);
        assert_eq!(kinds(&bench, &session).await, ["message", "action", "action", "turn"]);
        assert_eq!(bench.show(&session).await["cost_usd"], 0.002);
        assert_eq!(texts(&bench, MEMORY).await, ["the cat is Ada"]);
        // A caller who sends the conversation back sends what it saw.
        let resent = json!({ "model": "m", "sbp": { "session_id": session.id }, "messages": [
            user("the cat is Ada"), { "role": "assistant", "content": words }, user("and now?"),
        ] });
        bench.chat(resent).await;
        assert_eq!(bench.entries(&session).await.len(), 6);
        let said = upstream.calls().pop().unwrap().said();
        assert_eq!(said.len(), 6, "memory, question, call, result, answer, question: {said:?}");
    }
}

#[tokio::test]
async fn sbp_l1_12_the_callers_own_tools_are_left_to_it() {
    let upstream = MockUpstream::start().await;
    for stream in [false, true] {
        let bench = Bench::before(&upstream).await;
        let mut body = asked("remembers", "do both", json!({ "memory_retrieval": true }));
        body["stream"] = json!(stream);
        body["tools"] = json!([{ "type": "function", "function": { "name": "look_up" } }]);
        let answer = bench.chat(body).await;
        let (calls, sbp) = if stream {
            let last = answer.chunks().pop().unwrap();
            (last["choices"][0]["delta"]["tool_calls"].clone(), last["sbp"].clone())
        } else {
            let choice = &answer.body["choices"][0];
            (choice["message"]["tool_calls"].clone(), answer.body["sbp"].clone())
        };
        assert_eq!((list(&calls).len(), &calls[0]["id"]), (1, &json!("call_l")), "{}", answer.text);
        assert_eq!(texts(&bench, MEMORY).await, ["do both"]);
        let session = Session::of(&sbp);
        let entries = bench.entries(&session).await;
        assert_eq!(entries.last().unwrap()["message"]["tool_calls"][0]["id"], "call_l");
        assert_eq!(kinds(&bench, &session).await, ["message", "action", "action", "turn"]);
    }
}

#[tokio::test]
async fn sbp_l2_14_surfaces_see_one_turn_with_all_its_words() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |c| c.memory.remember = Remember::Always).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let answer = bench.say_to(&session, "remembers", "x").await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(joined(&frames), answer.content());
    let end = frames.last().unwrap();
    assert_eq!((&end["seq"], &end["step_count"]), (&json!(4), &json!(1)));
}

#[tokio::test]
async fn g11_a_full_memory_is_told_to_the_model_and_fails_nothing() {
    let bench = Bench::start().await;
    let many: Vec<_> = (0..10_000).map(|n| json!({ "text": format!("fact {n}") })).collect();
    assert_eq!(bench.post(MEMORY, json!({ "memories": many })).await.status, 200);
    let answer = bench.chat(asked("m", "remember that one more", json!({}))).await;
    assert_eq!(answer.status, 200);
    assert!(answer.content().contains("at most 10000"), "{}", answer.content());
}

#[tokio::test]
async fn sbp_l2_07_a_failure_in_a_later_round_keeps_what_was_shown() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |c| c.memory.remember = Remember::Always).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({})).await;
    let failed = bench.say_to(&session, "remembers-then-502", "x").await;
    assert_eq!(failed.status, 502);
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(joined(&frames), "One moment. ");
    assert_eq!(frames.last().unwrap()["status"], "interrupted");
    let log = bench.log(&session).await;
    assert_eq!(log.last().unwrap(), &("assistant".to_owned(), "One moment. ".to_owned()));
}

#[tokio::test]
async fn half_a_call_is_not_kept_and_the_session_goes_on() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |c| c.memory.remember = Remember::Always).await;
    let session = bench.session().await;
    let mut body = turn(&session, "half-call", "x");
    body["stream"] = json!(true);
    let broken = bench.chat(body).await;
    assert!(broken.text.contains("Wait. "), "said beside the call: {}", broken.text);
    let kept = bench.entries(&session).await.pop().unwrap();
    assert_eq!(kept["message"], json!({ "role": "assistant", "content": "Wait. " }));
    bench.say(&session, "and now?").await;
    assert!(!upstream.calls().pop().unwrap().text.contains("tool_calls"));
}

#[tokio::test]
async fn another_agents_memory_takes_more_than_a_sessions_token() {
    const KEY: &str = "a-key-of-twenty-chars";
    let bench = Bench::with(|config| config.auth.api_keys = vec![KEY.into()]).await;
    let key = ("Authorization", "Bearer a-key-of-twenty-chars");
    let facts = json!({ "memories": [{ "text": "the safe is open" }] });
    for agent in ["default", "other"] {
        let path = format!("/v1/agents/{agent}/memory");
        assert_eq!(bench.call(Method::PUT, &path, &[key], &facts).await.status, 200);
    }
    let made = bench.call(Method::POST, "/v1/sessions", &[key], &json!({})).await;
    let session = Session::of(&made.body);
    let token = ("X-Session-Token", session.token.as_str());
    let ask = turn(&session, "m", "what do you remember of the safe?");
    let own = bench.chat_as(&[token], ask.clone()).await;
    assert!(own.content().contains("safe"), "{}", own.text);
    let refused = bench.chat_as(&[token, ("X-Agent-ID", "other")], ask.clone()).await;
    assert_eq!(refused.status, 401, "{}", refused.text);
    assert_eq!(bench.chat_as(&[token, ("X-Agent-ID", "default")], ask.clone()).await.status, 200);
    assert_eq!(bench.chat_as(&[key, ("X-Agent-ID", "other")], ask).await.status, 200);
    let bundle = async |shown| {
        let path = format!("/v1/sessions/{}/export", session.id);
        let made = bench.call(Method::POST, &path, &[shown], &json!({})).await;
        let export = made.body["export_id"].as_str().unwrap().to_owned();
        let path = format!("/v1/sessions/{}/exports/{export}/bundle", session.id);
        bench.call(Method::GET, &path, &[shown], &Value::Null).await.body["memory"].clone()
    };
    assert_eq!(bundle(token).await, Value::Null);
    assert!(bundle(key).await.to_string().contains("safe"));
}

/// The store of a gateway that was killed between this tool call and its result.
pub(crate) async fn killed_while_acting(
    call: ToolCall,
) -> (Arc<Sqlite>, tempfile::TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(folder.path()).unwrap());
    let (id, turn_id) = (SessionId(Uuid::now_v7()), TurnId(Uuid::now_v7()));
    let new = NewSession {
        id,
        token_hash: TokenHash([1; 32]),
        listed: true,
        user: bowline_sbp::access::OWNER,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: Timestamp::now(),
    };
    let request = json!({
        "model": "m", "params": [["model", "m"]], "checkpoint_every": 1, "tether": true,
        "origin": "http", "messages": [user("remember that x")], "recall": true,
    });
    let entries = vec![
        NewEntry::message(Message::text("user", "remember that x")),
        NewEntry::new(EntryKind::Action, ToolCall::message(&[call])),
    ];
    let begun = begun(turn_id, &request, 1);
    let write = |head: &mut Head| vec![begun, appended(head, turn_id, entries)];
    by_a_dead_process(&store, id, Some(new), write).await;
    (store, folder, Session { id: id.to_string(), token: String::new() })
}

#[tokio::test]
async fn sbp_l2_14_a_turn_goes_on_from_the_action_it_was_killed_in() {
    let call = ToolCall {
        id: "c".into(),
        name: "remember".into(),
        arguments: json!({ "text": "x" }).to_string(),
    };
    let (store, folder, session) = killed_while_acting(call).await;
    let bench = Bench::on(store, folder, |_| {}).await;
    bench.until_pending(&session, 1).await;
    assert_eq!(kinds(&bench, &session).await, ["message", "action", "action", "turn"]);
    let log = bench.log(&session).await;
    assert_eq!(log[3].1, "The tool answered: {\"remembered\":true}");
    assert_eq!(texts(&bench, MEMORY).await, ["x"]);
    let snapshot =
        bench.store.session(session.id.parse().unwrap()).await.unwrap().unwrap().snapshot;
    assert_eq!(snapshot.unwrap().kind, SnapshotKind::Checkpoint);
}

#[tokio::test]
async fn sbp_l1_12_an_owner_reads_writes_searches_and_forgets() {
    let bench = Bench::start().await;
    let add = json!({ "memories": [{ "text": " Lyon is home. " }, { "text": "Ada is a cat." }] });
    assert_eq!(bench.post(MEMORY, add.clone()).await.status, 200);
    assert_eq!(bench.post(MEMORY, add).await.status, 200, "once is enough");
    assert_eq!(texts(&bench, MEMORY).await, ["Ada is a cat.", "Lyon is home."]);
    assert_eq!(texts(&bench, &format!("{MEMORY}?q=cat")).await, ["Ada is a cat."]);
    assert_eq!(texts(&bench, &format!("{MEMORY}?limit=1")).await.len(), 1);
    let found = bench.get(MEMORY).await.body;
    let id = found["memories"][0]["id"].as_str().unwrap();
    let one = format!("{MEMORY}/{id}");
    assert_eq!(bench.call(Method::DELETE, &one, &[], &Value::Null).await.status, 204);
    assert_eq!(bench.call(Method::DELETE, &one, &[], &Value::Null).await.status, 404);
    assert_eq!(bench.call(Method::DELETE, MEMORY, &[], &Value::Null).await.status, 204);
    assert!(texts(&bench, MEMORY).await.is_empty());
    for bad in [
        json!({}),
        json!({ "memories": [{ "text": " " }] }),
        json!({ "memories": [{ "text": "x", "kind": "odd" }] }),
        json!({ "memories": [{ "text": "x".repeat(4097) }] }),
    ] {
        assert_eq!(bench.post(MEMORY, bad).await.refusal(), (422, "SBP_INVALID_REQUEST"));
    }
}

#[tokio::test]
async fn sbp_l1_12_rules_are_told_before_facts_and_travel() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let memories = json!({ "memories": [
        { "text": "The cat is called Ada." },
        { "text": "Answer in two sentences.", "kind": "procedural" },
        { "text": "We met in May.", "kind": "episodic" },
    ] });
    let put = bench.call(Method::PUT, "/v1/agents/default/memory", &[], &memories).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let session = bench.session().await;
    bench.say(&session, "what is the cat called, and when did we meet?").await;
    let said = upstream.calls()[0].said();
    assert!(said[0].contains("Answer in two sentences.") && !said[0].contains("Ada"), "{said:?}");
    assert!(said[1].contains("Ada") && said[1].contains("May"), "{said:?}");
    assert!(!said[1].contains("two sentences"), "told once: {said:?}");
    // Whatever is asked, and also where nothing else is remembered.
    bench.say(&session, "xyzzy").await;
    assert!(upstream.calls()[1].said()[0].contains("Answer in two sentences."));
    // Also if the question is about it.
    bench.say(&session, "how many sentences may an answer have?").await;
    let said = upstream.calls()[2].said();
    assert_eq!(said.iter().filter(|text| text.contains("two sentences.")).count(), 1, "{said:?}");

    let bundle = bench.bundle_of(&session).await;
    let there = Bench::start().await;
    made(&there.import_with_memory(&bundle).await);
    let kept = list(&there.get("/v1/agents/default/memory").await.body["memories"]);
    let mut kept: Vec<_> =
        kept.iter().map(|m| (m["kind"].as_str().unwrap(), m["text"].as_str().unwrap())).collect();
    kept.sort_unstable();
    let expected = [
        ("episodic", "We met in May."),
        ("procedural", "Answer in two sentences."),
        ("semantic", "The cat is called Ada."),
    ];
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn sbp_l1_12_a_model_may_remember_things_of_every_kind() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |c| c.memory.remember = Remember::Always).await;
    let session = bench.session().await;
    let kinds = ["semantic", "episodic", "procedural"];
    let call = |kind: &str| {
        ("remember", json!({ "text": format!("of the {kind} kind"), "kind": kind }).to_string())
    };
    let asked = serde_json::to_string(&kinds.map(call)).unwrap();
    let answer = bench.say_to(&session, "calls", &asked).await;
    let content = answer.content();
    assert_eq!(content.matches("{\"remembered\":true}").count(), 3, "{content}");
    let tools: Value = serde_json::from_str(&upstream.calls()[0].text).unwrap();
    let offered = &tools["tools"][0]["function"]["parameters"]["properties"]["kind"]["enum"];
    assert_eq!(*offered, json!(kinds));
    let kept = list(&bench.get(MEMORY).await.body["memories"]);
    let mut kept: Vec<_> = kept.iter().map(|memory| memory["kind"].as_str().unwrap()).collect();
    kept.sort_unstable();
    assert_eq!(kept, ["episodic", "procedural", "semantic"]);
}
