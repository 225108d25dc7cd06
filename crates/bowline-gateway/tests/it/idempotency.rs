//! G3: the same key and body give the same result, however often, at once or after a restart.

use std::collections::HashSet;
use std::time::Duration;

use bowline_gateway::config::Price;
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, DEADLINE, Session, asked, eventually, spoken, turn};
use crate::upstream::{MockUpstream, Piece};

const KEY: (&str, &str) = ("Idempotency-Key", "the-key");

fn keyed(mut body: Value) -> Value {
    body["sbp"]["client_turn_id"] = json!("the-key");
    body
}

fn same(one: &Answer, other: &Answer) {
    assert_eq!((one.status, &one.text), (other.status, &other.text));
    assert_eq!(one.header("x-session-token"), other.header("x-session-token"));
    assert_eq!(one.header("content-type"), other.header("content-type"));
}

#[tokio::test]
async fn g3_the_same_key_and_body_give_the_same_bytes_and_run_once() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let new = || asked("m", "x", json!({}));
    for (n, (headers, body)) in [
        (&[KEY][..], turn(&session, "m", "x")),
        (&[], keyed(turn(&bench.session().await, "m", "x"))),
        (&[KEY], new()),
        (&[("Idempotency-Key", "another")], new()),
        (&[], asked("m", "x", json!({ "client_turn_id": "a third" }))),
    ]
    .into_iter()
    .enumerate()
    {
        let first = bench.chat_as(headers, body.clone()).await;
        assert_eq!(first.status, 200, "{}", first.text);
        for _ in 0..2 {
            same(&first, &bench.chat_as(headers, body.clone()).await);
        }
        assert_eq!(upstream.calls().len(), n + 1, "one upstream call each");
        let answered = Session::of(&first.body["sbp"]);
        assert_eq!(bench.log(&answered).await.len(), 2, "one stored turn");
        let makes_session = !body["sbp"]["session_id"].is_string();
        assert_eq!(!answered.token.is_empty(), makes_session, "with its token each time");
    }
    assert_eq!(bench.sessions().await.len(), 5);
}

#[tokio::test]
async fn g3_a_prompt_is_replayed_in_its_own_shape() {
    let bench = Bench::start().await;
    let ask = || async {
        let body = json!({ "model": "m", "prompt": "echo x", "sbp": {} });
        bench.call(Method::POST, "/v1/completions", &[KEY], &body).await
    };
    let first = ask().await;
    assert_eq!(first.body["choices"][0]["text"], "x");
    same(&first, &ask().await);
}

#[tokio::test]
async fn g3_a_replayed_cost_is_the_same_to_the_last_digit() {
    let upstream = MockUpstream::start().await;
    let model = |n: u32| format!("model-{n}");
    let bench = Bench::before_with(&upstream, |config| {
        for n in 1..=40 {
            let price = Price { input: f64::from(n) / 7.0, output: f64::from(n).sqrt() / 3.0 };
            config.prices.insert(model(n), price);
        }
    })
    .await;
    for n in 1..=40 {
        let body = keyed(asked(&model(n), &model(n), json!({})));
        let key = model(n);
        let key = [("Idempotency-Key", key.as_str())];
        same(&bench.chat_as(&key, body.clone()).await, &bench.chat_as(&key, body).await);
    }
}

#[tokio::test]
async fn g3_a_stream_is_replayed_with_the_same_words_and_state() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let mut body = asked("m", "x", json!({}));
    body["stream"] = json!(true);
    let first = bench.chat_as(&[KEY], body.clone()).await;
    let again = bench.chat_as(&[KEY], body.clone()).await;
    let third = bench.chat_as(&[KEY], body).await;
    same(&again, &third);
    let (first, again) = (first.chunks(), again.chunks());
    assert_eq!((spoken(&first), spoken(&again)), ("answer 1".into(), "answer 1".into()));
    let (first, again) = (first.last().unwrap(), again.last().unwrap());
    assert_eq!(first["sbp"].to_string(), again["sbp"].to_string());
    assert_eq!(first["choices"][0]["finish_reason"], again["choices"][0]["finish_reason"]);
    assert!(first["sbp"]["session_token"].is_string());
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn g3_duplicates_that_stream_join_the_turn_that_runs() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    for (n, mut body) in
        [turn(&session, "gated", "x"), asked("gated", "x", json!({}))].into_iter().enumerate()
    {
        body["stream"] = json!(true);
        let gate = upstream.gate();
        gate.send(Piece::Text("one ".into())).unwrap();
        let mut readers = Vec::new();
        for _ in 0..3 {
            let request = bench.http.post(bench.url("/v1/chat/completions")).header(KEY.0, KEY.1);
            let mut reader = request.json(&body).send().await.unwrap().bytes_stream();
            let seen = tokio::time::timeout(DEADLINE, reader.next()).await.unwrap();
            let seen = String::from_utf8(seen.unwrap().unwrap().to_vec()).unwrap();
            assert!(seen.contains("one "), "each is in the middle of it: {seen}");
            readers.push((reader, seen));
        }
        gate.send(Piece::Text("two".into())).unwrap();
        drop(gate);
        let mut texts = HashSet::new();
        for (mut reader, mut text) in readers {
            while let Some(piece) = tokio::time::timeout(DEADLINE, reader.next()).await.unwrap() {
                text += std::str::from_utf8(&piece.unwrap()).unwrap();
            }
            assert!(text.contains("two") && text.ends_with("data: [DONE]\n\n"), "{text}");
            texts.insert(text);
        }
        assert_eq!(texts.len(), 1, "all read the same");
        assert_eq!(upstream.calls().len(), n + 1, "one upstream call");
    }
    assert_eq!(bench.log(&session).await.len(), 2, "one stored turn");
    assert_eq!(bench.sessions().await.len(), 2);
}

#[tokio::test]
async fn g3_duplicates_at_once_get_one_answer() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let gate = upstream.gate();
    let ask = || bench.chat_as(&[KEY], asked("gated", "x", json!({})));
    let release = async {
        upstream.until_calls(1).await;
        gate.send(Piece::Text("once".into())).unwrap();
        drop(gate);
    };
    let (a, b, c, d, ()) = tokio::join!(ask(), ask(), ask(), ask(), release);
    assert_eq!((a.status, a.content()), (200, "once"));
    for other in [b, c, d] {
        same(&a, &other);
    }
    assert_eq!((upstream.calls().len(), bench.sessions().await.len()), (1, 1));
}

#[tokio::test]
async fn g3_another_body_under_the_same_key_is_a_conflict() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    bench.chat_as(&[KEY], turn(&session, "m", "one")).await;
    bench.chat_as(&[KEY], asked("m", "one", json!({}))).await;
    for other in [turn(&session, "m", "two"), asked("m", "two", json!({}))] {
        let refused = bench.chat_as(&[KEY], other).await;
        assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", refused.text);
    }
    assert_eq!((upstream.calls().len(), bench.log(&session).await.len()), (2, 2));
    // The same key in another session is another turn.
    let elsewhere = bench.session().await;
    assert_eq!(bench.chat_as(&[KEY], turn(&elsewhere, "m", "two")).await.status, 200);
}

#[tokio::test]
async fn g3_a_key_belongs_to_the_caller_who_used_it() {
    let keys = ["key-of-the-first-caller", "key-of-the-other-caller"];
    let bench = Bench::with(|config| config.auth.api_keys = keys.map(str::to_owned).into()).await;
    let mut made = HashSet::new();
    for key in keys {
        let bearer = format!("Bearer {key}");
        let headers = [("Authorization", bearer.as_str()), KEY];
        let said = bench.chat_as(&headers, asked("m", "echo x", json!({}))).await;
        assert_eq!(said.status, 200);
        made.insert(said.header("x-session-token").to_owned());
    }
    assert_eq!(made.len(), 2, "nobody gets another's session by guessing a key");
}

#[tokio::test]
async fn g3_sessions_are_made_once_per_key() {
    let bench = Bench::start().await;
    let own = "0123456789-my-own-token-32-chars";
    for (key, body) in [("a", json!({})), ("b", json!({ "session_token": own }))] {
        let headers = [("Idempotency-Key", key)];
        let first = bench.call(Method::POST, "/v1/sessions", &headers, &body).await;
        assert_eq!(first.status, 201);
        bench.say(&Session::of(&first.body), "echo x").await;
        same(&first, &bench.call(Method::POST, "/v1/sessions", &headers, &body).await);
        let other = json!({ "agent_id": "other" });
        let refused = bench.call(Method::POST, "/v1/sessions", &headers, &other).await;
        assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"));
    }
    assert_eq!(bench.sessions().await.len(), 2);
}

#[tokio::test]
async fn g3_the_key_of_a_turn_that_failed_is_free_again() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    for sbp in [json!({}), json!({ "session_id": session.id })] {
        let refused = bench.chat_as(&[KEY], asked("status-400", "x", sbp.clone())).await;
        assert_eq!(refused.status, 400);
        let said = bench.chat_as(&[KEY], asked("m", "other words", sbp)).await;
        assert_eq!(said.status, 200, "{}", said.text);
    }
    // A turn that broke off in the middle is run anew, not given again.
    let gate = upstream.gate();
    gate.send(Piece::Text("half".into())).unwrap();
    gate.send(Piece::Cut).unwrap();
    let ask = || bench.chat_as(&[("Idempotency-Key", "broken")], turn(&session, "gated", "y"));
    assert_eq!(ask().await.status, 502);
    let gate = upstream.gate();
    gate.send(Piece::Text("whole".into())).unwrap();
    drop(gate);
    let said = ask().await;
    assert_eq!((said.status, said.content()), (200, "whole"));
}

#[tokio::test]
async fn g3_what_cannot_be_a_key_is_refused() {
    let bench = Bench::start().await;
    let long = "k".repeat(256);
    for key in ["", &long] {
        let refused = bench.chat_as(&[("Idempotency-Key", key)], asked("m", "x", json!({}))).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"));
        let named = bench.chat(asked("m", "x", json!({ "client_turn_id": key }))).await;
        assert_eq!(named.refusal(), (422, "SBP_INVALID_REQUEST"));
    }
    let longest = bench.chat(asked("m", "x", json!({ "client_turn_id": &long[1..] }))).await;
    assert_eq!((longest.status, bench.sessions().await.len()), (200, 1));
}

#[tokio::test]
async fn g3_a_key_outlives_a_restart() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let body = || asked("m", "x", json!({}));
    let first = bench.chat_as(&[KEY], body()).await;
    let Bench { gateway, store, folder, .. } = bench;
    gateway.stop().await;
    let bench = Bench::on(store, folder, |config| upstream.configure(config)).await;
    same(&first, &bench.chat_as(&[KEY], body()).await);
    assert_eq!((upstream.calls().len(), bench.sessions().await.len()), (1, 1));
}

#[tokio::test]
async fn g3_a_full_lane_still_gives_what_was_answered_before() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| config.limits.waiting_turns = 0).await;
    let session = bench.session().await;
    let body = turn(&session, "m", "x");
    let first = bench.chat_as(&[KEY], body.clone()).await;
    assert_eq!(first.status, 200);
    let gate = upstream.gate();
    let running = tokio::spawn({
        let request = bench.http.post(bench.url("/v1/chat/completions"));
        request.json(&turn(&session, "gated", "slow")).send()
    });
    crate::bench::eventually("running", async || upstream.calls().len() == 2).await;
    same(&first, &bench.chat_as(&[KEY], body).await);
    let other = bench.chat_as(&[("Idempotency-Key", "new")], turn(&session, "m", "y")).await;
    assert_eq!(other.refusal(), (409, "SBP_SESSION_CONFLICT"));
    drop(gate);
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    assert_eq!(bench.show(&session).await["step_count"], 2, "the refused one left nothing");
}

#[tokio::test]
async fn g3_keys_are_forgotten_when_they_are_old() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let key = [("Idempotency-Key", "the-same")];
    assert_eq!(bench.chat_as(&key, turn(&session, "m", "one")).await.status, 200);
    let other = bench.chat_as(&key, turn(&session, "m", "two")).await;
    assert_eq!(other.refusal().0, 409, "{}", other.text);
    let bench = bench
        .reopened_with(|config| {
            upstream.configure(config);
            config.limits.key_memory = Duration::ZERO;
        })
        .await;
    // It forgets soon after it has started.
    eventually("forgotten", async || {
        bench.chat_as(&key, turn(&session, "m", "two")).await.status == 200
    })
    .await;
}
