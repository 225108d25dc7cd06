//! SBP L2: pending turns, delivery and acknowledgement.

use serde_json::{Value, json};

use crate::bench::{Bench, joined};
use crate::upstream::{MockUpstream, Piece};

#[tokio::test]
async fn sbp_l2_05_pending_turns_come_oldest_first_before_anything_live() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    for n in 0..5 {
        bench.say(&session, &format!("echo turn {n}")).await;
    }
    let (mut phone, welcome) = bench.attach(&session).await;
    assert_eq!(welcome["queued_turns"], 5);
    for n in 0..5u64 {
        let turn = phone.next().await;
        assert_eq!(turn["type"], "TETHER_TURN");
        assert_eq!((turn["turn_index"].as_u64(), turn["seq"].as_u64()), (Some(n), Some(2 * n + 2)));
        assert_eq!(turn["content"], format!("turn {n}"));
        assert_eq!(
            turn["turn"],
            json!({ "role": "assistant", "content": format!("turn {n}"), "model_used": "m" })
        );
        assert_eq!((&turn["role"], &turn["model_used"]), (&json!("assistant"), &json!("m")));
        assert_eq!(turn["session_id"], session.id);
        assert!(turn["turn_id"].is_string() && turn["created_at"].is_string());
    }
    bench.say(&session, "echo live").await;
    assert_eq!(joined(&phone.until("TURN_COMPLETE").await), "live");
}

#[tokio::test]
async fn sbp_l2_06_turns_stay_pending_when_the_socket_dies_before_the_pong() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    for n in 0..3 {
        bench.say(&session, &format!("echo {n}")).await;
    }
    for _ in 0..2 {
        // Reads every turn, and goes away without ever answering the ping behind them.
        let (mut phone, welcome) = bench.attach(&session).await;
        assert_eq!(welcome["queued_turns"], 3);
        for _ in 0..3 {
            assert_eq!(phone.next().await["type"], "TETHER_TURN");
        }
        drop(phone);
        bench.until_status(&session, "suspended").await;
    }
    let (mut phone, _) = bench.attach(&session).await;
    phone.confirm(&bench, &session).await;
}

#[tokio::test]
async fn sbp_l2_06_an_ack_confirms_up_to_where_it_says_and_no_further() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    for n in 0..3 {
        bench.say(&session, &format!("echo {n}")).await;
    }
    let (mut phone, _) = bench.attach(&session).await;
    let first = phone.next().await;
    let second = phone.next().await;
    phone.send(json!({ "type": "TETHER_ACK", "seq": first["seq"] })).await;
    bench.until_pending(&session, 2).await;
    phone.send(json!({ "type": "TETHER_ACK", "seq": second["seq"] })).await;
    bench.until_pending(&session, 1).await;
    drop(phone);
    bench.until_status(&session, "suspended").await;
    let (mut phone, welcome) = bench.attach(&session).await;
    assert_eq!(welcome["queued_turns"], 1);
    assert_eq!(phone.next().await["content"], "2");
}

#[tokio::test]
async fn sbp_l2_07_live_output_streams_and_is_confirmed_by_the_barrier() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let said = bench.say(&session, "count to 50").await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(joined(&frames), said.content());
    let complete = frames.last().unwrap();
    assert_eq!(complete["seq"], 2);
    assert_eq!((&complete["step_count"], &complete["model"]), (&json!(1), &json!("m")));
    assert_eq!(complete["turn_id"], said.body["sbp"]["turn_id"]);
    for chunk in &frames[..frames.len() - 1] {
        assert_eq!(chunk["chunk_id"], complete["chunk_id"]);
        assert_eq!((&chunk["seq"], &chunk["session_id"]), (&json!(2), &json!(session.id)));
    }
    phone.confirm(&bench, &session).await;
}

#[tokio::test]
async fn sbp_l2_07_a_live_turn_is_pending_whole_if_the_surface_drops_in_the_middle() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let gate = upstream.gate();
    let asked = tokio::spawn({
        let request = bench.http.post(bench.url("/v1/chat/completions"));
        request.json(&crate::bench::turn(&session, "gated", "go")).send()
    });
    gate.send(Piece::Text("The first half".into())).unwrap();
    assert_eq!(phone.next().await["delta"], "The first half");
    drop(phone);
    bench.until_status(&session, "suspended").await;
    gate.send(Piece::Text(" and the second.".into())).unwrap();
    drop(gate);
    assert_eq!(asked.await.unwrap().unwrap().status(), 200);
    let (mut phone, welcome) = bench.attach(&session).await;
    assert_eq!(welcome["queued_turns"], 1);
    assert_eq!(phone.next().await["content"], "The first half and the second.");
}

#[tokio::test]
async fn sbp_l2_08_a_surface_that_comes_mid_sentence_gets_what_exists_then_the_rest() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut laptop, _) = bench.attach(&session).await;
    let gate = upstream.gate();
    laptop.send(message("one", "gated")).await;
    for piece in ["Über ", "all ", "den "] {
        gate.send(Piece::Text(piece.into())).unwrap();
    }
    let mut seen = String::new();
    while seen.len() < "Über all den ".len() {
        let frame = laptop.next().await;
        seen.push_str(frame["delta"].as_str().unwrap_or_default());
    }
    let (mut phone, _) = bench.attach(&session).await;
    let first = phone.next().await;
    assert_eq!(
        (&first["type"], &first["delta"], &first["offset"]),
        (&json!("TURN_CHUNK"), &json!("Über all den "), &json!(0))
    );
    gate.send(Piece::Text("Gipfeln".into())).unwrap();
    drop(gate);
    let mut frames = vec![first];
    frames.extend(phone.until("TURN_COMPLETE").await);
    assert_eq!(joined(&frames), "Über all den Gipfeln");
    let log = bench.log(&session).await;
    assert_eq!(log.last().unwrap().1, joined(&frames), "byte for byte what is stored");
}

#[tokio::test]
async fn sbp_l2_09_a_surface_without_streaming_gets_whole_turns() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let watch = json!({ "device_type": "iot", "ui_capabilities": ["markdown"] });
    let (mut phone, _) = bench.attach_as(&session, watch).await;
    bench.say(&session, "count to 30").await;
    let frame = phone.next().await;
    assert_eq!(frame["type"], "TETHER_TURN");
    assert_eq!(frame["content"].as_str().unwrap().lines().count(), 30);
}

#[tokio::test]
async fn sbp_l2_11_turns_run_to_the_end_with_no_surface_attached() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    phone.send(message("one", "bowline/offline")).await;
    phone.until("TURN_ACCEPTED").await;
    drop(phone);
    bench.until(&session, "done", |seen| seen["step_count"] == 1).await;
    bench.until_pending(&session, 1).await;
}

#[tokio::test]
async fn sbp_l2_19_an_http_answer_is_pending_unless_the_caller_is_the_only_reader() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    bench.say(&session, "echo for the phone").await;
    assert_eq!(bench.show(&session).await["tether_turns_pending"], 1);
    let mut quiet = crate::bench::turn(&session, "m", "echo for the script");
    quiet["sbp"]["tether"] = json!(false);
    let (mut phone, _) = bench.attach(&session).await;
    assert_eq!(bench.post("/v1/chat/completions", quiet).await.status, 200);
    assert_eq!(phone.next().await["content"], "for the phone");
    bench.say(&session, "echo after").await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(joined(&frames), "after", "the script's turn never reaches a surface");
}

#[tokio::test]
async fn g2_a_drain_of_many_pages_is_complete_and_in_order() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    // A page of the log holds a quarter of a megabyte.
    let said = |n: u64| format!("{n} {}", "and so on ".repeat(150));
    for n in 0..600 {
        bench.say(&session, &format!("echo {}", said(n))).await;
    }
    let (mut phone, welcome) = bench.attach(&session).await;
    assert_eq!(welcome["queued_turns"], 600);
    for n in 0..600u64 {
        let turn = phone.next().await;
        assert_eq!(turn["content"].as_str(), Some(said(n).trim_end()));
        assert_eq!(turn["turn_index"].as_u64(), Some(n));
    }
    phone.confirm(&bench, &session).await;
}

#[tokio::test]
async fn g2_takeovers_while_turns_are_produced_lose_and_reorder_nothing() {
    let bench = std::sync::Arc::new(Bench::start().await);
    let session = bench.session().await;
    let producer = tokio::spawn({
        let (bench, session) = (bench.clone(), session.clone());
        async move {
            for n in 0..60 {
                assert_eq!(bench.say(&session, &format!("echo turn {n}")).await.status, 200);
            }
        }
    });
    let mut held = std::collections::BTreeMap::new();
    while held.len() < 60 {
        let (mut phone, _) = bench.attach(&session).await;
        let mut last = 0;
        let mut chunks: Vec<Value> = Vec::new();
        for _ in 0..4 {
            if held.len() == 60 {
                break;
            }
            let frame = phone.next().await;
            let seq = frame["seq"].as_u64().unwrap_or_default();
            match frame["type"].as_str().unwrap() {
                "TURN_CHUNK" => chunks.push(frame),
                "TETHER_TURN" => {
                    assert!(seq > last, "strictly increasing");
                    last = seq;
                    held.insert(seq, frame["content"].as_str().unwrap().to_owned());
                }
                "TURN_COMPLETE" => {
                    assert!(seq > last, "strictly increasing");
                    last = seq;
                    let id = &frame["chunk_id"];
                    chunks.retain(|chunk| &chunk["chunk_id"] == id);
                    held.insert(seq, joined(&std::mem::take(&mut chunks)));
                }
                _ => {}
            }
        }
        phone.send(json!({ "type": "TETHER_ACK", "seq": last })).await;
    }
    producer.await.unwrap();
    let texts: Vec<_> = held.into_values().collect();
    assert_eq!(texts, (0..60).map(|n| format!("turn {n}")).collect::<Vec<_>>());
}

pub(crate) fn message(id: &str, model: &str) -> Value {
    json!({ "type": "USER_MESSAGE", "content": "echo hello", "client_turn_id": id, "model": model })
}
