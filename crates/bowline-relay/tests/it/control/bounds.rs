//! Heads, bodies, waits and connections are bounded; and what there is for those who run it.

use std::time::Duration;

use bowline_relay::MetricsAccess;
use bowline_relay::control::{Control, ControlConfig};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::control::bench::{Bench, DEADLINE, ISSUER, RELAY, identity};

async fn raw(bench: &Bench, text: &str) -> TcpStream {
    let address = bench.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// All that comes until the other side closes.
async fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut text)).await;
    let _ = read.expect("the connection is closed");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn g11_a_head_that_does_not_come_is_not_waited_for() {
    let bench =
        Bench::with(|config| config.limits.header_timeout = Duration::from_millis(100)).await;
    for begun in ["", "GET /api/daemons HT", "GET /healthz HTTP/1.1\r\nHost: x\r\nX: "] {
        let said = rest(raw(&bench, begun).await).await;
        assert!(!said.contains("200 OK"), "{said}");
    }
}

#[tokio::test]
async fn g11_a_head_is_at_most_16_kib() {
    let bench = Bench::start().await;
    let get = |size: usize| {
        let filler = "x".repeat(size);
        format!("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: {filler}\r\n\r\n")
    };
    assert!(rest(raw(&bench, &get(12 << 10)).await).await.starts_with("HTTP/1.1 200"));
    assert!(rest(raw(&bench, &get(40 << 10)).await).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn g11_a_body_is_at_most_16_kib_and_does_not_take_for_ever() {
    let bench = Bench::with(|config| config.limits.body_timeout = Duration::from_millis(100)).await;
    let key = bench.user("alice");
    let body = |size: usize| json!({ "apiKey": key, "identityPublicKey": identity(1), "later": "x".repeat(size) });
    assert_eq!(bench.register_as(body(16 << 10)).await.refusal(), (413, "invalid_request"));
    assert_eq!(bench.register_as(body(15 << 10)).await.status, 201);
    let head = "POST /api/daemons/register HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{";
    let said = rest(raw(&bench, head).await).await;
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
}

#[tokio::test]
async fn g11_json_that_nests_without_end_is_refused() {
    let bench = Bench::start().await;
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(7000), "]".repeat(7000));
    let request = bench.http.post(format!("{}/api/daemons/register", bench.url)).body(deep);
    assert_eq!(request.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn g11_more_connections_than_places_wait() {
    let bench = Bench::with(|config| {
        config.limits.connections = 1;
        config.limits.header_timeout = Duration::from_secs(10);
    })
    .await;
    let get = "GET /healthz HTTP/1.1\r\nHost: x\r\n";
    let mut first = raw(&bench, get).await;
    let second = raw(&bench, &format!("{get}Connection: close\r\n\r\n")).await;
    // What the first one asks after that is answered, and the second one is not.
    for asks in ["\r\n".to_owned(), format!("{get}\r\n"), format!("{get}\r\n")] {
        first.write_all(asks.as_bytes()).await.unwrap();
        let mut answer = [0; 1024];
        let length =
            tokio::time::timeout(DEADLINE, first.read(&mut answer)).await.unwrap().unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 200 OK"));
        let early = second.try_read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(early, Err(std::io::ErrorKind::WouldBlock), "there is no place for it yet");
    }
    drop(first);
    assert!(rest(second).await.contains("200 OK"));
}

/// A connection from this address of this machine.
async fn connect_from(from: &str, bench: &Bench) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let address = bench.url.trim_start_matches("http://").parse().unwrap();
    socket.connect(address).await.unwrap()
}

#[tokio::test]
async fn g11_one_address_has_so_many_connections_to_a_control_plane_and_no_more() {
    let bench = Bench::with(|config| config.limits.connections_per_address = 2).await;
    let ask = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = connect_from("127.0.0.2", &bench).await;
        stream.write_all(ask).await.unwrap();
        let answer = tokio::time::timeout(DEADLINE, stream.read_u8()).await.unwrap();
        assert_eq!(answer.unwrap(), b'H');
        open.push(stream);
    }
    let mut third = connect_from("127.0.0.2", &bench).await;
    let read = tokio::time::timeout(DEADLINE, third.read(&mut [0; 16])).await.expect("closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert_eq!(bench.get("/healthz", None).await.status, 200, "others are served");
}

#[tokio::test]
async fn g12_a_client_that_asks_a_control_plane_and_never_reads_is_let_go() {
    let bench = Bench::with(|config| {
        config.limits.connections = 1;
        config.limits.write_timeout = Duration::from_millis(300);
        config.limits.header_timeout = Duration::from_secs(3600);
    })
    .await;
    let mut deaf = connect_from("127.0.0.1", &bench).await;
    let ask = "GET /.well-known/jwks.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
    let asking = async { while deaf.write_all(ask.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(DEADLINE, asking).await.expect("it was never let go");
    assert_eq!(bench.get("/healthz", None).await.status, 200, "the one place there is free again");
}

#[tokio::test]
async fn what_is_not_there_is_refused_in_the_same_shape() {
    let bench = Bench::start().await;
    assert_eq!(bench.get("/nowhere", None).await.refusal(), (404, "not_found"));
    for (method, path) in [
        (Method::GET, "/api/sessions"),
        (Method::POST, "/api/daemons"),
        (Method::DELETE, "/.well-known/jwks.json"),
        (Method::GET, "/api/daemons/register"),
    ] {
        let refused = bench.call(method.clone(), path, None, None).await;
        assert_eq!(refused.refusal(), (405, "invalid_request"), "{method} {path}");
    }
}

#[tokio::test]
async fn health_readiness_and_metrics_name_nobody() {
    let bench = Bench::start().await;
    let key = bench.user("alice-of-the-metrics");
    let daemon = bench.daemon(&key, 1).await;
    bench.open(&key, &daemon).await;
    bench.get("/not-a-route-of-ours", None).await;
    let alive = bench.get("/healthz", None).await;
    assert_eq!((alive.status, alive.body["status"].as_str()), (200, Some("ok")));
    let ready = bench.get("/readyz", None).await;
    assert_eq!((ready.status, ready.body["status"].as_str()), (200, Some("ready")));
    let metrics = bench.get("/metrics", None).await;
    assert!(metrics.header("content-type").starts_with("text/plain"));
    for (name, label) in [
        ("bowline_control_tokens_total", r#"kind="session""#),
        ("bowline_control_tokens_total", r#"kind="presence""#),
        ("bowline_control_requests_total", r#"route="/api/sessions""#),
        ("bowline_control_requests_total", r#"route="unmatched""#),
    ] {
        let found = metrics.text.lines().any(|l| l.starts_with(name) && l.contains(label));
        assert!(found, "no {name} {label} in {}", metrics.text);
    }
    for secret in [key.as_str(), daemon.as_str(), "alice-of", "not-a-route"] {
        assert!(!metrics.text.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn metrics_are_for_this_machine_and_for_who_has_their_key() {
    let key = "the-operators-key-for-metrics";
    for has_key in [false, true] {
        let bench = Bench::with(|config| {
            config.metrics =
                if has_key { MetricsAccess::with_key(key) } else { MetricsAccess::default() };
        })
        .await;
        let read = async |forwarded: &str, shown: &str| {
            let mut request = bench.http.get(format!("{}/metrics", bench.url));
            if !forwarded.is_empty() {
                request = request.header(forwarded, "for=203.0.113.9");
            }
            if !shown.is_empty() {
                request = request.bearer_auth(shown);
            }
            request.send().await.unwrap().status().as_u16()
        };
        assert_eq!(read("", "").await, 200);
        for forwarded in ["forwarded", "x-forwarded-for", "x-real-ip"] {
            assert_eq!(read(forwarded, "").await, 401, "{forwarded}");
            assert_eq!(read(forwarded, &bench.user(forwarded)).await, 401, "a user's key is none");
            assert_eq!(read(forwarded, key).await, if has_key { 200 } else { 401 });
        }
    }
}

#[tokio::test]
async fn a_registry_that_fails_says_so_and_no_more() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let path = bench.folder.path().join(bowline_relay::control::registry::FILE);
    let database = rusqlite::Connection::open(path).unwrap();
    database.execute_batch("ALTER TABLE daemons RENAME TO lost").unwrap();
    let refused = bench.open(&key, &daemon).await;
    assert_eq!(refused.refusal(), (500, "internal"));
    assert!(!refused.text.contains("daemons") && !refused.text.contains("SQL"), "{}", refused.text);
    database.execute_batch("ALTER TABLE lost RENAME TO daemons").unwrap();
    assert_eq!(bench.open(&key, &daemon).await.status, 200, "and it goes on by itself");
}

#[tokio::test]
async fn a_registry_that_cannot_be_written_is_not_ready() {
    let bench = Bench::start().await;
    let path = bench.folder.path().join(bowline_relay::control::registry::FILE);
    let database = rusqlite::Connection::open(path).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let not_ready = bench.get("/readyz", None).await;
    assert_eq!((not_ready.status, &not_ready.body["status"]), (503, &json!("not ready")));
    assert_eq!(bench.keys().await.len(), 2, "relays still get the keys");
    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(bench.get("/readyz", None).await.status, 200);
}

#[tokio::test]
async fn g16_a_stop_lets_the_request_under_way_end() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let body = json!({ "apiKey": key, "identityPublicKey": identity(1) }).to_string();
    let (first, second) = body.split_at(10);
    let head = format!(
        "POST /api/daemons/register HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{first}",
        body.len()
    );
    let mut stream = raw(&bench, &head).await;
    // The head has been read once another request, sent later, is answered.
    assert_eq!(bench.get("/healthz", None).await.status, 200);
    let stopping = tokio::spawn(bench.stop());
    tokio::time::sleep(Duration::from_millis(50)).await;
    stream.write_all(second.as_bytes()).await.unwrap();
    assert!(rest(stream).await.starts_with("HTTP/1.1 201"));
    stopping.await.unwrap();
}

#[tokio::test]
async fn it_can_stand_beside_other_addresses_in_one_process() {
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use tower::ServiceExt as _;

    let folder = tempfile::tempdir().unwrap();
    let config = ControlConfig::new(folder.path(), ISSUER, RELAY.parse().unwrap());
    let control = Control::open(config).unwrap();
    control.check().await.unwrap();
    let beside = axum::Router::new()
        .route("/healthz", axum::routing::get(async || "the relay's"))
        .fallback(async || StatusCode::IM_A_TEAPOT);
    let both = control.router().merge(beside);
    let get = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        both.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    let seen = [
        get("/.well-known/jwks.json").await,
        get("/api/daemons").await,
        get("/healthz").await,
        get("/x").await,
    ];
    assert_eq!(seen, [200, 401, 200, 418]);
}
