//! G11, G12: requests that are too large, too deep, too slow or to unknown paths are refused, and
//! other clients are not affected.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::bench::{Answer, Bench, DEADLINE, Session, answer, hello, some_of, until_closed, user};
use crate::locked::{bearer, by_key, lock};
use crate::phone::Phone;
use crate::upstream::MockUpstream;

#[tokio::test]
async fn g11_a_body_over_the_limit_is_413_however_it_comes() {
    let bench = Bench::with(|config| config.limits.request_body = 4096).await;
    let session = bench.session().await;
    let status = format!("/v1/sessions/{}/status", session.id);
    let sized = |size: usize| {
        let mut body = json!({ "model": "m", "messages": [user("")], "sbp": {}, "pad": "" });
        let pad = size - body.to_string().len();
        body["pad"] = json!("x".repeat(pad));
        body.to_string()
    };
    assert_eq!(bench.chat_text(&sized(4096)).await.status, 200, "the limit itself fits");
    for (method, path) in [
        (Method::POST, "/v1/chat/completions"),
        (Method::POST, "/v1/completions"),
        (Method::POST, "/v1/sessions"),
        (Method::PATCH, status.as_str()),
    ] {
        // Once with its length said, once in pieces of which nobody knows how many come.
        let text = sized(4097);
        let pieces =
            text.as_bytes().chunks(1000).map(|piece| Ok::<_, std::io::Error>(piece.to_vec()));
        let pieces = futures_util::stream::iter(pieces.collect::<Vec<_>>());
        for body in [reqwest::Body::from(text), reqwest::Body::wrap_stream(pieces)] {
            let request = bench.http.request(method.clone(), bench.url(path)).body(body);
            let refused = answer(request).await;
            assert_eq!(refused.refusal(), (413, "SBP_INVALID_REQUEST"), "{path}");
        }
    }
    assert_eq!(bench.sessions().await.len(), 2, "nothing of them was stored");
}

#[tokio::test]
async fn g11_json_may_nest_64_deep_and_no_deeper() {
    let bench = Bench::start().await;
    let nested = |depth: usize| {
        // The body, `messages` and the message are three.
        let (open, close) = ("[".repeat(depth - 3), "]".repeat(depth - 3));
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"echo x","n":{open}{close}}}]"#
        )
    };
    for tail in [r#","sbp":{}}"#, "}"] {
        assert_eq!(bench.chat_text(&(nested(64) + tail)).await.status, 200);
        let refused = bench.chat_text(&(nested(65) + tail)).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{}", refused.text);
    }
    let bomb = "[".repeat(1 << 20);
    assert_eq!(bench.chat_text(&bomb).await.refusal(), (422, "SBP_INVALID_REQUEST"));
}

#[tokio::test]
async fn what_is_not_json_is_400_and_what_is_not_a_request_422() {
    let bench = Bench::with(|config| config.limits.messages = 3).await;
    let many = |count: usize| {
        let messages = vec![user("echo x"); count];
        json!({ "model": "m", "messages": messages, "sbp": {} }).to_string().into_bytes()
    };
    for (body, status) in [
        (b"{".to_vec(), 400),
        (b"hello".to_vec(), 400),
        (br#"{"model":"m"} trailing"#.to_vec(), 400),
        (b"{\"model\":\"\xff\"}".to_vec(), 400),
        (br#"{"model":"m","messages":[{"role":"user","content":"\x"}]}"#.to_vec(), 400),
        (b"[]".to_vec(), 422),
        (b"\"text\"".to_vec(), 422),
        (b"".to_vec(), 422),
        (many(4), 422),
        (many(3), 200),
    ] {
        let shown = String::from_utf8_lossy(&body).into_owned();
        let request = bench.http.post(bench.url("/v1/chat/completions")).body(body);
        let said = answer(request).await;
        let code = if status == 200 { "" } else { "SBP_INVALID_REQUEST" };
        assert_eq!(said.refusal(), (status, code), "{shown}: {}", said.text);
    }
    assert_eq!(bench.sessions().await.len(), 1);
}

#[tokio::test]
async fn g11_a_request_head_that_never_ends_is_cut_off() {
    let bench = Bench::with(|config| {
        config.limits.header_timeout = Duration::from_millis(100);
    })
    .await;
    for begun in ["", "GET", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut silent = bench.raw(begun).await;
        assert_eq!(until_closed(&mut silent).await, "", "after {begun:?}");
    }
    // A byte now and then buys no time. (Each pause is far below the limit, their sum is not.)
    let slow = bench.raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await;
    let (mut read, mut write) = slow.into_split();
    let drip = async {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let closed = async {
        let mut sink = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut sink).await;
    };
    let ended = async {
        tokio::select! { () = drip => {}, () = closed => {} }
    };
    tokio::time::timeout(DEADLINE, ended).await.expect("a dripping head is cut off");
}

#[tokio::test]
async fn g11_a_huge_request_head_is_refused() {
    let bench = Bench::start().await;
    let fits = format!("X-Large: {}\r\n", "x".repeat(8 << 10));
    let large = format!("X-Large: {}\r\n", "x".repeat(64 << 10));
    let many: String = (0..2000).map(|n| format!("X-{n}: x\r\n")).collect();
    let get = |headers: &str| {
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
    };
    let mut socket = bench.raw(&get(&fits)).await;
    assert!(until_closed(&mut socket).await.starts_with("HTTP/1.1 200 "));
    for head in [get(&large), get(&many), format!("GET /{} HTTP/1.1\r\n", "x".repeat(64 << 10))] {
        let mut socket = TcpStream::connect(bench.gateway.address()).await.unwrap();
        // It may hang up while we still talk.
        let _ = socket.write_all(head.as_bytes()).await;
        let said = until_closed(&mut socket).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
}

#[tokio::test]
async fn g11_a_body_that_never_comes_is_given_up() {
    let bench = Bench::with(|config| {
        config.limits.body_timeout = Duration::from_millis(50);
    })
    .await;
    for path in ["/v1/chat/completions", "/v1/sessions"] {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{{");
        let mut socket = bench.raw(&head).await;
        let said = some_of(&mut socket).await;
        assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
        assert!(said.contains("SBP_INVALID_REQUEST") && said.contains("too long"), "{said}");
    }
    let broken =
        bench.raw("POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{");
    drop(broken.await);
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

#[tokio::test]
async fn errors_have_one_shape_wherever_they_happen() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let unknown = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
    let compact = session.id.replace('-', "");
    for (method, path, status, code) in [
        (Method::GET, "/v1/sessions/five", 422, "SBP_INVALID_UUID"),
        (Method::GET, "/v1/sessions/%FF", 422, "SBP_INVALID_UUID"),
        (Method::GET, &format!("/v1/sessions/{compact}"), 422, "SBP_INVALID_UUID"),
        (Method::DELETE, "/v1/sessions/five", 422, "SBP_INVALID_UUID"),
        (Method::GET, "/v1/sessions/five/messages", 422, "SBP_INVALID_UUID"),
        (Method::POST, "/v1/sessions/five/cancel", 422, "SBP_INVALID_UUID"),
        (Method::PATCH, "/v1/sessions/five/status", 422, "SBP_INVALID_UUID"),
        (Method::GET, &format!("/v1/sessions/{unknown}"), 404, "SBP_SESSION_NOT_FOUND"),
        (Method::DELETE, &format!("/v1/sessions/{unknown}"), 404, "SBP_SESSION_NOT_FOUND"),
        (Method::POST, &format!("/v1/sessions/{unknown}/cancel"), 404, "SBP_SESSION_NOT_FOUND"),
        (Method::GET, "/nowhere", 404, "SBP_NOT_FOUND"),
        (Method::GET, "/v1", 404, "SBP_NOT_FOUND"),
        (Method::GET, &format!("/v1/sessions/{}/nothing", session.id), 404, "SBP_NOT_FOUND"),
        (Method::PUT, "/v1/sessions", 405, "SBP_INVALID_REQUEST"),
        (Method::PUT, &format!("/v1/sessions/{}", session.id), 405, "SBP_INVALID_REQUEST"),
        (Method::GET, &format!("/v1/sessions/{}/cancel", session.id), 405, "SBP_INVALID_REQUEST"),
        (Method::GET, "/v1/chat/completions", 405, "SBP_INVALID_REQUEST"),
        (Method::POST, "/healthz", 405, "SBP_INVALID_REQUEST"),
        // No upgrade, no surface.
        (Method::GET, &format!("/v1/sbp/ws/{}", session.id), 400, "SBP_INVALID_REQUEST"),
    ] {
        let refused = bench.call(method.clone(), path, &[], &Value::Null).await;
        assert_eq!(refused.refusal(), (status, code), "{method} {path}: {}", refused.text);
        assert_eq!(refused.header("content-type"), "application/json", "{method} {path}");
        let error = refused.body["error"].as_object().unwrap();
        for field in ["code", "message", "detail", "type", "param"] {
            assert!(error.contains_key(field), "{method} {path} has no {field}");
        }
    }
}

#[tokio::test]
async fn g11_an_answer_over_the_limit_is_cut_and_marked() {
    let bench = Bench::with(|config| config.limits.answer = 100).await;
    let session = bench.session().await;
    let cut = bench.say(&session, "count to 1000").await;
    assert_eq!(cut.refusal(), (502, "SBP_UPSTREAM"));
    let entries = bench.entries(&session).await;
    assert_eq!(entries[1]["status"], "interrupted");
    let kept = entries[1]["message"]["content"].as_str().unwrap();
    assert!(kept.starts_with("1\n2\n") && kept.len() < 200, "{kept}");
}

#[tokio::test]
async fn g12_a_surface_that_does_not_read_is_let_go_and_harms_nobody() {
    let bench = Bench::with(|config| {
        // Long enough for those who read.
        config.limits.write_timeout = Duration::from_secs(5);
        config.limits.answer = 4 << 20;
    })
    .await;
    let (slow, other) = (bench.session().await, bench.session().await);
    // More than any socket buffer between here and there can take.
    let (turns, long) = (8, format!("echo {}", "x".repeat(2 << 20)));
    for _ in 0..turns {
        let said: Answer = bench.say(&slow, &long).await;
        assert_eq!(said.status, 200);
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(bench.gateway.address()).await.unwrap();
    let url = format!("ws://{}/v1/sbp/ws/{}", bench.gateway.address(), slow.id);
    let stream = tokio_tungstenite::MaybeTlsStream::Plain(stream);
    let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let mut phone = Phone { socket };
    phone.send(hello(&slow, json!({}))).await;
    assert_eq!(phone.next().await["queued_turns"], turns);

    // It reads no more. Everybody else goes on.
    for n in 0..5 {
        assert_eq!(bench.say(&other, &format!("echo {n}")).await.content(), n.to_string());
    }
    let (mut reader, _) = bench.attach(&other).await;
    reader.confirm(&bench, &other).await;
    bench.until(&slow, "let go", |seen| seen["surface"].is_null()).await;
    assert_eq!(bench.show(&slow).await["tether_turns_pending"], turns, "nothing is lost");
    assert!(bench.get("/metrics").await.text.contains("bowline_slow_surfaces_total"));
    let (_phone, welcome) = bench.attach(&slow).await;
    assert_eq!(welcome["queued_turns"], turns);
}

#[tokio::test]
async fn g12_a_client_that_pipelines_and_never_reads_is_let_go() {
    let bench = Bench::with(|config| {
        config.limits.connections = 1;
        config.limits.write_timeout = Duration::from_millis(300);
        config.limits.header_timeout = Duration::from_secs(3600);
    })
    .await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(bench.gateway.address()).await.unwrap();
    // Answers that are more than all buffers on the way take; it goes on asking until it is let go.
    let ask = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let asking = async { while stream.write_all(ask.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(DEADLINE, asking).await.expect("it was never let go");
    // The one place there is free again.
    assert_eq!(bench.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn g11_one_address_has_so_many_connections_to_a_gateway_and_no_more() {
    let bench = Bench::with(|config| config.limits.connections_per_address = 2).await;
    let connect = async || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(bench.gateway.address()).await.unwrap()
    };
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = connect().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let answer = tokio::time::timeout(DEADLINE, stream.read_u8()).await.unwrap();
        assert_eq!(answer.unwrap(), b'H');
        open.push(stream);
    }
    let mut third = connect().await;
    let read = tokio::time::timeout(DEADLINE, third.read(&mut [0; 16])).await.expect("closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert_eq!(bench.get("/healthz").await.status, 200, "others are served");
}

#[tokio::test]
async fn g11_no_body_is_read_before_the_credential_is_checked() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        lock(config);
        config.limits.body_timeout = Duration::from_secs(3600);
    })
    .await;
    let session = Session::of(&by_key(&bench, Method::POST, "/v1/sessions", json!({})).await.body);
    let wrong = format!("Authorization: {}", bearer("a-key-that-nobody-was-given"));
    let wrong_token = "X-Session-Token: sbt_a-token-that-opens-nothing-at-all".to_owned();
    let its = |what: &str| format!("/v1/sessions/{}/{what}", session.id);
    let chat = "/v1/chat/completions".to_owned();
    for (method, path, shown, status) in [
        ("POST", chat.clone(), "X-None: 1", 401),
        ("POST", chat.clone(), wrong.as_str(), 403),
        ("POST", chat, wrong_token.as_str(), 403),
        ("POST", "/v1/completions".into(), wrong.as_str(), 403),
        ("POST", "/v1/sessions".into(), wrong.as_str(), 403),
        ("POST", "/v1/sessions/import".into(), wrong.as_str(), 403),
        ("PUT", "/v1/agents/a/memory".into(), wrong.as_str(), 403),
        ("POST", "/v1/agents/a/memory".into(), wrong.as_str(), 403),
        ("PATCH", its("status"), wrong_token.as_str(), 403),
        ("POST", its("cancel"), wrong_token.as_str(), 403),
        ("POST", its("export"), wrong_token.as_str(), 403),
        ("POST", its("handoff"), wrong_token.as_str(), 403),
        ("POST", its("fork"), wrong_token.as_str(), 403),
        ("POST", its("surfaces"), wrong_token.as_str(), 403),
        ("POST", its(&format!("approvals/{}", uuid::Uuid::nil())), wrong_token.as_str(), 403),
        ("POST", "/mcp".into(), wrong.as_str(), 403),
    ] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {shown}\r\nContent-Length: 100000\r\n\r\n"
        );
        let mut socket = bench.raw(&head).await;
        let answer = some_of(&mut socket).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {answer}");
    }
    assert!(upstream.calls().is_empty());
}
