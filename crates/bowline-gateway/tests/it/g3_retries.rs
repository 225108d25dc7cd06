//! G3: what a client sends again on its own joins its first request.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::{Bench, spoken, user};
use crate::upstream::{MockUpstream, Piece};

const AGAIN: (&str, &str) = ("x-stainless-retry-count", "1");

fn body(model: &str, sbp: Value) -> Value {
    json!({ "model": model, "messages": [user("continue")], "sbp": sbp })
}

/// A request with that body, as it is written to a connection.
fn post(body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn g3_an_sdks_retry_joins_the_running_turn_and_two_real_requests_stay_two() {
    let upstream = MockUpstream::start().await;
    let bench = Arc::new(Bench::before(&upstream).await);
    let session = bench.session().await;
    let body = body("gated", json!({ "session_id": session.id }));
    let gate = upstream.gate();
    let first = tokio::spawn({
        let (bench, body) = (Arc::clone(&bench), body.clone());
        async move { bench.chat(body).await }
    });
    upstream.until_calls(1).await;
    let again = tokio::spawn({
        let (bench, body) = (Arc::clone(&bench), body.clone());
        async move { bench.chat_as(&[AGAIN], body).await }
    });
    gate.send(Piece::Text("once".into())).unwrap();
    drop(gate);
    let (first, again) = (first.await.unwrap(), again.await.unwrap());
    assert_eq!(
        (first.content(), first.body["sbp"]["turn_id"].clone()),
        ("once", again.body["sbp"]["turn_id"].clone())
    );
    // After its end, too.
    let later = bench.chat_as(&[AGAIN], body.clone()).await;
    assert_eq!(later.body, first.body);
    assert_eq!((upstream.calls().len(), bench.log(&session).await.len()), (1, 2));
    // A caller that was answered and says the same again means it.
    let gate = upstream.gate();
    gate.send(Piece::Text("twice".into())).unwrap();
    drop(gate);
    assert_eq!(bench.chat(body).await.content(), "twice");
    assert_eq!(bench.log(&session).await.len(), 4);
}

#[tokio::test]
async fn g3_a_retry_of_a_first_turn_gets_the_same_session_and_its_token() {
    let upstream = MockUpstream::start().await;
    let bench = Arc::new(Bench::before(&upstream).await);
    let body = body("gated", json!({}));
    let ask = |headers: &'static [(&'static str, &'static str)]| {
        let (bench, body) = (Arc::clone(&bench), body.clone());
        tokio::spawn(async move { bench.chat_as(headers, body).await })
    };
    let gate = upstream.gate();
    let first = ask(&[]);
    upstream.until_calls(1).await;
    let again = ask(&[AGAIN]);
    // Another agent is another request, and another key another caller.
    let gates = [upstream.gate(), upstream.gate()];
    let agent = ask(&[AGAIN, ("x-agent-id", "cook")]);
    upstream.until_calls(2).await;
    let other = ask(&[AGAIN, ("authorization", "Bearer another-key-of-somebody")]);
    upstream.until_calls(3).await;
    gate.send(Piece::Text("once".into())).unwrap();
    drop((gate, gates));
    let (first, again) = (first.await.unwrap(), again.await.unwrap());
    assert_eq!((first.content(), &again.body["sbp"]), ("once", &first.body["sbp"]));
    assert!(again.body["sbp"]["session_token"].is_string());
    assert_ne!(agent.await.unwrap().body["sbp"], first.body["sbp"]);
    assert_ne!(other.await.unwrap().body["sbp"], first.body["sbp"]);
    assert_eq!((upstream.calls().len(), bench.sessions().await.len()), (3, 3));
}

#[tokio::test]
async fn g3_a_retry_of_an_answered_first_turn_gets_the_same_session_and_its_token() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let first = bench.chat(body("m", json!({}))).await;
    let again = bench.chat_as(&[AGAIN], body("m", json!({}))).await;
    assert_eq!(again.body["sbp"], first.body["sbp"]);
    assert!(again.body["sbp"]["session_token"].is_string());
    assert_eq!((upstream.calls().len(), bench.sessions().await.len()), (1, 1));
}

#[tokio::test]
async fn g3_the_retry_of_a_refused_request_does_not_get_an_earlier_answer() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| config.limits.waiting_turns = 0).await;
    let bench = Arc::new(bench);
    let session = bench.session().await;
    let body = body("m", json!({ "session_id": session.id }));
    assert_eq!(bench.chat(body.clone()).await.content(), "answer 1");
    let gate = upstream.gate();
    let busy = tokio::spawn({
        let (bench, session) = (Arc::clone(&bench), session.clone());
        async move { bench.say_to(&session, "gated", "something else").await }
    });
    upstream.until_calls(2).await;
    let refused = bench.chat(body.clone()).await;
    assert_ne!(refused.status, 200, "{}", refused.text);
    drop(gate);
    busy.await.unwrap();
    assert_eq!(bench.chat_as(&[AGAIN], body).await.content(), "answer 3");
}

#[tokio::test]
async fn g3_the_same_words_after_a_retry_was_answered_are_a_new_turn() {
    let upstream = MockUpstream::start().await;
    let soon = std::time::Duration::from_millis(1);
    let bench = Bench::before_with(&upstream, |config| config.limits.half_closed = soon).await;
    let session = bench.session().await;
    let body = body("gated", json!({ "session_id": session.id }));
    let gate = upstream.gate();
    let socket = bench.raw(&post(&body.to_string())).await;
    upstream.until_calls(1).await;
    drop(socket);
    gate.send(Piece::Text("once".into())).unwrap();
    drop(gate);
    let again = bench.chat_as(&[AGAIN], body.clone()).await;
    assert_eq!(again.content(), "once");
    let gate = upstream.gate();
    gate.send(Piece::Text("twice".into())).unwrap();
    drop(gate);
    assert_eq!(bench.chat(body).await.content(), "twice");
    assert_eq!((upstream.calls().len(), bench.log(&session).await.len()), (2, 4));
}

#[tokio::test]
async fn g3_a_request_whose_connection_broke_is_joined_without_being_called_a_retry() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    for stream in [false, true] {
        let calls = upstream.calls().len();
        let gate = upstream.gate();
        let mut body = body("gated", json!({ "session_id": session.id }));
        body["stream"] = json!(stream);
        let mut socket = bench.raw(&post(&body.to_string())).await;
        upstream.until_calls(calls + 1).await;
        socket.shutdown().await.unwrap();
        if !stream {
            // It closed its side and may be gone: the turn goes on, and is joined.
            let again = bench.chat(body.clone());
            tokio::pin!(again);
            gate.send(Piece::Text("kept".into())).unwrap();
            drop(gate);
            let mut rest = String::new();
            socket.read_to_string(&mut rest).await.unwrap();
            assert!(rest.contains("kept"), "a half-closed client is answered: {rest}");
            assert_eq!(again.await.content(), "kept");
        } else {
            gate.send(Piece::Text("kept".into())).unwrap();
            drop(gate);
            let mut rest = String::new();
            socket.read_to_string(&mut rest).await.unwrap();
            assert!(rest.contains("kept") && rest.contains("[DONE]"), "{rest}");
            assert_eq!(spoken(&bench.chat(body.clone()).await.chunks()), "kept");
        }
        assert_eq!(upstream.calls().len(), calls + 1);
    }
    assert_eq!(bench.log(&session).await.len(), 4);
}
