//! SBP-L1-11 over HTTP: clients that keep the conversation themselves and resend it in their own
//! way. The rules are tested beside `bowline_sbp::context`; here, that the gateway follows them, and
//! still does after a restart.

use bowline_gateway::config::Remember;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, user};
use crate::upstream::MockUpstream;

fn assistant(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

fn system(text: &str) -> Value {
    json!({ "role": "system", "content": text })
}

struct World {
    upstream: MockUpstream,
    bench: Bench,
    session: Session,
}

impl World {
    async fn new() -> Self {
        let upstream = MockUpstream::start().await;
        let bench = Bench::before(&upstream).await;
        let session = bench.session().await;
        Self { upstream, bench, session }
    }

    /// Sends messages with the session's token as the key; returns what the model was sent.
    async fn send(&self, messages: Value) -> Vec<String> {
        self.send_as(messages, Value::Null).await
    }

    async fn send_as(&self, messages: Value, history: Value) -> Vec<String> {
        let mut body = json!({ "model": "m", "messages": messages });
        if !history.is_null() {
            body["sbp"] = json!({ "history": history });
        }
        let key = format!("Bearer {}", self.session.token);
        let said = self.bench.chat_as(&[("authorization", &key)], body).await;
        assert_eq!(said.status, 200, "{}", said.text);
        self.upstream.calls().pop().unwrap().said()
    }

    async fn log(&self) -> Vec<String> {
        let log = self.bench.log(&self.session).await;
        log.into_iter().map(|(role, text)| format!("{role}: {text}")).collect()
    }

    /// A turn over a surface.
    async fn phone_says(&self, words: &str) {
        let (mut phone, _) = self.bench.attach(&self.session).await;
        let asked = json!({ "type": "USER_MESSAGE", "content": words, "client_turn_id": "p", "model": "m" });
        phone.send(asked).await;
        phone.until("TURN_COMPLETE").await;
    }

    /// Another gateway on the same store.
    async fn restart(self) -> Self {
        let Self { upstream, bench, session } = self;
        let Bench { gateway, store, folder, .. } = bench;
        gateway.stop().await;
        let bench = Bench::on(store, folder, |config| upstream.configure(config)).await;
        Self { upstream, bench, session }
    }
}

#[tokio::test]
async fn sbp_l1_11_four_turns_of_an_editing_client_are_eight_entries_and_one_instruction() {
    let mut world = World::new().await;
    let mut kept: Vec<Value> = Vec::new();
    for n in 1..=4 {
        // The time is in its system prompt, answers lose their form, context goes into the newest
        // question, and only the last three messages are sent again.
        let mut sent = vec![system(&format!("It is {n} o'clock."))];
        sent.extend(kept[kept.len().saturating_sub(3)..].iter().cloned());
        sent.push(user(&format!("Context {n}.\nQuestion {n}?")));
        let told = world.send(json!(sent)).await;
        let expected: Vec<_> = sent
            .iter()
            .map(|m| format!("{}: {}", m["role"].as_str().unwrap(), m["content"].as_str().unwrap()))
            .collect();
        assert_eq!(told, expected, "the caller manages its context");
        kept.push(user(&format!("Question {n}?")));
        kept.push(assistant(&format!("  ANSWER, {n}! ")));
        if n == 2 {
            world = world.restart().await;
        }
    }
    let log = world.log().await;
    assert_eq!(log.len(), 9, "{log:?}");
    assert_eq!(log[0], "system: It is 1 o'clock.");
    // A caller that sends only what is new gets the rest from the log, and the newest instruction.
    let told = world.restart().await.send(json!([user("and?")])).await;
    assert_eq!((told.len(), told[0].as_str()), (10, "system: It is 4 o'clock."), "{told:?}");
}

#[tokio::test]
async fn sbp_l1_11_the_phones_turns_are_put_in_their_place() {
    let world = World::new().await;
    world.send(json!([user("one")])).await;
    world.phone_says("from the phone").await;
    let world = world.restart().await;
    let told = world.send(json!([user("one"), assistant("answer 1"), user("two")])).await;
    let expected = [
        "user: one",
        "assistant: answer 1",
        "user: from the phone",
        "assistant: answer 2",
        "user: two",
    ];
    assert_eq!(told, expected);
    assert_eq!(world.log().await.len(), 6);
}

#[tokio::test]
async fn sbp_l1_11_a_regenerated_answer_supersedes_and_both_stay_in_the_log() {
    let world = World::new().await;
    world.send(json!([user("one")])).await;
    let sent = json!([user("one"), assistant("answer 1"), user("two")]);
    world.send(sent.clone()).await;
    let told = world.send(sent).await;
    assert_eq!(told, ["user: one", "assistant: answer 1", "user: two"]);
    let log = [
        "user: one",
        "assistant: answer 1",
        "user: two",
        "assistant: answer 2",
        "assistant: answer 3",
    ];
    assert_eq!(world.log().await, log);
    let world = world.restart().await;
    let told = world.send(json!([user("three")])).await;
    assert_eq!(told[2..], ["user: two", "assistant: answer 3", "user: three"]);
}

#[tokio::test]
async fn sbp_l1_11_answers_regenerated_twice_and_after_the_phone_stay_in_their_place() {
    let mut world = World::new().await;
    world.send(json!([user("one")])).await;
    let sent = json!([user("one"), assistant("answer 1"), user("two")]);
    world.send(sent.clone()).await;
    for n in 3..6 {
        let told = world.send(sent.clone()).await;
        assert_eq!(told, ["user: one", "assistant: answer 1", "user: two"], "{n}");
        if n == 3 {
            world.phone_says("from the phone").await;
            world = world.restart().await;
        }
    }
    assert_eq!(world.log().await.len(), 9);
    let told = world.restart().await.send(json!([user("three")])).await;
    let expected = ["user: two", "assistant: answer 6", "user: from the phone"];
    assert_eq!(told[2..5], expected);
    assert_eq!(told.len(), 7, "{told:?}");
}

#[tokio::test]
async fn sbp_l1_11_an_attempt_that_fails_in_a_later_round_leaves_the_answer() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |c| c.memory.remember = Remember::Always).await;
    let session = bench.session().await;
    let world = World { upstream, bench, session };
    world.send(json!([user("one")])).await;
    let sent = json!([user("one"), assistant("answer 1"), user("two")]);
    world.send(sent.clone()).await;
    let key = format!("Bearer {}", world.session.token);
    let failing = json!({ "model": "remembers-then-502", "messages": sent });
    let failed = world.bench.chat_as(&[("authorization", &key)], failing).await;
    assert_eq!(failed.status, 502, "{}", failed.text);
    assert!(world.log().await.len() > 4, "the attempt is in the log");
    let expected = ["user: one", "assistant: answer 1", "user: two", "assistant: answer 2"];
    // After a note of what the agent remembers.
    let told = world.send(json!([user("three")])).await;
    assert_eq!(told[1..5], expected);
    assert_eq!(told[5..], ["user: three"]);
    let told = world.restart().await.send(json!([user("four")])).await;
    assert_eq!(told[1..5], expected);
}

#[tokio::test]
async fn sbp_l1_11_the_caller_decides_who_manages_the_history() {
    let world = World::new().await;
    world.send(json!([user("one")])).await;
    let told = world.send_as(json!([user("two")]), json!("mine")).await;
    assert_eq!(told, ["user: two"]);
    let told = world
        .send_as(json!([user("two"), assistant("answer 2"), user("three")]), json!("stored"))
        .await;
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(world.log().await.len(), 6);
    let refused = json!({ "model": "m", "messages": [user("x")], "sbp": { "history": "yours" } });
    assert_eq!(world.bench.chat(refused).await.status, 422);
}
