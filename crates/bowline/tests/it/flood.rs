//! Users at one address work while others flood the same gateway: connections that are never read,
//! bodies that do not end, and wrong keys.
//!
//! All from this machine, by other loopback addresses than 127.0.0.1: to the limits for each address
//! these are as foreign as any other.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::bounded::memory;
use crate::process::{DEADLINE, Process, session_of, turn};

const OWNERS: &str = "the-owners-key-of-this-test";
/// Whose connections are never read, whose bodies do not end, who guesses keys; and the users.
const UNREADING: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const USERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const SLOW: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
const GUESSING: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);

/// How large the flood is.
struct Size {
    connections: usize,
    per_address: &'static str,
    slow_bodies: usize,
    guesses_per_second: u32,
    users: usize,
    length: Duration,
}

impl Size {
    fn chosen() -> Self {
        let small = Self {
            connections: 128,
            per_address: "64",
            slow_bodies: 20,
            guesses_per_second: 100,
            users: 4,
            length: Duration::from_millis(1500),
        };
        match std::env::var_os("BOWLINE_SOAK").is_some() {
            false => small,
            true => Self {
                connections: 2000,
                per_address: "1024",
                slow_bodies: 200,
                users: 8,
                length: Duration::from_secs(20),
                ..small
            },
        }
    }
}

/// Who floods, and how often something of it happened.
#[derive(Default)]
struct Flood {
    opened: AtomicU64,
    bodies: AtomicU64,
    refused: AtomicU64,
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    // A small one is full soon.
    socket.set_recv_buffer_size(4096)?;
    socket.connect(to).await
}

impl Flood {
    /// Asks for much and reads nothing, again and again.
    async fn never_read(self: Arc<Self>, to: SocketAddr) {
        let asked = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(16);
        loop {
            if let Ok(mut stream) = connect(UNREADING, to).await {
                let _ = stream.write_all(asked.as_bytes()).await;
                self.opened.fetch_add(1, Ordering::Relaxed);
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
        loop {
            if let Ok(mut stream) = connect(SLOW, to).await {
                let head = format!(
                    "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \
                     {key}\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
                );
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

    /// Shows wrong keys in every form.
    async fn guess(self: Arc<Self>, to: SocketAddr, per_second: u32) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
        let mut connection = None;
        for guess in 0_u64.. {
            ticks.tick().await;
            let stream = match connection.take() {
                Some(stream) => Ok(stream),
                None => connect(GUESSING, to).await,
            };
            let Ok(mut stream) = stream else { continue };
            let form = ["wrong-key-of-some-length-", "bk_0001020304050607.", "sbt_", ""];
            let key = format!("{}{guess:043}", form[guess as usize % form.len()]);
            let head = format!(
                "GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
            );
            let mut answer = [0; 4096];
            let _ = stream.write_all(head.as_bytes()).await;
            let Ok(read @ 1..) = stream.read(&mut answer).await else { continue };
            let answer = String::from_utf8_lossy(&answer[..read]);
            assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
            self.refused.fetch_add(1, Ordering::Relaxed);
            connection = Some(stream);
        }
    }
}

async fn made(gateway: &Process, path: &str, body: Value) -> Value {
    let request = reqwest::Client::new().post(format!("{}{path}", gateway.url));
    let response = request.bearer_auth(OWNERS).json(&body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED, "{path}");
    response.json().await.unwrap()
}

async fn key_of(gateway: &Process, user: &str) -> String {
    made(gateway, "/v1/users", json!({ "name": user })).await;
    let key = made(gateway, "/v1/keys", json!({ "user": user, "name": "laptop" })).await;
    key["key"].as_str().unwrap().to_owned()
}

/// How many turns the users took in that time. Every single one succeeds.
async fn turns(gateway: &Process, key: &str, size: &Size) -> f64 {
    let until = Instant::now() + size.length;
    let mut users = JoinSet::new();
    for user in 0..size.users {
        let url = format!("{}/v1/chat/completions", gateway.url);
        let client = reqwest::Client::builder().no_proxy().local_address(Some(USERS.into()));
        // Half of them come with a new connection each time.
        let client = client.pool_max_idle_per_host(user % 2).timeout(DEADLINE).build().unwrap();
        let key = key.to_owned();
        users.spawn(async move {
            let say = async |session: Option<&str>| {
                let request =
                    client.post(&url).bearer_auth(&key).json(&turn(session, "echo hello"));
                let response = request.send().await.expect("a user is let in");
                assert_eq!(response.status(), StatusCode::OK);
                response.json::<Value>().await.unwrap()
            };
            let session = session_of(&say(None).await);
            let mut count = 1;
            while Instant::now() < until {
                say(Some(&session)).await;
                count += 1;
            }
            count
        });
    }
    let taken: u32 = users.join_all().await.into_iter().sum();
    f64::from(taken) / size.length.as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_users_work_while_another_address_floods_the_gateway() {
    bowline_net::descriptors::raise();
    let size = Size::chosen();
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        ("BOWLINE_AUTH_API_KEYS", OWNERS),
        ("BOWLINE_LIMITS_CONNECTIONS_PER_ADDRESS", size.per_address),
    ];
    let gateway = Process::start_at(folder.path(), "127.0.0.1:0", &settings);
    let (ada, mallory) = (key_of(&gateway, "ada").await, key_of(&gateway, "mallory").await);
    let quiet = turns(&gateway, &ada, &size).await;
    let (before, _) = memory(&gateway);

    let to = gateway.address().parse().unwrap();
    let flood = Arc::new(Flood::default());
    let mut flooding = JoinSet::new();
    for _ in 0..size.connections {
        flooding.spawn(Arc::clone(&flood).never_read(to));
    }
    for _ in 0..size.slow_bodies {
        flooding.spawn(Arc::clone(&flood).send_slowly(to, mallory.clone()));
    }
    flooding.spawn(Arc::clone(&flood).guess(to, size.guesses_per_second));
    let begun = Instant::now();
    let reached = |count: &AtomicU64, most: usize| count.load(Ordering::Relaxed) >= most as u64;
    while !(reached(&flood.opened, size.connections)
        && reached(&flood.bodies, size.slow_bodies)
        && reached(&flood.refused, 10))
    {
        assert!(begun.elapsed() < DEADLINE, "the flood does not rise");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let flooded = turns(&gateway, &ada, &size).await;
    let files = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    let refused = flood.refused.load(Ordering::Relaxed);
    assert!(flooding.try_join_next().is_none(), "the flood ended before its time");
    let grown = memory(&gateway).1.saturating_sub(before);
    eprintln!(
        "{} connections never read, {} slow bodies, {refused} wrong keys: {quiet:.0} turns/s quiet, \
         {flooded:.0} flooded ({:.2}), {} MiB more",
        size.connections,
        size.slow_bodies,
        flooded / quiet,
        grown >> 20
    );
    let places: usize = size.per_address.parse().unwrap();
    let most = places + size.slow_bodies + size.users + 60;
    assert!(files > places / 2 && files < most, "{files} open files, where {most} are allowed");
    // Far below what is usual: a busy machine alone does not get there.
    assert!(flooded > quiet / 20.0, "{flooded:.0} turns/s where there were {quiet:.0}");
    let allowed = (48 << 20) + places * (64 << 10) + size.slow_bodies * (64 << 10);
    assert!(grown < allowed, "{} MiB, where {} are allowed", grown >> 20, allowed >> 20);
}
