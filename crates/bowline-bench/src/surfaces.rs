//! Minimal surfaces for the measurements: attach and disconnect, drain, or stay attached.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Packet;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::load::PARALLEL;

/// The id and token of a session.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) id: String,
    pub(crate) token: String,
}

pub(crate) type Socket = WebSocketStream<TcpStream>;

/// For sockets with little traffic; the library's default buffers are 128 KiB each.
pub(crate) fn small_buffers() -> WebSocketConfig {
    WebSocketConfig::default().read_buffer_size(4 << 10).write_buffer_size(0)
}

/// Connects and attaches; returns the socket after the first frame was received.
pub(crate) async fn attach(address: SocketAddr, door: &Door) -> Result<Socket> {
    attach_as(address, door, json!({ "device_type": "desktop" })).await
}

/// The same, with a surface context.
pub(crate) async fn attach_as(
    address: SocketAddr,
    door: &Door,
    surface: serde_json::Value,
) -> Result<Socket> {
    let hello = json!({
        "type": "ATTACH_SESSION", "session_id": door.id, "session_token": door.token,
        "surface": surface,
    });
    connect(address, door, hello).await
}

/// Attaches beside the other surfaces (SBP-L2-20).
pub(crate) async fn join(address: SocketAddr, door: &Door) -> Result<Socket> {
    let hello = json!({
        "type": "ATTACH_SESSION", "session_id": door.id, "session_token": door.token,
        "join": true, "surface": { "device_type": "desktop" },
    });
    connect(address, door, hello).await
}

async fn connect(address: SocketAddr, door: &Door, hello: serde_json::Value) -> Result<Socket> {
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    let url = format!("ws://{address}/v1/sbp/ws/{}", door.id);
    let (mut socket, _) =
        tokio_tungstenite::client_async_with_config(url, stream, Some(small_buffers())).await?;
    socket.send(Packet::text(hello.to_string())).await?;
    match socket.next().await {
        Some(Ok(Packet::Text(_))) => Ok(socket),
        other => bail!("expected an answer to the attach, received {other:?}"),
    }
}

/// Attachments per second: connect, attach, receive the first frame, disconnect.
pub(crate) async fn attaches(address: SocketAddr, doors: &[Door], length: Duration) -> Result<f64> {
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for door in doors.iter().cycle().take(PARALLEL) {
        let (count, door) = (Arc::clone(&count), door.clone());
        tasks.spawn(async move {
            while begun.elapsed() < length {
                drop(attach(address, &door).await?);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

/// The time from connecting until `turns` frames were received after the first one.
pub(crate) async fn drain(address: SocketAddr, door: &Door, turns: usize) -> Result<Duration> {
    let begun = Instant::now();
    let mut socket = attach(address, door).await?;
    let mut seen = 0;
    while seen < turns {
        match socket.next().await {
            Some(Ok(Packet::Text(_))) => seen += 1,
            Some(Ok(_)) => {}
            other => bail!("unexpected frame after {seen} turns: {other:?}"),
        }
    }
    Ok(begun.elapsed())
}
