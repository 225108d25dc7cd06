//! SBP-L2-18 and G17: a surface's messages are accepted in the order of its frames, and refused
//! only when the queue is full.
//!
//! On several threads, and with all frames in one write: on one thread nothing would be reordered.

use std::sync::Arc;

use bowline_gateway::config::Config;
use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_sbp::session::{TurnRow, Write};
use bowline_store::sqlite::Sqlite;
use bowline_store::{NewSession, TokenHash};
use futures_util::SinkExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message as Packet;
use uuid::Uuid;

use crate::bench::{Bench, Phone, Session, eventually, hello, joined, list};
use crate::upstream::{MockUpstream, Piece};
use crate::written::by_a_dead_process;

/// How often each race is repeated.
const ROUNDS: usize = 20;

/// A message whose `client_turn_id` is also its text.
fn ask(model: &str, text: &str) -> Value {
    json!({ "type": "USER_MESSAGE", "content": text, "client_turn_id": text, "model": model })
}

fn numbered(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("{prefix}{n}")).collect()
}

fn all(model: &str, texts: &[String]) -> Vec<Value> {
    texts.iter().map(|text| ask(model, text)).collect()
}

/// Sends frames in one write.
async fn at_once(phone: &mut Phone, frames: Vec<Value>) {
    for frame in frames {
        phone.socket.feed(Packet::text(frame.to_string())).await.unwrap();
    }
    phone.socket.flush().await.unwrap();
}

/// Reads until that many messages were accepted; returns their `client_turn_id`s in order. None may
/// be refused.
async fn accepted(phone: &mut Phone, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    while names.len() < count {
        let frame = phone.next().await;
        assert_ne!(frame["type"], "TURN_FAILED", "{frame}");
        if frame["type"] == "TURN_ACCEPTED" {
            names.push(name(&frame));
        }
    }
    names
}

fn name(frame: &Value) -> String {
    frame["client_turn_id"].as_str().unwrap().to_owned()
}

/// All user messages, in the order of the log.
async fn questions(bench: &Bench, session: &Session) -> Vec<String> {
    let (mut asked, mut after) = (Vec::new(), 0);
    loop {
        let path = format!("/v1/sessions/{}/messages?limit=500&after={after}", session.id);
        let page = list(&bench.get(&path).await.body["messages"]);
        let Some(last) = page.last() else { return asked };
        after = last["seq"].as_u64().unwrap();
        let users = page.iter().filter(|entry| entry["message"]["role"] == "user");
        asked.extend(users.map(|e| e["message"]["content"].as_str().unwrap().to_owned()));
    }
}

/// The running and waiting turns, as `(turn_id, question)`.
async fn turns(bench: &Bench, session: &Session) -> Vec<(String, String)> {
    let listed = bench.get(&format!("/v1/sessions/{}/turns", session.id)).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let turns = list(&listed.body["turns"]);
    for (n, turn) in turns.iter().enumerate() {
        assert_eq!(turn["running"], n == 0, "{turns:?}");
    }
    turns.iter().map(|turn| (text(&turn["turn_id"]), text(&turn["question"]))).collect()
}

async fn until_idle(bench: &Bench, session: &Session) {
    eventually("idle", async || turns(bench, session).await.is_empty()).await;
}

/// A gateway, a session whose first turn runs until the gate is dropped, and the surface that sent
/// it.
struct Busy {
    bench: Bench,
    upstream: MockUpstream,
    session: Session,
    phone: Phone,
    gate: mpsc::UnboundedSender<Piece>,
}

async fn busy(surface: Value, change: impl FnOnce(&mut Config)) -> Busy {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, change).await;
    let session = bench.session().await;
    let mut phone = bench.socket(&session.id).await;
    let mut first = hello(&session, surface);
    first["join"] = json!(true);
    phone.send(first).await;
    phone.until("SESSION_ATTACHED").await;
    let gate = upstream.gate();
    phone.send(ask("gated", "first")).await;
    accepted(&mut phone, 1).await;
    upstream.until_calls(1).await;
    Busy { bench, upstream, session, phone, gate }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_18_messages_in_one_write_are_accepted_run_and_logged_in_their_order() {
    let bench = Arc::new(Bench::start().await);
    for round in 0..ROUNDS {
        let surfaces = (0..3).map(|n| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move {
                let session = bench.session().await;
                let (mut phone, _) = bench.attach_as(&session, json!({})).await;
                let sent = numbered(&format!("echo {round}-{n}-"), 0..100);
                at_once(&mut phone, all("m", &sent)).await;
                assert_eq!(accepted(&mut phone, 100).await, sent, "accepted");
                (phone, session, sent)
            })
        });
        for surface in surfaces.collect::<Vec<_>>() {
            let (_phone, session, sent) = surface.await.unwrap();
            until_idle(&bench, &session).await;
            assert_eq!(questions(&bench, &session).await, sent, "run and logged");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g17_messages_of_joined_surfaces_keep_each_ones_order() {
    let bench = Arc::new(Bench::start().await);
    for round in 0..ROUNDS {
        let session = bench.session().await;
        let surfaces = (0..4).map(|n| {
            let (bench, session) = (Arc::clone(&bench), session.clone());
            tokio::spawn(async move {
                let mut phone = bench.socket(&session.id).await;
                let mut first = hello(&session, json!({ "surface_id": format!("s{n}") }));
                first["join"] = json!(true);
                let sent = numbered(&format!("echo {round}-{n}-"), 0..25);
                let mut frames = vec![first];
                frames.extend(all("m", &sent));
                at_once(&mut phone, frames).await;
                assert_eq!(accepted(&mut phone, 25).await, sent, "accepted");
                (phone, sent)
            })
        });
        let mut stay = Vec::new();
        for surface in surfaces.collect::<Vec<_>>() {
            stay.push(surface.await.unwrap());
        }
        until_idle(&bench, &session).await;
        let logged = questions(&bench, &session).await;
        assert_eq!(logged.len(), 100);
        for (n, (_, sent)) in stay.iter().enumerate() {
            let its = logged.iter().filter(|text| text.starts_with(&format!("echo {round}-{n}-")));
            assert!(its.eq(sent), "{logged:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_18_messages_beyond_64_are_held_in_order_and_beyond_256_more_refused() {
    let Busy { bench, upstream, session, mut phone, gate } = busy(json!({}), |_| {}).await;
    let sent = numbered("n", 0..330);
    at_once(&mut phone, all("m", &sent[..64])).await;
    assert_eq!(accepted(&mut phone, 64).await, sent[..64]);
    let refused = bench.say(&session, "over HTTP").await;
    assert_eq!(refused.refusal(), (409, "SBP_SESSION_CONFLICT"), "{}", refused.text);
    assert_eq!(turns(&bench, &session).await.len(), 65);

    let mut frames = all("m", &sent[64..]);
    frames.push(json!({ "type": "PING" }));
    at_once(&mut phone, frames).await;
    let mut failed = Vec::new();
    loop {
        let frame = phone.next().await;
        match frame["type"].as_str().unwrap() {
            "TURN_FAILED" => {
                assert_eq!(frame["code"], "SBP_RATE_LIMITED", "{frame}");
                failed.push(name(&frame));
            }
            "PONG" => break,
            kind => assert_ne!(kind, "TURN_ACCEPTED", "{frame}"),
        }
    }
    // One may be on its way to the session and back while the others come.
    let kept = sent.len() - failed.len();
    assert!(kept == 64 + 256 || kept == 64 + 257, "{kept}");
    assert_eq!(failed, sent[kept..], "the last ones, and only those");
    assert_eq!(upstream.calls().len(), 1, "the first turn still runs");

    drop(gate);
    assert_eq!(accepted(&mut phone, kept - 64).await, sent[64..kept]);
    until_idle(&bench, &session).await;
    let mut expected = vec!["first".to_owned()];
    expected.extend_from_slice(&sent[..kept]);
    assert_eq!(questions(&bench, &session).await, expected);
    let run: Vec<_> = upstream.calls().iter().map(|call| call.said().pop().unwrap()).collect();
    let expected: Vec<_> = expected.iter().map(|text| format!("user: {text}")).collect();
    assert_eq!(run, expected, "run in that order, too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_18_held_messages_are_bounded_in_bytes_too() {
    let two = |config: &mut Config| config.limits.waiting_turns = 2;
    let Busy { bench, session, mut phone, gate, .. } = busy(json!({}), two).await;
    at_once(&mut phone, all("m", &numbered("n", 0..2))).await;
    accepted(&mut phone, 2).await;
    let large = |n: usize| format!("{n:02}{}", "x".repeat(100_000));
    let message = |n: usize| {
        json!({ "type": "USER_MESSAGE", "content": large(n), "model": "m",
                "client_turn_id": format!("large{n:02}") })
    };
    let mut frames: Vec<_> = (0..12).map(message).collect();
    frames.push(json!({ "type": "PING" }));
    at_once(&mut phone, frames).await;
    let frames = phone.until("PONG").await;
    let failed = frames.iter().filter(|frame| frame["type"] == "TURN_FAILED");
    let failed: Vec<_> = failed.map(|frame| (name(frame), frame["code"].clone())).collect();
    // Ten are 1 MB and fit in 1 MiB; one may be on its way to the session and back meanwhile.
    let refused: Vec<_> = (12 - failed.len()..12)
        .map(|n| (format!("large{n:02}"), json!("SBP_RATE_LIMITED")))
        .collect();
    assert_eq!(failed, refused);
    assert!((1..=2).contains(&failed.len()), "{failed:?}");
    drop(gate);
    until_idle(&bench, &session).await;
    accepted(&mut phone, 12 - failed.len()).await;
    until_idle(&bench, &session).await;
    let mut expected = vec!["first".to_owned(), "n0".into(), "n1".into()];
    expected.extend((0..12 - failed.len()).map(large));
    assert!(questions(&bench, &session).await == expected, "all that were held, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_18_the_socket_is_read_while_messages_are_held() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| config.limits.waiting_turns = 2).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({ "mcp_tools": ["camera"] })).await;
    phone.send(ask("calls", "[[\"surface_camera\",\"{}\"]]")).await;
    let call = phone.until("TOOL_CALL").await.pop().unwrap();
    let sent = numbered("n", 0..10);
    let mut frames = all("m", &sent);
    frames.push(json!({ "type": "PING" }));
    at_once(&mut phone, frames).await;
    let mut before = phone.until("PONG").await;
    before.retain(|frame| frame["type"] == "TURN_ACCEPTED");
    assert!(before.len() <= 2, "only two may wait: {before:?}");
    assert!(turns(&bench, &session).await.len() <= 3);
    phone
        .send(json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": "a photo" }))
        .await;
    let mut names: Vec<_> = before.iter().map(name).collect();
    names.extend(accepted(&mut phone, sent.len() - names.len()).await);
    assert_eq!(names, sent);
    until_idle(&bench, &session).await;
    let answers = bench.log(&session).await;
    assert!(answers.contains(&("assistant".into(), "a photo".into())), "{answers:?}");
    assert_eq!(questions(&bench, &session).await[1..], sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_18_the_socket_is_read_while_missed_turns_are_sent() {
    const TURNS: usize = 20;
    let bench = Bench::start().await;
    let session = bench.session_with(TURNS).await;
    let mut phone = bench.socket(&session.id).await;
    let frames = vec![
        hello(&session, json!({})),
        json!({ "type": "TOOL_RESULT" }),
        json!({ "type": "PING" }),
        ask("bowline/offline", "echo in between"),
    ];
    at_once(&mut phone, frames).await;
    let missed = |frames: &[Value]| frames.iter().filter(|f| f["type"] == "TETHER_TURN").count();
    // What cannot be read is answered at once, and a ping behind the turns.
    let before = missed(&phone.until("PROTOCOL_ERROR").await);
    assert!(before < TURNS, "it is read only after {TURNS} turns");
    assert_eq!(before + missed(&phone.until("PONG").await), TURNS);
    assert_eq!(joined(&phone.until("TURN_COMPLETE").await), "in between");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_18_cancel_ends_what_the_surface_sent_before_it_and_nothing_else() {
    for _ in 0..ROUNDS {
        let four = |config: &mut Config| config.limits.waiting_turns = 4;
        let busy = busy(json!({ "surface_id": "mine" }), four).await;
        let Busy { bench, upstream, session, mut phone, gate } = busy;
        let mut other = bench.socket(&session.id).await;
        let mut joins = hello(&session, json!({ "surface_id": "other" }));
        joins["join"] = json!(true);
        other.send(joins).await;
        other.until("SESSION_ATTACHED").await;
        gate.send(Piece::Text("so far".into())).unwrap();
        phone.until("TURN_CHUNK").await;
        at_once(&mut phone, all("m", &numbered("waits", 0..3))).await;
        accepted(&mut phone, 3).await;
        other.send(ask("m", "theirs")).await;
        accepted(&mut other, 1).await;

        let mut frames = all("m", &numbered("held", 0..3));
        frames.push(json!({ "type": "CANCEL_TURN" }));
        frames.push(ask("m", "later"));
        at_once(&mut phone, frames).await;
        let (mut failed, mut taken) = (Vec::new(), Vec::new());
        while !taken.contains(&"later".to_owned()) {
            let frame = phone.next().await;
            match frame["type"].as_str().unwrap() {
                "TURN_FAILED" => failed.push(name(&frame)),
                "TURN_ACCEPTED" => taken.push(name(&frame)),
                _ => {}
            }
        }
        until_idle(&bench, &session).await;
        // The first of those held was on its way: then it is accepted, and cancelled.
        let first_failed = failed.contains(&"held0".to_owned());
        assert!(first_failed || taken.contains(&"held0".to_owned()), "{failed:?} {taken:?}");
        failed.retain(|name| name != "held0");
        assert_eq!(failed, ["held1", "held2"]);
        let asked = questions(&bench, &session).await;
        assert_eq!(asked, ["first", "theirs", "later"], "without the messages of the cancelled");
        let entries = bench.entries(&session).await;
        let cancelled: Vec<_> =
            entries.iter().filter(|entry| entry["status"] == "cancelled").collect();
        assert_eq!(cancelled.len(), 1 + 3 + usize::from(!first_failed), "{entries:?}");
        let texts: Vec<_> =
            cancelled.iter().filter_map(|e| e["message"]["content"].as_str()).collect();
        assert!(texts.contains(&"so far"), "what was said is kept: {texts:?}");
        assert_eq!(
            texts.iter().filter(|text| text.contains("before it began")).count(),
            texts.len() - 1
        );
        assert_eq!(upstream.calls().len(), 3, "the cancelled ones were never asked");
        drop(gate);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_18_waiting_turns_are_listed_and_cancelled_by_name() {
    let Busy { bench, upstream, session, mut phone, gate } = busy(json!({}), |_| {}).await;
    at_once(&mut phone, all("m", &numbered("n", 0..4))).await;
    accepted(&mut phone, 4).await;
    let listed = turns(&bench, &session).await;
    let asked: Vec<_> = listed.iter().map(|(_, question)| question.as_str()).collect();
    assert_eq!(asked, ["first", "n0", "n1", "n2", "n3"]);
    let cancel = format!("/v1/sessions/{}/cancel", session.id);
    let named = json!({ "turns": [listed[2].0, listed[4].0, Uuid::now_v7()] });
    let cancelled = bench.post(&cancel, named).await;
    assert_eq!(cancelled.body["turns"], json!([listed[2].0, listed[4].0]), "{}", cancelled.text);
    assert_eq!(cancelled.body["cancelled"], true);
    let left: Vec<_> = turns(&bench, &session).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(left, ["first", "n0", "n2"], "and the running one runs");
    let plain = bench.post(&cancel, json!({})).await;
    assert_eq!(plain.body["turns"], json!([listed[0].0]), "{}", plain.text);
    until_idle(&bench, &session).await;
    assert_eq!(upstream.calls().len(), 3);
    // The running one said nothing; its question stays.
    assert_eq!(questions(&bench, &session).await, ["first", "n0", "n2"]);
    drop(gate);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g17_resent_messages_keep_their_order_across_a_reconnect() {
    for _ in 0..ROUNDS {
        let four = |config: &mut Config| config.limits.waiting_turns = 4;
        let Busy { bench, upstream, session, mut phone, gate } = busy(json!({}), four).await;
        let sent = numbered("n", 0..12);
        at_once(&mut phone, all("m", &sent)).await;
        // Some were accepted; the others are lost with the socket.
        assert_eq!(accepted(&mut phone, 4).await, sent[..4]);
        drop(phone);
        let (mut phone, _) = bench.attach_as(&session, json!({})).await;
        let mut frames = vec![ask("gated", "first")];
        frames.extend(all("m", &sent));
        at_once(&mut phone, frames).await;
        let mut expected = vec!["first".to_owned()];
        expected.extend_from_slice(&sent);
        assert_eq!(accepted(&mut phone, 5).await, expected[..5], "known, though the lane is full");
        drop(gate);
        assert_eq!(accepted(&mut phone, 8).await, expected[5..]);
        until_idle(&bench, &session).await;
        assert_eq!(questions(&bench, &session).await, expected);
        assert_eq!(upstream.calls().len(), expected.len(), "each ran once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sbp_l2_18_recovery_runs_the_turns_that_were_left_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(folder.path()).unwrap());
    let id = SessionId(Uuid::now_v7());
    let new = NewSession {
        id,
        token_hash: TokenHash([1; 32]),
        listed: true,
        user: bowline_sbp::access::OWNER,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: Timestamp::now(),
    };
    // Neither the order of the ids nor the order of the rows is the order of the turns.
    let mut ids: Vec<_> = (0..6).map(|_| TurnId(Uuid::now_v7())).collect();
    ids.reverse();
    let turn = |place: u64| TurnRow {
        id: ids[place as usize - 1],
        place,
        request: json!({
            "model": "m", "params": [["model", "m"]], "checkpoint_every": 1, "tether": true,
            "origin": "surface",
            "messages": [{ "role": "user", "content": format!("echo {place}") }],
        })
        .to_string(),
        found: None,
        started: place == 1,
        attempt: 1,
        advanced: false,
        keyed: false,
        open_calls: None,
    };
    let rows = [4, 2, 6, 1, 3, 5].map(|place| Write::Accept {
        turn: turn(place),
        key: None,
        blobs: Vec::new(),
    });
    by_a_dead_process(&store, id, Some(new), |head| {
        head.turns_accepted = 6;
        rows.into()
    })
    .await;
    let session = Session { id: id.to_string(), token: String::new() };
    let bench = Bench::on(store, folder, |_| {}).await;
    bench.until_pending(&session, 6).await;
    let expected: Vec<_> = (1..=6).map(|place| format!("echo {place}")).collect();
    assert_eq!(questions(&bench, &session).await, expected);
    // What comes now comes behind them.
    assert_eq!(bench.say(&session, "echo 7").await.content(), "7");
    assert_eq!(questions(&bench, &session).await.last().unwrap(), "echo 7");
}
