//! A minimal WebSocket server, for comparison.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message as Packet;

/// Accepts, waits for one frame, and sends `frames`.
pub(crate) async fn start(frames: Vec<String>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let frames = Arc::new(frames);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let frames = Arc::clone(&frames);
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
                let _ = socket.next().await;
                for frame in frames.iter() {
                    if socket.feed(Packet::text(frame.clone())).await.is_err() {
                        return;
                    }
                }
                let _ = socket.flush().await;
                while let Some(Ok(_)) = socket.next().await {}
            });
        }
    });
    Ok(address)
}
