//! A relay under test, and the plain requests one can make of it.

use std::net::SocketAddr;
use std::time::Duration;

use bowline_relay::relay::{Relay, RelayConfig};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::issuer::Issuer;
use super::peer::Peer;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) issuer: Issuer,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn start() -> Server {
    start_with(|_| {}).await
}

pub(crate) async fn start_with(change: impl FnOnce(&mut RelayConfig)) -> Server {
    start_at(Issuer::start().await, change).await
}

pub(crate) async fn start_at(issuer: Issuer, change: impl FnOnce(&mut RelayConfig)) -> Server {
    let mut config = RelayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        issuer: issuer.url.clone(),
        ..RelayConfig::default()
    };
    change(&mut config);
    let bound = Relay::bind(config).await.unwrap();
    let address = bound.local_addr();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(bound.run(stopped));
    Server { address, issuer, stop: Some(stop), task }
}

/// Asks again until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut so: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !so().await {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Server {
    pub(crate) async fn daemon(&self, daemon: &str) -> Peer {
        self.connect(&self.issuer.daemon(daemon)).await
    }

    pub(crate) async fn client(&self, daemon: &str, session: u64) -> Peer {
        self.connect(&self.issuer.client(daemon, session)).await
    }

    pub(crate) async fn connect(&self, token: &str) -> Peer {
        Peer::connect(&format!("ws://{}/relay?token={token}", self.address)).await.unwrap()
    }

    /// The status and the error that refuse a token.
    pub(crate) async fn refusal(&self, token: &str) -> (u16, Value) {
        let url = format!("ws://{}/relay?token={token}", self.address);
        Peer::connect(&url).await.map(drop).expect_err("it was let in")
    }

    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let mut request =
            reqwest::Client::new().get(format!("http://{}{path}", self.address)).timeout(PATIENCE);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// The value of a metric, by its whole name with labels.
    pub(crate) async fn metric(&self, name: &str) -> Option<u64> {
        let (_, page) = self.get("/metrics", None).await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }

    pub(crate) async fn until_metric(&self, name: &str, value: u64) {
        until(name, || async { self.metric(name).await == Some(value) }).await;
    }

    /// Tells it to stop; the task ends when it has.
    pub(crate) fn stop(mut self) -> JoinHandle<()> {
        let _ = self.stop.take().unwrap().send(());
        self.task
    }
}

/// A WebSocket without a library: takes next to no memory, and sends what no library would.
pub(crate) async fn raw(server: &Server, token: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "GET /relay HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         authorization: Bearer {token}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    socket
}
