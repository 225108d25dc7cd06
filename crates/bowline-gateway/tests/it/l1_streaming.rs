//! SBP L1: answers as Server-Sent Events; a turn goes on when its reader disconnects.

use std::collections::HashSet;

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::bench::{Bench, DEADLINE, Session, asked, some_of, spoken, turn};
use crate::upstream::{MockUpstream, Piece};

fn streaming(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

#[tokio::test]
async fn sbp_l1_10_a_stream_has_openais_shape_and_its_last_chunk_carries_sbp() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    // Through an upstream that streams, through one that does not care, and the built-in agent.
    for (model, text) in [("m", "answer 1"), ("odd", "a"), ("bowline/offline", "one two three")] {
        let ask = streaming(asked(model, "echo one two three", json!({})));
        let said = bench.chat(ask).await;
        assert_eq!(
            (said.status, said.header("content-type")),
            (200, "text/event-stream"),
            "{model}"
        );
        let chunks = said.chunks();
        assert_eq!(spoken(&chunks), text);
        let (last, before) = chunks.split_last().unwrap();
        let session = Session::of(&last["sbp"]);
        assert_eq!(said.header("x-session-token"), session.token);
        assert_eq!((&last["sbp"]["step_count"], &last["sbp"]["seq"]), (&json!(1), &json!(2)));
        for chunk in &chunks {
            assert_eq!(chunk["choices"].as_array().unwrap().len(), 1, "choices[0] never fails");
            assert!(chunk["choices"][0]["delta"].is_object(), "{chunk}");
        }
        assert!(before.iter().all(|chunk| chunk.get("sbp").is_none()), "{model}");
        assert_eq!(last["choices"][0]["finish_reason"], "stop", "{model}");
        assert_eq!(bench.log(&session).await[1].1, text);
    }
}

#[tokio::test]
async fn sbp_l1_10_tokens_are_counted_only_for_those_who_ask() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let silent = bench.chat(streaming(asked("m", "x", json!({})))).await.chunks();
    assert!(silent.iter().all(|chunk| chunk.get("usage").is_none()), "{silent:?}");
    assert_eq!(upstream.calls()[0].body["stream_options"]["include_usage"], true, "we ask for it");

    let mut ask = streaming(asked("m", "x", json!({})));
    ask["stream_options"] = json!({ "include_usage": true });
    let counted = bench.chat(ask).await.chunks();
    let last = counted.last().unwrap();
    assert_eq!(last["usage"]["total_tokens"], 1100);
    assert!(last["sbp"].is_object(), "the last chunk carries sbp here too");
    assert_eq!(spoken(&counted[..counted.len() - 1]), "answer 2");
}

#[tokio::test]
async fn sbp_l1_10_an_upstream_that_does_not_stream_is_still_read_as_one() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    // The mock streams only when asked; a refusal to stream is a whole answer to `stream: true`.
    let said = bench.chat(streaming(turn(&session, "whole", "x"))).await;
    let chunks = said.chunks();
    assert_eq!((chunks.len(), spoken(&chunks).as_str()), (1, "answer 1"));
    assert_eq!(chunks[0]["object"], "chat.completion.chunk");
    assert_eq!(chunks[0]["sbp"]["session_id"], session.id);
}

#[tokio::test]
async fn sbp_l1_10_a_turn_is_kept_whole_when_its_reader_goes_away() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let gate = upstream.gate();
    gate.send(Piece::Text("the first half".into())).unwrap();
    let ask = streaming(turn(&session, "gated", "go")).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        ask.len()
    );
    let mut socket = bench.raw(&(head + &ask)).await;
    let mut read = String::new();
    while !read.contains("the first half") {
        read += &some_of(&mut socket).await;
    }
    // A reset, not a goodbye: the very next write of the gateway fails.
    socket.set_zero_linger().unwrap();
    drop(socket);
    gate.send(Piece::Text(", and the second".into())).unwrap();
    drop(gate);
    bench.until(&session, "kept", |seen| seen["step_count"] == 1).await;
    let entries = bench.entries(&session).await;
    assert_eq!(entries[1]["message"]["content"], "the first half, and the second");
    assert_eq!((&entries[1]["status"], entries.len()), (&json!("complete"), 2));
}

#[tokio::test]
async fn sbp_l1_10_what_is_read_piece_by_piece_comes_while_it_is_made() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let gate = upstream.gate();
    gate.send(Piece::Text("word 0 ".into())).unwrap();
    let request = bench.http.post(bench.url("/v1/chat/completions"));
    let ask = streaming(turn(&session, "gated", "go"));
    let mut body = request.json(&ask).send().await.unwrap().bytes_stream();
    let mut read = String::new();
    for n in 1..=3 {
        // The next word is made only when the one before has been read.
        while !read.contains(&format!("word {}", n - 1)) {
            let piece = tokio::time::timeout(DEADLINE, body.next()).await.unwrap();
            read += std::str::from_utf8(&piece.unwrap().unwrap()).unwrap();
        }
        gate.send(Piece::Text(format!("word {n} "))).unwrap();
    }
    drop(gate);
    while let Some(piece) = tokio::time::timeout(DEADLINE, body.next()).await.unwrap() {
        read += std::str::from_utf8(&piece.unwrap()).unwrap();
    }
    assert!(read.ends_with("data: [DONE]\n\n"), "{read}");
}

#[tokio::test]
async fn sbp_l1_10_every_chunk_of_a_long_answer_parses_and_none_is_lost() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let said = bench.chat(streaming(turn(&session, "m", "count to 2000"))).await;
    let chunks = said.chunks();
    let ids: HashSet<_> = chunks.iter().map(|chunk| chunk["id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "one answer, one id");
    let numbers: Vec<u32> = spoken(&chunks).lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (1..=2000).collect::<Vec<_>>());
}
