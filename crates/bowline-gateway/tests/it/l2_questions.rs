//! SBP-L2-20: what is asked on one surface is shown on the others.

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::bench::{Bench, joined};
use crate::l2_surfaces::{alive, join, kinds, leave, message, plain};
use crate::upstream::MockUpstream;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_20_a_message_is_shown_on_the_others_and_not_where_it_was_sent() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut a, _) = join(&bench, &session, "a").await;
    let (mut b, _) = join(&bench, &session, "b").await;
    let (mut desk, _) = plain(&bench, &session, "desk").await;
    for n in 0..40 {
        let text = format!("echo {n}");
        a.send(message(&format!("m{n}"), &text)).await;
        let mut own = a.until("TURN_COMPLETE").await;
        own.extend(alive(&mut a).await);
        assert!(!kinds(&own).contains(&"USER_TURN"), "its own words, {n}: {own:?}");
        for phone in [&mut b, &mut desk] {
            let seen = phone.until("TURN_COMPLETE").await;
            assert_eq!(joined(&seen), n.to_string());
        }
    }
    leave(desk, &bench, &session, "desk").await;
    b.until("SURFACES").await;
    a.send(message("shown", "echo shown")).await;
    let seen = b.until("TURN_COMPLETE").await;
    let asked: Vec<_> = seen.iter().filter(|frame| frame["type"] == "USER_TURN").collect();
    assert_eq!(asked.len(), 1, "once: {seen:?}");
    assert_eq!(asked[0]["content"], "echo shown");
    assert_eq!(asked[0]["turn_id"], seen.last().unwrap()["turn_id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_20_a_burst_of_messages_is_not_shown_where_it_was_sent() {
    let bench = Bench::start().await;
    for _ in 0..10 {
        let session = bench.session().await;
        let (mut a, _) = join(&bench, &session, "a").await;
        for n in 0..60 {
            let frame = message(&format!("m{n}"), &format!("echo {n}")).to_string();
            a.socket.feed(Packet::text(frame)).await.unwrap();
        }
        a.socket.flush().await.unwrap();
        let mut complete = 0;
        while complete < 60 {
            let frame = a.next().await;
            assert_ne!(frame["type"], "USER_TURN", "{frame}");
            complete += usize::from(frame["type"] == "TURN_COMPLETE");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_20_a_question_is_shown_with_its_device_before_the_answer() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut a, _) = join(&bench, &session, "a").await;
    let (mut b, _) = join(&bench, &session, "b").await;
    let (mut desk, _) = plain(&bench, &session, "desk").await;
    let gate = upstream.gate();
    let mut ask = message("one", "what now?");
    ask["model"] = json!("gated");
    a.send(ask).await;
    for phone in [&mut b, &mut desk] {
        let shown = phone.until("USER_TURN").await.pop().unwrap();
        assert_eq!(shown["content"], "what now?");
        assert_eq!((&shown["surface_id"], &shown["seq"]), (&json!("a"), &Value::Null));
    }
    drop(gate);
    for phone in [&mut b, &mut desk] {
        assert!(!kinds(&phone.until("TURN_COMPLETE").await).contains(&"USER_TURN"), "once");
    }
    assert!(!kinds(&a.until("TURN_COMPLETE").await).contains(&"USER_TURN"));
}

#[tokio::test]
async fn sbp_l2_20_a_joined_drain_shows_the_questions_and_does_not_count_them() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    for n in 0..3 {
        bench.say(&session, &format!("echo {n}")).await;
    }
    let (mut joined_one, welcome) = join(&bench, &session, "a").await;
    assert_eq!(
        (&welcome["queued_turns"], &welcome["tether_turns_pending"]),
        (&json!(3), &json!(3))
    );
    for n in 0..3u64 {
        let asked = joined_one.next().await;
        assert_eq!(
            (&asked["type"], &asked["content"]),
            (&json!("USER_TURN"), &json!(format!("echo {n}")))
        );
        assert_eq!(asked["seq"], 2 * n + 1);
        let answer = joined_one.next().await;
        assert_eq!((&answer["type"], &answer["turn_index"]), (&json!("TETHER_TURN"), &json!(n)));
        assert_eq!(answer["turn_id"], asked["turn_id"]);
    }
    let (mut plain_one, welcome) = bench.attach_as(&session, json!({})).await;
    assert_eq!(welcome["queued_turns"], bench.show(&session).await["tether_turns_pending"]);
    assert!(!kinds(&alive(&mut plain_one).await).contains(&"USER_TURN"));
}
