//! A WebSocket echo server in its own process: the lower bound of an exchange with a device.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::pace::{AsyncCall, Pace};
use crate::surfaces::{self, Socket};

/// Serves until the process is killed; calls `ready` with the address.
pub async fn serve(ready: impl FnOnce(SocketAddr)) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let config = Some(surfaces::small_buffers());
            let accepted = tokio_tungstenite::accept_async_with_config(stream, config).await;
            let Ok(mut socket) = accepted else { return };
            while let Some(Ok(packet)) = socket.next().await {
                if !packet.is_text() || socket.send(packet).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The duration of each echo of `frame`.
pub(crate) async fn round_trips(
    address: SocketAddr,
    frame: &str,
    pace: &Pace,
) -> Result<Vec<Duration>> {
    let mut callers = Vec::new();
    for _ in 0..pace.parallel {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let config = Some(surfaces::small_buffers());
        let url = format!("ws://{address}/");
        let (socket, _) = tokio_tungstenite::client_async_with_config(url, stream, config).await?;
        callers.push(EchoCall { socket, frame: frame.to_owned() });
    }
    pace.run(callers).await
}

struct EchoCall {
    socket: Socket,
    frame: String,
}

impl AsyncCall<Duration> for EchoCall {
    async fn call(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        self.socket.send(Packet::text(self.frame.clone())).await?;
        match self.socket.next().await {
            Some(Ok(Packet::Text(_))) => Ok(begun.elapsed()),
            other => bail!("expected an echo, received {other:?}"),
        }
    }
}
