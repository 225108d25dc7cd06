//! Limits: slow readers, fast writers, slow requests, too many of anything.

use std::time::{Duration, Instant};

use bowline_sbrp::control::ControlCode::*;
use bowline_sbrp::frame::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::peer::data;
use super::server::{PATIENCE, Server, start, start_with, until};

#[tokio::test]
async fn sbrp_relay_08_a_client_that_does_not_read_is_closed_and_others_go_on() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut slow = server.client("d", 1).await;
    let mut other = server.client("d", 2).await;
    slow.expect_quiet().await;
    other.expect_quiet().await;
    let big = data(1, vec![7; 60_000]);
    let mut most = 0;
    let mut sent = 0;
    // More than any socket buffer holds.
    'flood: for round in 0..2000 {
        daemon.send(&big).await;
        sent += 1;
        daemon.send(&data(2, format!("{round}"))).await;
        other.expect(&data(2, format!("{round}"))).await;
        most = most.max(server.metric("bowline_relay_queued_bytes").await.unwrap());
        if server.metric("bowline_relay_told_total{code=\"backpressure\"}").await == Some(1) {
            break 'flood;
        }
    }
    assert!(most <= (1 << 20) + (1 << 16), "{most} bytes waited");
    daemon.expect_code(SessionEnded, 1).await;
    daemon.expect_quiet().await;
    // What it was sent before that came whole, in order, and then the reason.
    let mut came = 0;
    let end = loop {
        match slow.next().await {
            Ok(frame @ Frame::Data { .. }) => {
                assert_eq!(frame, big);
                came += 1;
            }
            other => break other,
        }
    };
    assert!(came < sent);
    // It may also have been too late to be told.
    if let Ok(frame) = end {
        assert_eq!(frame, Frame::control(Backpressure, None));
        slow.expect_close(1013).await;
    }
}

#[tokio::test]
async fn sbrp_relay_08_a_slow_client_that_reads_again_in_time_is_told() {
    let server = start_with(|config| config.limits.farewell = PATIENCE).await;
    let mut daemon = server.daemon("d").await;
    let mut slow = server.client("d", 1).await;
    slow.expect_quiet().await;
    let mut sent = 0;
    while server.metric("bowline_relay_told_total{code=\"backpressure\"}").await.is_none() {
        for _ in 0..50 {
            daemon.send(&data(1, vec![7; 60_000])).await;
            sent += 1;
        }
        assert!(sent < 10_000, "never too much");
    }
    let mut came = 0;
    while let Ok(Frame::Data { .. }) = slow.next().await {
        came += 1;
    }
    assert!(came > 0 && came < sent);
    slow.expect_close(1013).await;
}

#[tokio::test]
async fn g10_a_burst_of_small_frames_is_no_reason_to_close_a_client_that_reads() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    // Far more frames than the queue holds, in few reads.
    let sending = async {
        for number in 0..5000_u32 {
            use futures_util::SinkExt as _;
            let message = data(1, number.to_be_bytes().to_vec()).encode();
            daemon.socket.feed(message.into()).await.unwrap();
        }
        use futures_util::SinkExt as _;
        daemon.socket.flush().await.unwrap();
    };
    let receiving = async {
        for number in 0..5000_u32 {
            client.expect(&data(1, number.to_be_bytes().to_vec())).await;
        }
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn sbrp_relay_08_a_daemon_that_does_not_read_holds_its_clients_back_and_is_closed() {
    let server = start_with(|config| {
        config.limits.write_timeout = Duration::from_millis(300);
        config.limits.farewell = Duration::from_millis(100);
    })
    .await;
    let _daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    let mut sent = 0;
    let flood = async {
        use futures_util::SinkExt as _;
        loop {
            // Many at once: what the sockets hold must be full within the test's patience.
            for _ in 0..20 {
                let message = data(1, vec![7; 60_000]).encode();
                if client.socket.send(message.into()).await.is_err() {
                    return;
                }
                sent += 1;
            }
            if server.metric("bowline_relay_told_total{code=\"backpressure\"}").await.is_some() {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(PATIENCE, flood).await;
    server.until_metric("bowline_relay_told_total{code=\"backpressure\"}", 1).await;
    assert!(sent > 0);
    client.expect_code(SessionPaused, 1).await;
}

#[tokio::test]
async fn sbrp_relay_07_too_many_messages_are_delayed_not_dropped() {
    let server = start_with(|config| config.limits.rate_frames = 50).await;
    let mut daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    let start = Instant::now();
    for number in 0..100_u32 {
        client.send(&data(1, number.to_be_bytes().to_vec())).await;
    }
    for number in 0..100_u32 {
        daemon.expect(&data(1, number.to_be_bytes().to_vec())).await;
    }
    // Fifty at once, and fifty at their rate.
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    client.expect_code(RateLimited, 0).await;
    // It stays open, and is not told for each.
    let mut warnings = 1;
    client.send(&Frame::Ping(Default::default())).await;
    while let Ok(Frame::Control { .. }) = client.next().await {
        warnings += 1;
    }
    assert!(warnings <= 3, "{warnings}");
}

#[tokio::test]
async fn sbrp_relay_07_too_many_connections_are_turned_away() {
    let server = start_with(|config| config.limits.rate_connections = 3).await;
    for _ in 0..3 {
        assert_eq!(server.get("/relay", None).await.0, 401);
    }
    // There is room for three more in each second, so that a slow machine asks longer.
    until("turned away", || async { server.get("/relay", None).await.0 == 429 }).await;
    assert_eq!(server.get("/healthz", None).await.0, 200, "only connections count");
    until("room again", || async { server.get("/relay", None).await.0 == 401 }).await;
}

#[tokio::test]
async fn g11_wrong_tokens_never_lock_out_a_right_one_of_the_same_address() {
    let server = start_with(|config| {
        config.behind_proxy = vec!["127.0.0.0/8".parse().unwrap()];
        config.limits.rate_connections_ip = 5;
        config.limits.rate_connections = 20;
    })
    .await;
    until("ready", || async { server.get("/readyz", None).await.0 == 200 }).await;
    // All of them through one proxy that names one client address.
    let ask = async |token: &str| {
        let request = reqwest::Client::new().get(format!("http://{}/relay", server.address));
        let request = request.header("x-forwarded-for", "203.0.113.9").bearer_auth(token);
        request.timeout(PATIENCE).send().await.unwrap().status().as_u16()
    };
    let mut statuses = Vec::new();
    for _ in 0..100 {
        statuses.push(ask("a.b.c").await);
    }
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    // No WebSocket is asked for: that is said after the token was accepted.
    assert_eq!(ask(&server.issuer.daemon("d")).await, 426);
}

/// A connection from this address of this machine.
async fn connect_from(from: &str, server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(server.address).await.unwrap()
}

#[tokio::test]
async fn g11_one_address_has_so_many_connections_to_a_relay_and_no_more() {
    let server = start_with(|config| config.limits.connections_per_address = 2).await;
    let ask = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = connect_from("127.0.0.2", &server).await;
        stream.write_all(ask).await.unwrap();
        let answer = tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap();
        assert_eq!(answer.unwrap(), b'H');
        open.push(stream);
    }
    let mut third = connect_from("127.0.0.2", &server).await;
    let read = tokio::time::timeout(PATIENCE, third.read(&mut [0; 16])).await.expect("closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let mut other = connect_from("127.0.0.3", &server).await;
    other.write_all(ask).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, other.read_u8()).await.unwrap().unwrap(), b'H');
}

#[tokio::test]
async fn g12_a_client_that_asks_a_relay_and_never_reads_is_let_go() {
    let server = start_with(|config| {
        config.limits.connections = 1;
        config.limits.write_timeout = Duration::from_millis(300);
        config.limits.header_timeout = Duration::from_secs(3600);
    })
    .await;
    let mut deaf = connect_from("127.0.0.1", &server).await;
    // Answers that are more than all buffers on the way take; it goes on asking until it is let go.
    let ask = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
    let asking = async { while deaf.write_all(ask.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, asking).await.expect("it was never let go");
    assert_eq!(server.get("/healthz", None).await.0, 200, "the one place there is free again");
}

#[tokio::test]
async fn lim_concurrent_sessions_of_a_daemon_hold() {
    let server = start().await;
    let mut daemon = server.connect(&server.issuer.limited("d", 2)).await;
    let mut first = server.client("d", 1).await;
    first.expect_quiet().await;
    server.client("d", 2).await.expect_quiet().await;
    daemon.expect_code(SessionEnded, 2).await;
    let mut second = server.client("d", 3).await;
    second.expect_quiet().await;
    server.client("d", 4).await.expect_last(Forbidden, 0).await;
    first.close().await;
    daemon.expect_code(SessionEnded, 1).await;
    server.client("d", 5).await.expect_quiet().await;
}

#[tokio::test]
async fn lim_concurrent_sessions_of_a_user_hold_across_daemons() {
    let server = start().await;
    let issuer = &server.issuer;
    let _daemons = [server.daemon("d").await, server.daemon("e").await];
    let token = |daemon: &str, sid: &str| {
        let mut claims = issuer.claims();
        claims["did"] = daemon.into();
        claims["sid"] = sid.into();
        claims["lim"] = serde_json::json!({ "concurrent_sessions": 1 });
        issuer.signed(&issuer.header(), &claims)
    };
    let mut first = server.connect(&token("d", "AAAAAAAAAAE")).await;
    first.expect_quiet().await;
    server.connect(&token("e", "AAAAAAAAAAI")).await.expect_last(Forbidden, 0).await;
    first.close().await;
    server.until_metric("bowline_relay_connections{role=\"client\"}", 0).await;
    server.connect(&token("e", "AAAAAAAAAAI")).await.expect_quiet().await;
}

#[tokio::test]
async fn g11_a_head_that_never_ends_is_cut_off() {
    let server =
        start_with(|config| config.limits.header_timeout = Duration::from_millis(200)).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /relay HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    let ended = async {
        let mut byte = [0; 256];
        loop {
            // A byte now and then, as slowloris does.
            let _ = slow.write_all(b"x").await;
            let read = tokio::time::timeout(Duration::from_millis(20), slow.read(&mut byte)).await;
            if matches!(read, Ok(Ok(0) | Err(_))) {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("cut off");
    // One that says nothing at all, too.
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let read = tokio::time::timeout(PATIENCE, silent.read(&mut [0; 16])).await.expect("cut off");
    assert!(matches!(read, Ok(0) | Err(_)));
    assert_eq!(server.get("/healthz", None).await.0, 200);
}

#[tokio::test]
async fn g11_a_head_of_more_than_16_kib_is_refused() {
    let server = start().await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(17 << 10));
    let _ = socket.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let server = start_with(|config| config.limits.connections = 2).await;
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    client.expect_quiet().await;
    let waiting = server.get("/healthz", None);
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "two are open already");
    drop(daemon);
    assert_eq!(waiting.await.0, 200);
}
