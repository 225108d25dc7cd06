//! Memory use of the built binary under clients that stay silent, do not read, or send too much.

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::process::{DEADLINE, Process, session_of, turn};

const MIB: usize = 1 << 20;
/// The size of a turn that fills a page of the log alone.
const LONG: usize = 300 << 10;

/// Resident memory and its peak, in bytes.
pub(crate) fn memory(gateway: &Process) -> (usize, usize) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let kib = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    (kib("VmRSS:") * 1024, kib("VmHWM:") * 1024)
}

async fn attach(gateway: &Process, answer: &Value) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let (id, token) = (session_of(answer), answer["sbp"]["session_token"].clone());
    let url = format!("ws://{}/v1/sbp/ws/{id}", gateway.address());
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let hello = json!({
        "type": "ATTACH_SESSION", "session_id": id, "session_token": token,
        "surface": { "device_type": "desktop" },
    });
    socket.send(Packet::text(hello.to_string())).await.unwrap();
    socket
}

/// The peak of resident memory, once it does not change any more.
async fn settled(gateway: &Process) -> usize {
    let begun = Instant::now();
    let (mut last, mut same) = (memory(gateway), 0);
    while same < 10 {
        assert!(begun.elapsed() < DEADLINE, "memory grows and grows");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = memory(gateway);
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_g12_soak_silent_slow_and_greedy_clients_cost_bounded_memory() {
    let times = if std::env::var_os("BOWLINE_SOAK").is_some() { 10 } else { 1 };
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let client = reqwest::Client::new();
    let url = format!("{}/v1/chat/completions", gateway.url);

    // Surfaces that do not read, each with twelve pages of turns to receive.
    let readers = 8 * times;
    let long = format!("echo {}", "x".repeat(LONG));
    let mut slow = Vec::new();
    for _ in 0..readers {
        let first = gateway.say(None, &long).await;
        for _ in 0..11 {
            gateway.say(Some(&session_of(&first)), &long).await;
        }
        slow.push(first);
    }
    let neighbour = gateway.say(None, "echo before").await;
    let (before, _) = memory(&gateway);

    let mut held = Vec::new();
    for n in 0..200 * times {
        let mut socket = TcpStream::connect(gateway.address()).await.unwrap();
        // Half of them send an incomplete request head, the others nothing at all.
        if n % 2 == 0 {
            let head = format!("POST /v1/chat/completions HTTP/1.1\r\nx: {}", "y".repeat(8 << 10));
            socket.write_all(head.as_bytes()).await.unwrap();
        }
        held.push(socket);
    }
    let mut unread = Vec::new();
    for first in &slow {
        unread.push(attach(&gateway, first).await);
    }
    for _ in 0..10 * times {
        let body = vec![b'['; 4 * MIB - 1];
        let deep = client.post(&url).header("content-type", "application/json").body(body);
        assert_eq!(deep.send().await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);
        let body = vec![b' '; 4 * MIB + 1];
        // The connection may be closed before the whole body was sent.
        if let Ok(large) = client.post(&url).body(body).send().await {
            assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
        let mut greedy = attach(&gateway, &neighbour).await;
        let _ = greedy.send(Packet::text("z".repeat(MIB + 1))).await;
        let closed = async { while let Some(Ok(_)) = greedy.next().await {} };
        tokio::time::timeout(DEADLINE, closed).await.expect("too much, and nobody minds");
        let begun = Instant::now();
        let body = turn(Some(&session_of(&neighbour)), "echo meanwhile");
        assert_eq!(client.post(&url).json(&body).send().await.unwrap().status(), StatusCode::OK);
        assert!(begun.elapsed() < DEADLINE);
    }
    let peak = settled(&gateway).await;
    let grown = peak.saturating_sub(before);
    let allowed = 48 * MIB + readers * 4 * MIB + held.len() * (16 << 10);
    eprintln!(
        "{} silent sockets, {readers} surfaces that do not read: {} MiB more at most",
        held.len(),
        grown / MIB
    );
    assert!(grown < allowed, "{} MiB, where {} are allowed", grown / MIB, allowed / MIB);
    drop((held, unread));
    let log = gateway.log(&session_of(&neighbour)).await;
    assert_eq!(log.len(), 2 + 2 * 10 * times);
}
