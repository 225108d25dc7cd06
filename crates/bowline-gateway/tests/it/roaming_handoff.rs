//! SBP L3: handoffs. The new session goes on, the old one accepts no more turns, and its surfaces
//! are told.

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, answer, eventually, joined, list, turn};
use crate::disk::on_a_bad_disk_with;
use crate::locked::{by_key, by_token, lock};
use crate::roaming::{made, names, of, text};
use crate::upstream::{MockUpstream, Piece};

#[tokio::test]
async fn sbp_l3_10_a_handoff_says_who_goes_on() {
    let bench = Bench::start().await;
    let session = bench.session_with(2).await;
    let body = json!({
        "to_agent_id": "cook", "handoff_message": "m".repeat(2000), "reason": "r".repeat(500),
    });
    let handed = bench.post(&of(&session, "handoff"), body).await;
    let new = made(&handed);
    let fields = [
        "session_id",
        "new_session_id",
        "session_token",
        "new_session_token",
        "from_session_id",
        "source_session_id",
        "to_agent_id",
        "export_id",
        "origin_export_id",
    ];
    let body = &handed.body;
    assert_eq!(names(body), fields);
    for (one, other) in [
        ("session_id", "new_session_id"),
        ("session_token", "new_session_token"),
        ("from_session_id", "source_session_id"),
        ("export_id", "origin_export_id"),
    ] {
        assert_eq!(body[one], body[other]);
    }
    assert_eq!(
        (&body["from_session_id"], &body["to_agent_id"]),
        (&json!(session.id), &json!("cook"))
    );
    let shown = bench.show(&new).await;
    assert_eq!((&shown["agent_id"], &shown["step_count"]), (&json!("cook"), &json!(2)));
    assert_eq!(shown["tether_turns_pending"], 0);
    bench.attach(&new).await;
    // The export it went through is used up, as an import would have done.
    let exports = bench.get(&of(&session, "exports")).await.body;
    assert_eq!(exports["exports"][0]["export_id"], body["export_id"]);
    assert_eq!(exports["exports"][0]["import_session_id"], json!(new.id));
    for (name, longest) in [("handoff_message", 2000), ("reason", 500)] {
        let body = json!({ "to_agent_id": "waiter", name: "é".repeat(longest + 1) });
        let refused = bench.post(&of(&new, "handoff"), body).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{name}");
        assert_eq!(refused.body["error"]["param"], name);
    }
    assert_eq!(bench.show(&new).await["handed_off_to"], Value::Null);
}

#[tokio::test]
async fn sbp_l3_10_the_next_agent_is_told_everything() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    bench.say(&session, "a table for two").await;
    let body = json!({
        "to_agent_id": "cook", "handoff_message": "They are hungry.", "reason": "kitchen work",
    });
    let new = made(&bench.post(&of(&session, "handoff"), body).await);
    let said = bench.say_to(&new, "another-model", "what is there?").await;
    assert_eq!(said.status, 200);
    let seen = upstream.calls().pop().unwrap().said();
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert_eq!(seen[..2], ["user: a table for two", "assistant: answer 1"]);
    assert!(seen[2].starts_with("system: ") && seen[2].contains("default"), "{seen:?}");
    for words in ["cook", "They are hungry.", "kitchen work"] {
        assert!(seen[2].contains(words), "{words}: {seen:?}");
    }
    assert_eq!(seen[3], "user: what is there?");
    let entries = bench.entries(&new).await;
    assert_eq!(entries[1]["agent_id"], "default", "who took which turn is still known");
    assert_eq!(entries[4].get("agent_id"), None);
}

#[tokio::test]
async fn g8_a_session_that_was_handed_over_takes_no_more_turns() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let new = made(&bench.hand_off(&session, "cook").await);
    let shown = bench.show(&session).await;
    assert_eq!((&shown["status"], &shown["handed_off_to"]), (&json!("suspended"), &json!(new.id)));
    for refused in
        [bench.say(&session, "echo 2").await, bench.hand_off(&session, "waiter").await, {
            let path = format!("/v1/sessions/{}/status", session.id);
            bench.call(Method::PATCH, &path, &[], &json!({ "status": "running" })).await
        }]
    {
        assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", refused.text);
        assert!(refused.text.contains(&new.id), "it says where to go: {}", refused.text);
    }
    // It can be looked at, and that does not wake it.
    let (mut phone, welcome) = bench.attach(&session).await;
    assert_eq!(welcome["queued_turns"], 1);
    assert_eq!(phone.until("TETHER_TURN").await.pop().unwrap()["content"], "1");
    let told = phone.until("SESSION_HANDED_OFF").await.pop().unwrap();
    assert_eq!(told["new_session_id"], json!(new.id), "also to one who was away");
    assert_eq!(phone.closed().await, 4010);
    bench.until(&session, "let go", |seen| seen["surface"].is_null()).await;
    let shown = bench.show(&session).await;
    assert_eq!((&shown["status"], &shown["message_count"]), (&json!("suspended"), &json!(2)));
    assert_eq!(bench.say(&new, "echo 2").await.content(), "2");
    assert_eq!(bench.store.unfinished_turns().await, Ok(0));
}

#[tokio::test]
async fn sbp_l3_10_an_attached_surface_is_told_where_the_session_went() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let (mut phone, _) = bench.attach(&session).await;
    phone.confirm(&bench, &session).await;
    let new = made(&bench.hand_off(&session, "cook").await);
    let told = phone.until("SESSION_HANDED_OFF").await.pop().unwrap();
    assert_eq!(told["session_id"], json!(session.id));
    assert_eq!((&told["new_session_id"], &told["to_agent_id"]), (&json!(new.id), &json!("cook")));
    assert!(
        !told.to_string().contains(&new.token),
        "whoever may go on is given the token, not shown it"
    );
    assert_eq!(phone.closed().await, 4010);
    let (mut phone, _) = bench.attach(&new).await;
    bench.say(&new, "echo 2").await;
    phone.until("TURN_COMPLETE").await;
}

/// A session with a turn that runs until the gate is dropped.
async fn busy(
    bench: &Bench,
    upstream: &MockUpstream,
) -> (Session, tokio::sync::mpsc::UnboundedSender<Piece>, tokio::task::JoinHandle<u16>) {
    let session = bench.session().await;
    let gate = upstream.gate();
    let calls = upstream.calls().len();
    gate.send(Piece::Text("first".into())).unwrap();
    let running = spawned(bench, "/v1/chat/completions", turn(&session, "gated", "run"));
    upstream.until_calls(calls + 1).await;
    (session, gate, running)
}

fn spawned(bench: &Bench, path: &str, body: Value) -> tokio::task::JoinHandle<u16> {
    let request = bench.http.post(bench.url(path)).json(&body);
    tokio::spawn(async move { request.send().await.unwrap().status().as_u16() })
}

#[tokio::test]
async fn g8_a_handoff_waits_for_the_running_turn_and_takes_it_along() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let (session, gate, running) = busy(&bench, &upstream).await;
    let (mut phone, _) = bench.attach(&session).await;
    let handed = spawned(&bench, &of(&session, "handoff"), json!({ "to_agent_id": "cook" }));
    gate.send(Piece::Text(" and last".into())).unwrap();
    assert_eq!(bench.show(&session).await["handed_off_to"], Value::Null);
    drop(gate);
    assert_eq!((running.await.unwrap(), handed.await.unwrap()), (200, 201));
    let new = bench.show(&session).await["handed_off_to"].clone();
    let new = Session { id: text(&new), token: String::new() };
    assert_eq!(bench.words(&new).await[..2], ["run", "first and last"]);
    assert_eq!(bench.words(&session).await, ["run", "first and last"]);
    // A surface has the whole turn before it is sent away.
    let seen = phone.until("SESSION_HANDED_OFF").await;
    assert_eq!(seen[seen.len() - 2]["type"], "TURN_COMPLETE", "{seen:?}");
    assert_eq!(joined(&seen), "first and last");
}

#[tokio::test]
async fn g8_a_turn_that_waits_behind_a_handoff_is_refused_and_leaves_nothing() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    // Which of the two gets into the lane first is up to the machine; in some round it is this way.
    for round in 0.. {
        assert!(round < 50, "the turn was always first");
        let (session, gate, running) = busy(&bench, &upstream).await;
        let handed = spawned(&bench, &of(&session, "handoff"), json!({ "to_agent_id": "cook" }));
        bench.show(&session).await;
        let waiting = spawned(&bench, "/v1/chat/completions", turn(&session, "m", "too late"));
        eventually("accepted", async || bench.store.unfinished_turns().await.unwrap() == 2).await;
        drop(gate);
        assert_eq!((running.await.unwrap(), handed.await.unwrap()), (200, 201));
        if waiting.await.unwrap() == 200 {
            continue;
        }
        assert_eq!(bench.words(&session).await, ["run", "first"]);
        assert_eq!(bench.store.unfinished_turns().await, Ok(0));
        let shown = bench.show(&session).await;
        assert_eq!((&shown["status"], &shown["step_count"]), (&json!("suspended"), &json!(1)));
        let new = Session { id: text(&shown["handed_off_to"]), token: String::new() };
        assert!(!bench.words(&new).await.contains(&"too late".to_owned()));
        return;
    }
}

#[tokio::test]
async fn g8_a_surfaces_message_that_waits_behind_a_handoff_is_noted() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    for round in 0.. {
        assert!(round < 50, "the message was always first");
        let (session, gate, running) = busy(&bench, &upstream).await;
        let (mut phone, _) = bench.attach(&session).await;
        let handed = spawned(&bench, &of(&session, "handoff"), json!({ "to_agent_id": "cook" }));
        bench.show(&session).await;
        let said = json!({ "type": "USER_MESSAGE", "content": "late", "client_turn_id": "x", "model": "m" });
        phone.send(said).await;
        phone.until("TURN_ACCEPTED").await;
        drop(gate);
        assert_eq!((running.await.unwrap(), handed.await.unwrap()), (200, 201));
        assert_eq!(phone.closed().await, 4010);
        eventually("ended", async || bench.store.unfinished_turns().await.unwrap() == 0).await;
        let shown = bench.show(&session).await;
        let new = text(&shown["handed_off_to"]);
        let entries = bench.entries(&session).await;
        if entries[3]["kind"] == "turn" {
            continue;
        }
        // It was acknowledged: what became of it is in the log, for whoever looks.
        assert_eq!(entries.len(), 4, "{entries:?}");
        assert_eq!(entries[2]["message"]["content"], "late");
        let note = &entries[3];
        assert_eq!((&note["kind"], &note["status"]), (&json!("note"), &json!("failed")));
        assert!(text(&note["message"]["content"]).contains(&new), "it says where to go: {note}");
        let (mut phone, welcome) = bench.attach(&session).await;
        assert_eq!(welcome["queued_turns"], 2);
        phone.until("TETHER_TURN").await;
        let new = Session { id: new, token: String::new() };
        assert!(!bench.words(&new).await.contains(&"late".to_owned()));
        assert_eq!(bench.show(&session).await["status"], "suspended");
        return;
    }
}

#[tokio::test]
async fn g8_a_second_handoff_is_refused_at_once_while_one_waits_and_packs_nothing() {
    let upstream = MockUpstream::start().await;
    let (bench, disk) = on_a_bad_disk_with(&upstream, |_| {}).await;
    let session = bench.session().await;
    bench.say(&session, "hi").await;
    let gate = upstream.gate();
    let running = tokio::spawn({
        let request = bench.http.post(bench.url("/v1/chat/completions"));
        request.json(&turn(&session, "gated", "go")).send()
    });
    upstream.until_calls(2).await;
    let hand_off = |agent: &str| {
        let request = bench.http.post(bench.url(&of(&session, "handoff")));
        let request = request.header("Idempotency-Key", format!("to {agent}"));
        tokio::spawn(answer(request.json(&json!({ "to_agent_id": agent }))))
    };
    let (mut cook, mut waiter) = (hand_off("cook"), hand_off("waiter"));
    // Whichever came second is refused, while the turn still runs.
    let (refused, waits, agent) = tokio::select! {
        refused = &mut cook => (refused.unwrap(), waiter, "waiter"),
        refused = &mut waiter => (refused.unwrap(), cook, "cook"),
    };
    assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", refused.text);
    assert_eq!(disk.ended("pack"), 0);
    assert!(!waits.is_finished());
    let again = hand_off(agent);
    drop(gate);
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    let (waited, again) = (waits.await.unwrap(), again.await.unwrap());
    assert_eq!(made(&waited).id, made(&again).id, "the same request is the same handoff");
    assert_eq!(waited.body["to_agent_id"], agent);
    assert_eq!(disk.ended("pack"), 1);
    assert_eq!(list(&bench.lineage(&session).await["outgoing_handoffs"]).len(), 1);
}

#[tokio::test]
async fn sbp_l3_10_the_next_agent_is_told_what_the_former_remembered() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, lock).await;
    let remember = async |agent: &str, text: &str| {
        let body = json!({ "memories": [{ "text": text }] });
        let put = by_key(&bench, Method::PUT, &format!("/v1/agents/{agent}/memory"), body).await;
        assert_eq!(put.status, 200, "{}", put.text);
    };
    remember("default", "Anna drinks tea.").await;
    remember("cook", "The oven is slow.").await;
    let session = async || {
        let made = by_key(&bench, Method::POST, "/v1/sessions", json!({})).await;
        let session = Session::of(&made.body);
        let said = by_key(&bench, Method::POST, "/v1/chat/completions", turn(&session, "m", "hi"));
        assert_eq!(said.await.status, 200);
        session
    };
    let (first, second) = (session().await, session().await);
    let to = json!({ "to_agent_id": "cook" });
    let new = made(&by_key(&bench, Method::POST, &of(&first, "handoff"), to).await);
    let ask = turn(&new, "m", "what is there?");
    by_key(&bench, Method::POST, "/v1/chat/completions", ask).await;
    let call = upstream.calls().pop().unwrap();
    assert!(call.text.contains("Anna drinks tea."), "{:?}", call.said());
    // It was told, and has not become its own.
    let own = by_key(&bench, Method::GET, "/v1/agents/cook/memory", Value::Null).await;
    let own: Vec<_> = list(&own.body["memories"]).iter().map(|m| m["text"].clone()).collect();
    assert_eq!(own, ["The oven is slow."]);
    // A session's token does not open what its agent remembers elsewhere.
    let new = made(&by_token(&bench, &second, Method::POST, &of(&second, "handoff")).await);
    let log =
        by_token(&bench, &new, Method::GET, &format!("/v1/sessions/{}/messages", new.id)).await;
    assert!(log.text.contains("handed over"), "{}", log.text);
    assert!(!log.text.contains("tea"), "{}", log.text);
}
