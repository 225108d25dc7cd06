//! HTTP as its clients expect it: early refusals, half-closed connections, `Host`, keep-alive.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::bench::{Bench, answer, some_of, turn, until_closed};
use crate::upstream::{MockUpstream, Piece};

/// Reads until that text has come.
async fn until_read(socket: &mut TcpStream, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let piece = some_of(socket).await;
        assert!(!piece.is_empty(), "it ended without {text:?}: {read}");
        read += &piece;
    }
    read
}

fn chat(body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n\
         {body}"
    )
}

#[tokio::test]
async fn g11_a_body_announced_over_the_limit_is_413_before_any_of_it_comes() {
    let bench = Bench::with(|config| {
        config.limits.request_body = 4096;
        config.limits.request_images = 1000;
        config.limits.import_body = 8192;
        config.limits.body_timeout = Duration::from_secs(3600);
    })
    .await;
    for (path, length) in [
        ("/v1/chat/completions", 5097),
        ("/v1/sessions", 4097),
        ("/v1/sessions/import", 8193),
        ("/mcp", 4097),
        ("/v1/completions", u64::MAX - 2),
    ] {
        for expect in ["", "Expect: 100-continue\r\n"] {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\n{expect}Content-Length: {length}\r\n\
                 \r\n"
            );
            let mut socket = bench.raw(&head).await;
            let said = until_read(&mut socket, "limits.").await;
            assert!(said.starts_with("HTTP/1.1 413 "), "{path} {expect}: {said}");
            assert!(said.contains("connection: close"), "{said}");
            assert!(said.contains("SBP_INVALID_REQUEST"), "{said}");
        }
    }
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_client_that_sends_a_large_body_can_read_why_it_is_refused() {
    let bench = Bench::start().await;
    let body = "x".repeat(16 << 20);
    let refused = answer(bench.http.post(bench.url("/v1/chat/completions")).body(body)).await;
    assert_eq!(refused.refusal(), (413, "SBP_INVALID_REQUEST"));
    assert!(refused.text.contains("limits.request_body"), "{}", refused.text);
}

#[tokio::test]
async fn a_body_within_the_limit_is_asked_for_with_100() {
    let bench = Bench::start().await;
    let head = "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Expect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let mut socket = bench.raw(head).await;
    let said = until_read(&mut socket, "\r\n\r\n").await;
    assert_eq!(said, "HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(b"{}").await.unwrap();
    assert!(until_closed(&mut socket).await.starts_with("HTTP/1.1 201 "));
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_gets_its_answer() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let mut body = turn(&session, "gated", "go");
    for stream in [false, true] {
        body["stream"] = json!(stream);
        let gate = upstream.gate();
        let calls = upstream.calls().len();
        let mut socket = bench.raw(&chat(&body)).await;
        upstream.until_calls(calls + 1).await;
        socket.shutdown().await.unwrap();
        // By the time that another one is answered, the gateway could have noticed.
        assert_eq!(bench.get("/healthz").await.status, 200);
        gate.send(Piece::Text("the whole answer".into())).unwrap();
        drop(gate);
        let said = until_closed(&mut socket).await;
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        assert!(said.contains("the whole answer") && said.contains("step_count"), "{said}");
    }
}

#[tokio::test]
async fn a_request_has_exactly_one_host() {
    let bench = Bench::start().await;
    for (hosts, status) in [
        ("Host: localhost\r\n", 200),
        ("", 400),
        ("Host: localhost\r\nHost: localhost\r\n", 400),
        ("Host: localhost\r\nHost: evil.example\r\n", 400),
    ] {
        for path in ["/healthz", "/v1/sessions"] {
            let get = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{hosts}\r\n");
            let said = until_closed(&mut bench.raw(&get).await).await;
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{hosts:?}: {said}");
            if status == 400 {
                let (_, body) = said.split_once("\r\n\r\n").unwrap();
                let body: Value = serde_json::from_str(body).unwrap();
                assert_eq!(body["error"]["code"], "SBP_INVALID_REQUEST", "{body}");
                assert!(body["error"]["detail"].as_str().unwrap().contains("Host"), "{body}");
            }
        }
    }
}

#[tokio::test]
async fn g11_an_idle_connection_ends_and_streams_and_sockets_go_on() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.limits.keep_alive = Duration::from_millis(100);
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let gate = upstream.gate();
    gate.send(Piece::Text("before".into())).unwrap();
    let mut body = turn(&session, "gated", "go");
    body["stream"] = json!(true);
    let mut stream = bench.raw(&chat(&body)).await;
    until_read(&mut stream, "before").await;
    // It begins to be idle after them: when it is closed, they have been silent for longer.
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let said = until_closed(&mut bench.raw(get).await).await;
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    gate.send(Piece::Text(" and after".into())).unwrap();
    drop(gate);
    until_read(&mut stream, "[DONE]").await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(crate::phone::joined(&frames), "before and after");
}
