//! SBP-L1-13 and G18: only answers that the model finished have the status `complete`.
//!
//! The upstream is a raw socket here, because the tests control the exact bytes at the end of a
//! stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_sbp::session::{TurnRow, Write};
use bowline_store::sqlite::Sqlite;
use bowline_store::{NewSession, TokenHash};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use crate::bench::{Bench, Session, eventually, hello, joined, turn};
use crate::upstream::{MockUpstream, Piece};
use crate::written::by_a_dead_process;
use bowline_gateway::config::Upstream;

/// A server that answers each model with fixed bytes, and closes.
pub(crate) struct RawUpstream {
    url: String,
    answers: Arc<Mutex<HashMap<String, String>>>,
}

impl RawUpstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let answers: Arc<Mutex<HashMap<String, String>>> = Arc::default();
        let shared = Arc::clone(&answers);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, Arc::clone(&shared)));
            }
        });
        Self { url, answers }
    }

    pub(crate) fn answer(&self, model: &str, bytes: String) {
        self.answers.lock().unwrap().insert(model.into(), bytes);
    }

    pub(crate) async fn bench(&self) -> Bench {
        Bench::with(|config| {
            let upstream = Upstream { url: self.url.clone(), retries: 0, ..Upstream::default() };
            config.upstream.insert("raw".into(), upstream);
        })
        .await
    }
}

async fn serve(mut socket: TcpStream, answers: Arc<Mutex<HashMap<String, String>>>) {
    let mut read = Vec::new();
    let body = loop {
        let mut piece = [0; 4096];
        let length = socket.read(&mut piece).await.unwrap_or_default();
        if length == 0 {
            return;
        }
        read.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&read);
        let Some((_, body)) = text.split_once("\r\n\r\n") else { continue };
        if let Ok(body) = serde_json::from_str::<Value>(body) {
            break body;
        }
    };
    let model = body["model"].as_str().unwrap();
    let bytes = answers.lock().unwrap()[model].clone();
    socket.write_all(bytes.as_bytes()).await.unwrap();
    let _ = socket.shutdown().await;
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n";
const ROLE: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"half an answer"}}]}"#;
const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const ERROR: &str = r#"{"error":{"message":"overloaded in the middle","type":"server_error"}}"#;
const DONE: &str = "[DONE]";

fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// The body ends with the connection.
pub(crate) fn closed(said: &[&str]) -> String {
    format!("{HEAD}\r\n{}", events(said))
}

/// Chunked, without the last chunk.
fn chunked_cut(said: &[&str]) -> String {
    let body = events(said);
    format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n", body.len())
}

/// Shorter than its `Content-Length`.
fn too_short(said: &[&str]) -> String {
    let body = events(said);
    format!("{HEAD}Content-Length: {}\r\n\r\n{body}", body.len() + 1000)
}

/// Every kind of incomplete stream that begins with this text.
fn bad_endings<'a>(said: &[&'a str]) -> Vec<(&'static str, String)> {
    let and = |more: &[&'a str]| [said, more].concat();
    vec![
        ("error-event", closed(&and(&[ERROR]))),
        ("error-event-and-done", closed(&and(&[ERROR, DONE]))),
        ("no-finish", closed(said)),
        ("half-an-event", closed(said) + "data: {\"choices\":[{\"index\":0,\"del"),
        ("chunked-cut", chunked_cut(said)),
        ("too-short", too_short(said)),
    ]
}

fn keyed() -> [(&'static str, &'static str); 1] {
    [("Idempotency-Key", "the-same")]
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

#[tokio::test]
async fn sbp_l1_13_a_bad_end_before_the_first_text_is_502_and_nothing_is_stored() {
    let upstream = RawUpstream::start().await;
    let bench = upstream.bench().await;
    for said in [&[][..], &[ROLE][..]] {
        for (ending, bytes) in bad_endings(said) {
            for stream in [false, true] {
                // A reader of a stream may have had its first bytes: then it is told there.
                if stream && !said.is_empty() {
                    continue;
                }
                let session = bench.session().await;
                upstream.answer("x", bytes.clone());
                let (phone, _) = bench.attach_as(&session, json!({})).await;
                let body = match stream {
                    true => streamed(turn(&session, "x", "go")),
                    false => turn(&session, "x", "go"),
                };
                let failed = bench.chat_as(&keyed(), body.clone()).await;
                assert_eq!(failed.refusal(), (502, "SBP_UPSTREAM"), "{ending}: {}", failed.text);
                assert!(bench.entries(&session).await.is_empty(), "{ending}");
                upstream.answer("x", closed(&[TEXT, FINISH, DONE]));
                let again = bench.chat_as(&keyed(), body).await;
                assert_eq!(again.status, 200, "the key is free, {ending}: {}", again.text);
                assert_eq!(bench.entries(&session).await.len(), 2, "{ending}");
                drop(phone);
            }
        }
    }
}

#[tokio::test]
async fn sbp_l1_13_a_bad_end_after_some_text_is_kept_as_interrupted_and_told_to_all() {
    let upstream = RawUpstream::start().await;
    let bench = upstream.bench().await;
    for (ending, bytes) in bad_endings(&[ROLE, TEXT]) {
        let session = bench.session().await;
        let (mut phone, _) = bench.attach_as(&session, json!({})).await;
        upstream.answer("x", bytes);
        let body = turn(&session, "x", "go");
        let failed = bench.chat_as(&keyed(), body.clone()).await;
        assert_eq!(failed.refusal(), (502, "SBP_UPSTREAM"), "{ending}: {}", failed.text);
        let frames = phone.until("TURN_COMPLETE").await;
        assert_eq!(frames.last().unwrap()["status"], "interrupted", "{ending}");
        assert_eq!(joined(&frames), "half an answer", "{ending}");
        let entries = bench.entries(&session).await;
        assert_eq!(entries.len(), 2, "{ending}");
        assert_eq!(entries[1]["status"], "interrupted", "{ending}");
        assert_eq!(entries[1]["message"]["content"], "half an answer", "{ending}");
        // The same request is run anew, and is not given the half answer as its result.
        upstream.answer("x", closed(&[TEXT, FINISH, DONE]));
        let again = bench.chat_as(&keyed(), body).await;
        assert_eq!((again.status, again.content()), (200, "half an answer"), "{ending}");
        let frames = phone.until("TURN_COMPLETE").await;
        assert_eq!(frames.last().unwrap()["status"], "complete", "{ending}");
    }
}

#[tokio::test]
async fn g4_a_refusal_after_some_text_is_502_with_the_upstreams_code() {
    let upstream = RawUpstream::start().await;
    let bench = upstream.bench().await;
    let session = bench.session().await;
    let error = r#"{"error":{"message":"m","code":"context_length_exceeded"}}"#;
    upstream.answer("x", closed(&[TEXT, error]));
    // Watched, so that the answer is streamed to the gateway.
    let (_phone, _) = bench.attach_as(&session, json!({})).await;
    let failed = bench.chat(turn(&session, "x", "go")).await;
    assert_eq!(failed.refusal(), (502, "context_length_exceeded"), "{}", failed.text);
    assert_eq!(failed.header("x-should-retry"), "false", "it would fail again");
    assert_eq!(bench.entries(&session).await.len(), 2, "what came is stored");
}

#[tokio::test]
async fn sbp_l1_13_a_reader_of_a_stream_gets_an_error_event_and_no_done() {
    let upstream = RawUpstream::start().await;
    let bench = upstream.bench().await;
    for (ending, bytes) in bad_endings(&[TEXT]) {
        let session = bench.session().await;
        upstream.answer("x", bytes);
        let body = streamed(turn(&session, "x", "go"));
        let cut = bench.chat_as(&keyed(), body.clone()).await;
        assert_eq!(cut.status, 200, "{ending}: {}", cut.text);
        let events = cut.events();
        assert!(cut.text.contains("half an answer"), "{ending}: {}", cut.text);
        assert!(!events.contains(&"[DONE]"), "{ending}: {}", cut.text);
        let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
        assert_eq!(last["error"]["code"], "SBP_UPSTREAM", "{ending}: {}", cut.text);
        assert_eq!(bench.entries(&session).await[1]["status"], "interrupted", "{ending}");
        upstream.answer("x", closed(&[TEXT, FINISH, DONE]));
        let again = bench.chat_as(&keyed(), body).await;
        assert_eq!(again.events().last(), Some(&"[DONE]"), "{ending}: {}", again.text);
    }
}

#[tokio::test]
async fn sbp_l1_13_a_message_of_a_surface_that_ends_badly_is_interrupted_or_noted() {
    let upstream = RawUpstream::start().await;
    let bench = upstream.bench().await;
    for (said, status) in [(&[][..], "failed"), (&[TEXT][..], "interrupted")] {
        for (ending, bytes) in bad_endings(said) {
            let session = bench.session().await;
            let (mut phone, _) = bench.attach_as(&session, json!({})).await;
            upstream.answer("x", bytes);
            let ask = json!({ "type": "USER_MESSAGE", "content": "go", "client_turn_id": "one",
                              "model": "x" });
            phone.send(ask).await;
            let complete = phone.until("TURN_COMPLETE").await.pop().unwrap();
            assert_eq!(complete["status"], status, "{ending}");
            let entries = bench.entries(&session).await;
            assert_eq!(entries[0]["message"]["content"], "go", "what was asked is kept");
            assert_eq!(entries[1]["status"], status, "{ending}");
        }
    }
}

#[tokio::test]
async fn sbp_l1_13_a_finish_reason_or_done_is_an_end() {
    let upstream = RawUpstream::start().await;
    let bench = upstream.bench().await;
    for (ending, bytes) in [
        ("finish, no done", closed(&[TEXT, FINISH])),
        ("finish, no done, cut", chunked_cut(&[TEXT, FINISH])),
        ("done, no finish", closed(&[TEXT, DONE])),
        ("done without its last newline", closed(&[TEXT, FINISH]) + "data: [DONE]"),
        ("both", closed(&[TEXT, FINISH, DONE])),
    ] {
        let session = bench.session().await;
        upstream.answer("x", bytes);
        let (mut phone, _) = bench.attach_as(&session, json!({})).await;
        let said = bench.say_to(&session, "x", "go").await;
        assert_eq!((said.status, said.content()), (200, "half an answer"), "{ending}");
        assert_eq!(said.body["sbp"]["turn_status"], "complete", "{ending}");
        assert_eq!(phone.until("TURN_COMPLETE").await.pop().unwrap()["status"], "complete");
        assert_eq!(bench.entries(&session).await[1]["status"], "complete", "{ending}");
        let streamed = bench.chat(streamed(turn(&session, "x", "go"))).await;
        assert_eq!(streamed.events().last(), Some(&"[DONE]"), "{ending}: {}", streamed.text);
    }
}

/// The store of a killed gateway with these turns, in order: the origin (`http` or `surface`), the
/// model, and whether the turn had begun.
async fn left(
    turns: &[(&str, &str, bool)],
    token_hash: TokenHash,
) -> (Arc<Sqlite>, tempfile::TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(folder.path()).unwrap());
    let id = SessionId(Uuid::now_v7());
    let new = NewSession {
        id,
        token_hash,
        listed: true,
        user: bowline_sbp::access::OWNER,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: Timestamp::now(),
    };
    let rows = turns.iter().zip(1..).map(|((origin, model, started), place)| {
        let request = json!({
            "model": model, "params": [["model", model]], "checkpoint_every": 1, "tether": true,
            "origin": origin,
            "messages": [{ "role": "user", "content": format!("question {place}") }],
        });
        let turn = TurnRow {
            id: TurnId(Uuid::now_v7()),
            place,
            request: request.to_string(),
            found: None,
            started: *started,
            attempt: 1,
            advanced: false,
            keyed: false,
            open_calls: None,
        };
        Write::Accept { turn, key: None, blobs: Vec::new() }
    });
    let rows: Vec<_> = rows.collect();
    by_a_dead_process(&store, id, Some(new), |head| {
        head.turns_accepted = rows.len() as u64;
        rows
    })
    .await;
    (store, folder, Session { id: id.to_string(), token: crate::bench::LOCAL_KEY.into() })
}

#[tokio::test]
async fn sbp_l1_13_a_surface_is_told_that_an_answer_was_begun_anew() {
    let upstream = MockUpstream::start().await;
    let gate = upstream.gate();
    let (store, folder, session) = left(&[("surface", "gated", true)], TokenHash([1; 32])).await;
    let bench = Bench::on(store, folder, |config| upstream.configure(config)).await;
    upstream.until_calls(1).await;
    gate.send(Piece::Text("from the ".into())).unwrap();
    let mut phone = bench.socket(&session.id).await;
    phone.send(hello(&session, json!({}))).await;
    let mut frames = phone.until("TURN_CHUNK").await;
    gate.send(Piece::Text("beginning".into())).unwrap();
    drop(gate);
    frames.extend(phone.until("TURN_COMPLETE").await);
    let kinds: Vec<_> = frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["SESSION_ATTACHED", "TURN_RESTARTED", "TURN_CHUNK"]);
    assert_eq!(kinds.iter().filter(|kind| **kind == "TURN_RESTARTED").count(), 1);
    assert_eq!(frames[2]["offset"], 0);
    let complete = frames.last().unwrap();
    assert_eq!(frames[1]["turn_id"], complete["turn_id"]);
    assert_eq!(frames[1]["chunk_id"], complete["chunk_id"]);
    assert_eq!(joined(&frames), "from the beginning");
    assert_eq!(bench.log(&session).await.len(), 2);
}

#[tokio::test]
async fn sbp_l1_13_a_first_run_is_not_called_a_second_one() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, json!({})).await;
    bench.say(&session, "echo once").await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert!(frames.iter().all(|frame| frame["type"] != "TURN_RESTARTED"), "{frames:?}");
}

#[tokio::test]
async fn sbp_l1_13_a_recovered_turn_that_fails_leaves_a_note_never_nothing() {
    let upstream = MockUpstream::start().await;
    // One that ran, and two that only waited; one of each kind of asker.
    let turns = [
        ("http", "status-500", true),
        ("http", "status-500", false),
        ("surface", "status-500", false),
    ];
    let (store, folder, session) = left(&turns, TokenHash([1; 32])).await;
    let bench = Bench::on(store, folder, |config| {
        upstream.configure(config);
        config.upstream.get_mut("mock").unwrap().retries = 0;
    })
    .await;
    bench.until_pending(&session, 3).await;
    let entries = bench.entries(&session).await;
    assert_eq!(entries.len(), 6, "{entries:?}");
    for (n, pair) in entries.chunks(2).enumerate() {
        assert_eq!(pair[0]["message"]["content"], format!("question {}", n + 1));
        assert_eq!(pair[1]["status"], "failed", "{pair:?}");
        let note = pair[1]["message"]["content"].as_str().unwrap();
        assert!(note.contains("The model did not answer"), "{note}");
    }
    eventually("nothing left", async || bench.store.unfinished_turns().await.unwrap() == 0).await;
    let mut phone = bench.socket(&session.id).await;
    phone.send(hello(&session, json!({}))).await;
    assert_eq!(phone.next().await["queued_turns"], 3);
    for _ in 0..3 {
        assert_eq!(phone.next().await["status"], "failed");
    }
}
