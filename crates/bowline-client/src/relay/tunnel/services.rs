//! What a daemon offers through its tunnels, and the services that every daemon has.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use bowline_net::dial;
use bowline_sbrp::tunnel::ResetReason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::peer::TunnelPeer;
use super::splice::splice;
use super::stream::TunnelStream;

/// The service that sends everything back; for measuring.
pub const PING: &str = "ping";
/// The service of a gateway for Bowline's own client: HTTP/1.1, WebSockets included.
pub const HTTP: &str = "http";
/// The same for a local port that any program of the device can use: nothing that takes a person.
pub const API: &str = "api";

/// The services of a daemon. Whether a peer may use one was checked before it is run.
#[async_trait]
pub trait Services: Send + Sync + fmt::Debug {
    /// The names of all of them.
    fn names(&self) -> Vec<String>;

    /// Whether there is one with this name.
    fn offers(&self, service: &str) -> bool {
        self.names().iter().any(|name| name == service)
    }

    /// Serves one stream to its end.
    async fn run(&self, peer: TunnelPeer, service: String, stream: TunnelStream);
}

/// TCP connections to targets that the daemon was configured with. A client names one of them, never
/// an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpTargets(BTreeMap<String, String>);

impl TcpTargets {
    /// From names to `host:port`.
    pub fn new(targets: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(targets.into_iter().collect())
    }
}

#[async_trait]
impl Services for TcpTargets {
    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    async fn run(&self, _: TunnelPeer, service: String, stream: TunnelStream) {
        let Some(target) = self.0.get(&service) else {
            return stream.refuse(ResetReason::NotOffered);
        };
        let connected = match timeout(CONNECT_PATIENCE, connect(target)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        match connected {
            Ok(tcp) => {
                if let Err(error) = splice(tcp, stream).await {
                    tracing::debug!(%error, "connection cut off");
                }
            }
            Err(error) => {
                tracing::warn!(%error, target, "the target cannot be reached");
                stream.refuse(ResetReason::Unreachable);
            }
        }
    }
}

async fn connect(target: &str) -> io::Result<TcpStream> {
    let address = target.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = address.ok_or(io::ErrorKind::InvalidInput)?;
    dial::tcp(host.trim_matches(['[', ']']), port).await
}

/// Sends everything back.
pub(super) async fn echo(mut stream: TunnelStream) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
