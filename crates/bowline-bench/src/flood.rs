//! A flood of a gateway, and users who work meanwhile: connections that are never read, bodies that do
//! not end, and wrong keys.
//!
//! All from this machine, by other loopback addresses than 127.0.0.1: to the limits for each address
//! these are as foreign as any other. Public, because a test runs the same flood.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Whose connections are never read, whose bodies do not end, who guesses keys; and the users.
const UNREADING: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const USERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const SLOW: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
const GUESSING: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);
/// How long the flood may take to rise, and a user's turn to be answered.
const PATIENCE: Duration = Duration::from_secs(60);

/// How large a flood is.
#[derive(Debug, Clone, Copy)]
pub struct FloodSize {
    pub unread_connections: usize,
    pub slow_bodies: usize,
    pub wrong_keys_per_second: u32,
}

/// A flood that goes on until it is dropped.
#[derive(Debug)]
pub struct Flood {
    size: FloodSize,
    counts: Arc<Counts>,
    tasks: JoinSet<()>,
}

/// How often something of a flood happened.
#[derive(Debug, Default)]
struct Counts {
    unread: AtomicU64,
    bodies: AtomicU64,
    wrong_keys: AtomicU64,
}

impl Flood {
    /// `valid_key`: what the slow bodies are sent with; without one nobody reads them.
    pub fn start(to: SocketAddr, size: FloodSize, valid_key: &str) -> Self {
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        for _ in 0..size.unread_connections {
            tasks.spawn(Arc::clone(&counts).never_read(to));
        }
        for _ in 0..size.slow_bodies {
            tasks.spawn(Arc::clone(&counts).send_slowly(to, valid_key.to_owned()));
        }
        tasks.spawn(Arc::clone(&counts).guess(to, size.wrong_keys_per_second));
        Self { size, counts, tasks }
    }

    /// Waits until every part of it is under way.
    pub async fn risen(&self) -> Result<()> {
        let begun = Instant::now();
        let reached = |count: &AtomicU64, most: usize| count.load(Ordering::Relaxed) >= most as u64;
        while !(reached(&self.counts.unread, self.size.unread_connections)
            && reached(&self.counts.bodies, self.size.slow_bodies)
            && reached(&self.counts.wrong_keys, 10))
        {
            ensure!(begun.elapsed() < PATIENCE, "the flood does not rise");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// How many wrong keys were refused so far; an error if a part of the flood has ended.
    pub fn wrong_keys(&mut self) -> Result<u64> {
        ensure!(self.tasks.try_join_next().is_none(), "the flood ended before its time");
        Ok(self.counts.wrong_keys.load(Ordering::Relaxed))
    }
}

impl Counts {
    /// Asks for much and reads nothing, again and again.
    async fn never_read(self: Arc<Self>, to: SocketAddr) {
        let asked = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(16);
        loop {
            if let Ok(mut stream) = connect(UNREADING, to).await {
                let _ = stream.write_all(asked.as_bytes()).await;
                self.unread.fetch_add(1, Ordering::Relaxed);
                // Until the gateway has closed it.
                while stream.write_all(b"GET / HTTP/1.1\r\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// With a valid key: a body that comes a few bytes at a time.
    async fn send_slowly(self: Arc<Self>, to: SocketAddr, key: String) {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \
             {key}\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
        );
        loop {
            if let Ok(mut stream) = connect(SLOW, to).await {
                let mut sent = stream.write_all(head.as_bytes()).await;
                self.bodies.fetch_add(1, Ordering::Relaxed);
                while sent.is_ok() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    sent = stream.write_all(b"{\"messages\": [").await;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Shows wrong keys in every form. Ends only if one of them is taken.
    async fn guess(self: Arc<Self>, to: SocketAddr, per_second: u32) {
        const FORMS: [&str; 4] = ["wrong-key-of-some-length-", "bk_0001020304050607.", "sbt_", ""];
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second.max(1));
        let mut connection = None;
        for (guess, form) in (0_u64..).zip(FORMS.iter().cycle()) {
            ticks.tick().await;
            let stream = match connection.take() {
                Some(stream) => Ok(stream),
                None => connect(GUESSING, to).await,
            };
            let Ok(mut stream) = stream else { continue };
            let head = format!(
                "GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \
                 {form}{guess:043}\r\n\r\n"
            );
            let mut answer = [0; 4096];
            let _ = stream.write_all(head.as_bytes()).await;
            let Ok(read @ 1..) = stream.read(&mut answer).await else { continue };
            if !answer[..read].starts_with(b"HTTP/1.1 4") {
                return;
            }
            self.wrong_keys.fetch_add(1, Ordering::Relaxed);
            connection = Some(stream);
        }
    }
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    // A small one is full soon.
    socket.set_recv_buffer_size(4096)?;
    socket.connect(to).await
}

/// Turns per second of so many users, from an address of their own. Every single turn succeeds, or it
/// is an error.
pub async fn turns_of_users(
    gateway: SocketAddr,
    key: &str,
    users: usize,
    length: Duration,
) -> Result<f64> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for user in 0..users {
        let client = reqwest::Client::builder().no_proxy().local_address(Some(USERS.into()));
        // Half of them come with a new connection each time.
        let client = client.pool_max_idle_per_host(user % 2).timeout(PATIENCE).build()?;
        let key = key.to_owned();
        tasks.spawn(async move {
            let say = async |session: Option<&str>| -> Result<Value> {
                let sbp = session.map_or(json!({}), |id| json!({ "session_id": id }));
                let messages = json!([{ "role": "user", "content": "echo hello" }]);
                let body = json!({ "model": "bench", "sbp": sbp, "messages": messages });
                let url = format!("http://{gateway}/v1/chat/completions");
                let response = client.post(url).bearer_auth(&key).json(&body).send().await?;
                Ok(response.error_for_status()?.json().await?)
            };
            let first = say(None).await.context("a user was not let in")?;
            let session = first["sbp"]["session_id"].as_str().context("no session")?.to_owned();
            let mut count = 1_u32;
            while begun.elapsed() < length {
                say(Some(&session)).await.context("a user's turn failed")?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut turns = 0;
    while let Some(ended) = tasks.join_next().await {
        turns += ended??;
    }
    Ok(f64::from(turns) / begun.elapsed().as_secs_f64())
}
