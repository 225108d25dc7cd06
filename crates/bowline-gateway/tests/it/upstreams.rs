//! Model servers that refuse, disconnect, hang or report costs: what the caller gets, and what is
//! stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_gateway::config::{Config, Price};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::{Bench, DEADLINE, Session, asked, plain, some_of, turn};
use crate::upstream::{MockUpstream, ODD, Piece};

/// A timeout that is expected to fire.
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn an_upstream_that_is_not_there_is_503() {
    // A port that is taken, so that nobody else comes, and on which nobody listens.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = taken.local_addr().unwrap().port();
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.upstream.get_mut("mock").unwrap().url = format!("http://127.0.0.1:{port}/v1");
    })
    .await;
    for ask in [asked("m", "x", json!({})), plain("m", "x")] {
        let failed = bench.chat(ask).await;
        assert_eq!(failed.refusal(), (503, "SBP_UPSTREAM"));
        let message = failed.body["error"]["message"].as_str().unwrap();
        assert!(message.contains("cannot be reached") && !message.contains("http"), "{message}");
    }
    assert_eq!((bench.sessions().await.len(), upstream.calls().len()), (0, 0));
}

#[tokio::test]
async fn an_upstream_that_says_nothing_is_504_and_not_asked_twice() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.upstream.get_mut("mock").unwrap().first_byte_timeout = SHORT;
    })
    .await;
    for (calls, ask) in [(1, asked("hang", "x", json!({}))), (2, plain("hang", "x"))] {
        let failed = bench.chat(ask).await;
        assert_eq!(failed.refusal(), (504, "SBP_UPSTREAM"), "{}", failed.text);
        assert!(upstream.calls().len() <= calls, "it is not asked twice");
    }
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

#[tokio::test]
async fn an_upstream_that_hangs_up_without_a_word_is_502_and_not_asked_twice() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked_times = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked_times);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            // It has the request, and may have begun to work on it.
            some_of(&mut socket).await;
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.upstream.get_mut("mock").unwrap().url = format!("http://{address}/v1");
    })
    .await;
    let failed = bench.chat(asked("m", "x", json!({}))).await;
    assert_eq!(failed.refusal(), (502, "SBP_UPSTREAM"), "{}", failed.text);
    assert_eq!(asked_times.load(Ordering::SeqCst), 1);
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

/// A server that answers each request with the same bytes, on a connection of its own.
struct RawServer {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl RawServer {
    /// `after` gets each connection once the answer is sent.
    async fn start<F>(answer: String, after: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://someone:secret@{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                // All of it: a socket that closes with something unread resets the connection.
                let mut request = String::new();
                while !request.ends_with('}') {
                    request += &some_of(&mut socket).await;
                }
                count.fetch_add(1, Ordering::SeqCst);
                socket.write_all(answer.as_bytes()).await.unwrap();
                tokio::spawn(after(socket));
            }
        });
        Self { url, requests }
    }

    async fn bench(&self, patience: Duration) -> Bench {
        self.bench_with(patience, |_| {}).await
    }

    async fn bench_with(&self, patience: Duration, change: impl FnOnce(&mut Config)) -> Bench {
        let upstream = MockUpstream::start().await;
        Bench::before_with(&upstream, |config| {
            let upstream = config.upstream.get_mut("mock").unwrap();
            upstream.url = self.url.clone();
            (upstream.first_byte_timeout, upstream.idle_timeout) = (patience, patience);
            change(config);
        })
        .await
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn hang_up(socket: TcpStream) {
    drop(socket);
}

async fn stay_silent(socket: TcpStream) {
    let _socket = socket;
    std::future::pending().await
}

/// A response with only that much of its body.
fn answer_with(body: &str, length: usize) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{}", body.len(), &body[..length])
}

/// What a caller reads of the response in pass-through.
async fn passed_through(bench: &Bench) -> reqwest::Result<String> {
    let request = bench.http.post(bench.url("/v1/chat/completions")).json(&plain("odd", "x"));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    tokio::time::timeout(DEADLINE, response.text()).await.unwrap()
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_502_and_not_asked_for_again() {
    let server = RawServer::start(answer_with(ODD, 9), hang_up).await;
    let bench = server.bench(DEADLINE).await;
    let failed = bench.chat(asked("odd", "x", json!({}))).await;
    assert_eq!(failed.refusal(), (502, "SBP_UPSTREAM"), "{}", failed.text);
    assert!(failed.text.contains("broke off") && !failed.text.contains("secret"), "{failed:?}");
    assert_eq!((bench.sessions().await.len(), server.requests()), (0, 1));
    assert!(passed_through(&bench).await.is_err(), "half an answer looks like a whole one");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn g11_an_answer_that_stops_is_given_up() {
    let server = RawServer::start(answer_with(ODD, 9), stay_silent).await;
    let bench = server.bench(Duration::from_secs(1)).await;
    let failed = bench.chat(asked("odd", "x", json!({}))).await;
    assert_eq!(failed.refusal(), (504, "SBP_UPSTREAM"), "{}", failed.text);
    assert!(!failed.text.contains("secret"), "{}", failed.text);
    assert_eq!((bench.sessions().await.len(), server.requests()), (0, 1));
    assert!(passed_through(&bench).await.is_err());
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_meanwhile_is_not_used() {
    let (tell, mut noticed) = tokio::sync::mpsc::unbounded_channel();
    let server = RawServer::start(answer_with(ODD, ODD.len()), move |mut socket| {
        let tell = tell.clone();
        async move {
            socket.shutdown().await.unwrap();
            // The gateway closes its own side once it knows.
            let _ = socket.read(&mut [0; 9]).await;
            tell.send(()).unwrap();
        }
    })
    .await;
    let bench = server.bench(DEADLINE).await;
    for calls in 1..=3 {
        assert_eq!(passed_through(&bench).await.unwrap(), ODD);
        assert_eq!(server.requests(), calls);
        let closed = tokio::time::timeout(DEADLINE, noticed.recv()).await;
        assert!(closed.is_ok(), "the gateway keeps a connection that is closed");
    }
}

#[tokio::test]
async fn a_call_ends_with_the_caller_whom_it_passes_through() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let server = RawServer::start(answer_with(ODD, 9), move |mut socket| {
        let tell = tell.clone();
        async move {
            let _ = socket.read(&mut [0; 9]).await;
            tell.send(()).unwrap();
        }
    })
    .await;
    let bench = server
        .bench_with(DEADLINE, |config| {
            config.limits.half_closed = Duration::from_millis(100);
        })
        .await;
    let request = bench.http.post(bench.url("/v1/chat/completions")).json(&plain("odd", "x"));
    drop(request.send().await.unwrap());
    let ended = tokio::time::timeout(DEADLINE, told.recv()).await;
    assert!(ended.is_ok(), "nobody reads it, and the model goes on");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /v1/elsewhere\r\n";
    let server = RawServer::start(format!("{elsewhere}content-length: 0\r\n\r\n"), hang_up).await;
    let bench = server.bench(DEADLINE).await;
    let failed = bench.chat(asked("m", "x", json!({}))).await;
    assert_eq!(failed.refusal(), (502, "SBP_UPSTREAM"), "{}", failed.text);
    assert!(failed.text.contains("307"), "{}", failed.text);
    assert_eq!(server.requests(), 1, "the conversation is for one server");
}

#[tokio::test]
async fn a_call_is_tried_again_only_before_the_first_byte() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let said = bench.say_to(&session, "flaky", "x").await;
    assert_eq!((said.status, said.content(), upstream.calls().len()), (200, "answer 2", 2));
    assert_eq!(upstream.calls()[0].text, upstream.calls()[1].text);

    let gate = upstream.gate();
    gate.send(Piece::Text("a".into())).unwrap();
    gate.send(Piece::Cut).unwrap();
    assert_eq!(bench.say_to(&session, "gated", "x").await.refusal(), (502, "SBP_UPSTREAM"));
    assert_eq!(upstream.calls().len(), 3, "what has begun is not repeated");
    assert_eq!(bench.log(&session).await.last().unwrap().1, "a", "it had begun");
}

/// Streams a turn that disconnects or stops sending after its first words; returns what the caller
/// read.
async fn cut_short(bench: &Bench, upstream: &MockUpstream, session: &Session, cut: bool) -> String {
    let gate = upstream.gate();
    gate.send(Piece::Text("half an ".into())).unwrap();
    let mut ask = turn(session, "gated", "go");
    ask["stream"] = json!(true);
    let request = bench.http.post(bench.url("/v1/chat/completions")).json(&ask);
    let mut body = request.send().await.unwrap().bytes_stream();
    let mut read = String::new();
    while let Some(piece) = tokio::time::timeout(DEADLINE, body.next()).await.unwrap() {
        read += std::str::from_utf8(&piece.unwrap()).unwrap();
        if cut && read.contains("half an ") {
            let _ = gate.send(Piece::Cut);
        }
    }
    read
}

#[tokio::test]
async fn sbp_l1_10_a_stream_that_breaks_ends_with_an_error_and_keeps_what_came() {
    let upstream = MockUpstream::start().await;
    for (cut, says, patience) in [(true, "broke off", DEADLINE), (false, "stopped sending", SHORT)]
    {
        let bench = Bench::before_with(&upstream, |config| {
            config.upstream.get_mut("mock").unwrap().idle_timeout = patience;
        })
        .await;
        let session = bench.session().await;
        let read = cut_short(&bench, &upstream, &session, cut).await;
        assert!(!read.contains("[DONE]"), "{read}");
        let last = read.trim_end().rsplit("data: ").next().unwrap();
        let error: Value = serde_json::from_str(last).unwrap();
        assert_eq!(error["error"]["code"], "SBP_UPSTREAM");
        assert!(error["error"]["message"].as_str().unwrap().contains(says), "{error}");

        let entries = bench.entries(&session).await;
        let kept = &entries[1];
        assert_eq!((&kept["status"], &kept["kind"]), (&json!("interrupted"), &json!("turn")));
        assert_eq!(kept["message"]["content"], "half an ");
        assert_eq!((entries.len(), &entries[0]["message"]["content"]), (2, &json!("go")));
    }
}

#[tokio::test]
async fn a_caller_that_does_not_stream_gets_the_error_its_surface_watched() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let gate = upstream.gate();
    gate.send(Piece::Text("half an ".into())).unwrap();
    let cut = async {
        assert_eq!(phone.next().await["delta"], "half an ");
        gate.send(Piece::Cut).unwrap();
        phone.until("TURN_COMPLETE").await
    };
    let (failed, frames) = tokio::join!(bench.say_to(&session, "gated", "go"), cut);
    assert_eq!(failed.refusal(), (502, "SBP_UPSTREAM"));
    assert_eq!(frames.last().unwrap()["status"], "interrupted");
    assert_eq!(bench.entries(&session).await[1]["status"], "interrupted");
}

#[tokio::test]
async fn the_upstream_gets_its_own_key_and_never_the_callers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "sk-of-the-upstream\n").unwrap();
    for (key_file, sent) in [(Some(file), Some("Bearer sk-of-the-upstream")), (None, None)] {
        let upstream = MockUpstream::start().await;
        let bench = Bench::before_with(&upstream, |config| {
            config.upstream.get_mut("mock").unwrap().key_file = key_file;
        })
        .await;
        let caller = [("Authorization", "Bearer sk-of-the-caller")];
        for ask in [asked("m", "x", json!({})), plain("m", "x")] {
            assert_eq!(bench.chat_as(&caller, ask).await.status, 200);
            let call = upstream.calls().pop().unwrap();
            let key = call.headers.get("authorization").map(|value| value.to_str().unwrap());
            assert_eq!(key, sent);
            assert!(!format!("{:?} {}", call.headers, call.text).contains("sk-of-the-caller"));
        }
    }
}

#[tokio::test]
async fn sbp_l1_07_cost_comes_from_the_price_list_per_turn_and_adds_up() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.prices.insert("gpt-*".into(), Price { input: 2.0, output: 10.0 });
    })
    .await;
    let session = bench.session().await;
    let whole = bench.say_to(&session, "gpt-4o", "x").await.body["sbp"]["cost_usd"].clone();
    let mut ask = turn(&session, "gpt-4o", "x");
    ask["stream"] = json!(true);
    let streamed = bench.chat(ask).await.chunks().pop().unwrap()["sbp"]["cost_usd"].clone();
    assert_eq!((whole, streamed), (json!(0.003), json!(0.003)), "1000 in, 100 out");
    let free = bench.say_to(&session, "unpriced", "x").await.body["sbp"]["cost_usd"].clone();
    assert_eq!(free, 0.0);
    assert_eq!(bench.show(&session).await["cost_usd"], 0.006);
    let costs: Vec<_> =
        bench.entries(&session).await.iter().map(|e| e["cost_usd"].clone()).collect();
    assert_eq!(costs, [0.0, 0.003, 0.0, 0.003, 0.0, 0.0]);
}
