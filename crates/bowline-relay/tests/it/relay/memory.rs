//! What an idle pair costs, and what stays of clients that left (G11). In processes of their own, where
//! nothing else takes memory.

use std::process::Command;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::peer::data;
use super::server::{Server, raw, start};

const DAEMONS: u64 = 4;
const CLIENTS: u64 = 100;

#[test]
fn g11_an_idle_pair_takes_at_most_16_kib() {
    alone("measured_alone", "bytes a pair");
}

#[test]
fn g11_what_waited_for_clients_that_left_is_freed() {
    alone("left_alone", "bytes a client that left");
}

/// Runs a test of this file in a process of its own.
fn alone(name: &str, says: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("relay::memory::{name}"), "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains(says), "{said}");
}

/// Fewer than the daemon's connection removes from its cache of routes by itself.
const UNREAD: u64 = 12;

#[tokio::test]
#[ignore = "run by the test above"]
async fn left_alone() {
    let server = start().await;
    connect_all(&server, "warm", 1, &mut Vec::new()).await;
    let mut daemon = raw(&server, &server.issuer.daemon("d")).await;
    let before = resident();
    for session in 1..=UNREAD {
        let client = raw(&server, &server.issuer.client("d", session)).await;
        let frame = masked(&data(session, vec![7; 32 << 10]).encode());
        // The client reads nothing; the relay closes it when its queue is full.
        while server.metric("bowline_relay_queued_bytes").await < Some(512 << 10) {
            daemon.write_all(&frame).await.unwrap();
        }
        drop(client);
        server.until_metric("bowline_relay_connections{role=\"client\"}", 0).await;
    }
    // A connection that is not counted any more may still be about to free its queue.
    let each = || resident().saturating_sub(before) / UNREAD;
    let until = Instant::now() + Duration::from_secs(10);
    while each() >= 128 << 10 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("{} bytes a client that left", each());
    assert!(each() < 128 << 10, "{} bytes a client that left", each());
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn measured_alone() {
    let server = start().await;
    let mut open = Vec::new();
    // What is made once is made now.
    connect_all(&server, "warm", 1, &mut open).await;
    let before = resident();
    for daemon in 0..DAEMONS {
        connect_all(&server, &format!("d{daemon}"), CLIENTS, &mut open).await;
    }
    server.until_metric("bowline_relay_pairs{state=\"paired\"}", DAEMONS * CLIENTS + 1).await;
    // The test's own ends are in it, too; they are small.
    let each = resident().saturating_sub(before) / (DAEMONS * CLIENTS);
    println!("{each} bytes a pair");
    assert!(each <= 16 << 10, "{each} bytes a pair");
}

/// A daemon and its clients, each of which has said something and heard something.
async fn connect_all(server: &Server, name: &str, clients: u64, open: &mut Vec<TcpStream>) {
    let mut daemon = raw(server, &server.issuer.daemon(name)).await;
    for session in 1..=clients {
        let mut client = raw(server, &server.issuer.client(name, session)).await;
        let message = data(session, vec![7; 1000]).encode();
        let frame = masked(&message);
        let mut heard = vec![0; 4 + message.len()];
        client.write_all(&frame).await.unwrap();
        daemon.read_exact(&mut heard).await.unwrap();
        daemon.write_all(&frame).await.unwrap();
        client.read_exact(&mut heard).await.unwrap();
        open.push(client);
    }
    open.push(daemon);
}

/// A message as a frame of a client, with a mask of zeros.
fn masked(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82, 0x80 | 126];
    frame.extend((message.len() as u16).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(message);
    frame
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
