//! A million records: how much memory the tracker takes, and how many signed answers it gives a second.
//!
//! Two processes: this one announces and looks up, and a child of it is the tracker, so that memory and
//! CPU time are the tracker's alone. The child is bound to one core. `BOWLINE_SOAK=1` for a million
//! records; without it a few thousand, which shows that the test works.
//!
//! Without the harness, because the child is this program again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::{
    Announced, Announcement, BaseUrl, Endpoints, Manifest, RegistryAnswer, Role,
};
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_tracker::{Tracker, TrackerConfig};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Set in the child: the tracker's folder.
const SERVE: &str = "BOWLINE_TRACKER_SERVE";
const GATEWAY: &str = "BOWLINE_TRACKER_GATEWAY";
const TRACKER_KEY: u8 = 200;
const CONNECTIONS: u64 = 16;
/// What a tracker with a million records may take.
const MOST_MEMORY: u64 = 500 << 20;
const LEAST_ANSWERS: f64 = 5_000.0;

fn main() {
    match std::env::var_os(SERVE) {
        Some(folder) => serve(Path::new(&folder)),
        None => measure(),
    }
}

fn identity(n: u8) -> GatewayIdentity {
    GatewayIdentity::from_seed(&[n; 32])
}

fn cid(n: u64) -> Cid {
    Cid::of_bytes(&n.to_be_bytes())
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

/// The child: a tracker, until the parent closes its stdin.
#[tokio::main]
async fn serve(folder: &Path) {
    let gateway = std::env::var(GATEWAY).unwrap();
    let mut config = TrackerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        id: "t".parse().unwrap(),
        peers: [("a".parse().unwrap(), gateway.parse().unwrap())].into(),
        ..TrackerConfig::default()
    };
    config.limits.records_per_gateway = config.limits.records;
    let bound = Tracker::bind(config, folder, identity(TRACKER_KEY), Vec::new()).await.unwrap();
    println!("{}", bound.local_addr());
    let closed = tokio::task::spawn_blocking(|| {
        let _ = std::io::stdin().read(&mut [0]);
    });
    bound.run(closed).await;
}

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::main]
async fn measure() {
    let soak = std::env::var_os("BOWLINE_SOAK").is_some();
    let records: u64 = if soak { 1_000_000 } else { 3_000 };
    let lookups: u64 = if soak { 200_000 } else { 2_000 };
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway().await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(SERVE, folder.path())
        .env(GATEWAY, gateway.as_str())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let (child, address) = (Serving(child), address.trim().to_owned());
    let pid = child.0.id();

    let began = Instant::now();
    announce_all(&address, &gateway, records).await;
    let announcing = began.elapsed();
    let after_announcing = memory(pid, "VmRSS");
    let disk: u64 = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();

    on_one_core(pid);
    // Once to warm up, then measured.
    look_up_all(&address, records, lookups / 10).await;
    let (began, cpu) = (Instant::now(), cpu_seconds(pid));
    look_up_all(&address, records, lookups).await;
    let (elapsed, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds(pid) - cpu);
    let (rss, most) = (memory(pid, "VmRSS"), memory(pid, "VmHWM"));
    let per_cpu_second = lookups as f64 / cpu;
    println!(
        "tracker: {records} records, announced in {:.1} s; {} MiB on disk; memory {} MiB after \
         announcing, {} MiB after looking up, {} MiB at most; {:.0} signed look-ups/s by the clock, \
         {per_cpu_second:.0} for each second of its core",
        announcing.as_secs_f64(),
        disk >> 20,
        after_announcing >> 20,
        rss >> 20,
        most >> 20,
        lookups as f64 / elapsed,
    );
    assert!(most < MOST_MEMORY, "{most} bytes of memory");
    if !cfg!(debug_assertions) {
        assert!(per_cpu_second >= LEAST_ANSWERS, "{per_cpu_second} look-ups a second");
    }
}

/// The manifest of gateway `a`.
async fn gateway() -> BaseUrl {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: BaseUrl = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let manifest = Manifest {
        gateway_id: "a".parse().unwrap(),
        gateway_name: String::new(),
        role: Role::Gateway,
        key: identity(1).public(),
        url: url.clone(),
        endpoints: Endpoints::default(),
        issued_at: now(),
        previous: Vec::new(),
    };
    let text = manifest.sign(&identity(1));
    let router = Router::new().route("/.well-known/sbp", get(async move || text));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn announce_all(address: &str, gateway: &BaseUrl, records: u64) {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (next, gateway, mut http) =
            (Arc::clone(&next), gateway.clone(), Http::connect(address).await);
        tasks.spawn(async move {
            loop {
                let from = next.fetch_add(1_000, Ordering::Relaxed);
                if from >= records {
                    return;
                }
                let expires_at = now() + 24 * 3600 - 10;
                let cids = from..(from + 1_000).min(records);
                let announcement = Announcement {
                    gateway_id: "a".parse().unwrap(),
                    url: gateway.clone(),
                    cids: cids.map(|n| Announced { cid: cid(n), expires_at }).collect(),
                    withdraw: Vec::new(),
                    issued_at: now(),
                };
                let body = announcement.sign(&identity(1));
                let head = format!(
                    "POST /v1/sbp/registry HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let (status, said) = http.ask(&format!("{head}{body}")).await;
                assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
            }
        });
    }
    tasks.join_all().await;
}

async fn look_up_all(address: &str, records: u64, lookups: u64) {
    let mut tasks = tokio::task::JoinSet::new();
    for connection in 0..CONNECTIONS {
        let mut http = Http::connect(address).await;
        tasks.spawn(async move {
            let (tracker, key) = ("t".parse().unwrap(), identity(TRACKER_KEY).public());
            let mut random = connection;
            for n in 0..lookups.div_ceil(CONNECTIONS) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let wanted = cid((random >> 33) % records);
                let (status, text) = http
                    .ask(&format!("GET /v1/sbp/registry/{wanted} HTTP/1.1\r\nhost: t\r\n\r\n"))
                    .await;
                assert_eq!(status, 200);
                // Verifying all of them would measure this process.
                if n % 50 == 0 {
                    let answer =
                        RegistryAnswer::read(&text, &tracker, &key, wanted, Timestamp::now());
                    assert_eq!(answer.unwrap().gateways.len(), 1);
                }
            }
        });
    }
    tasks.join_all().await;
}

/// One connection, kept, with as little of a client as there can be.
struct Http {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Http {
    async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    async fn ask(&mut self, request: &str) -> (u16, Vec<u8>) {
        self.stream.write_all(request.as_bytes()).await.unwrap();
        self.buffer.clear();
        let asking = tokio::time::timeout(Duration::from_secs(60), self.answer());
        asking.await.expect("the tracker answers")
    }

    async fn answer(&mut self) -> (u16, Vec<u8>) {
        let mut end = None;
        loop {
            assert_ne!(self.stream.read_buf(&mut self.buffer).await.unwrap(), 0);
            if end.is_none() {
                end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            }
            let Some(end) = end else { continue };
            let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            if self.buffer.len() >= end + 4 + length {
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                return (status, self.buffer[end + 4..].to_vec());
            }
        }
    }
}

/// Binds all threads of the tracker to the first core, where the machine lets us.
fn on_one_core(pid: u32) {
    let mut taskset = Command::new("taskset");
    let bound = taskset.args(["-a", "-p", "-c", "0", &pid.to_string()]).stdout(Stdio::null());
    if !bound.status().is_ok_and(|status| status.success()) {
        println!("the tracker could not be bound to one core");
    }
}

/// A line of /proc/PID/status, in bytes.
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// The CPU time of all threads of a process, user and system, in seconds.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    // A hundred ticks a second on every Linux.
    ticks as f64 / 100.0
}
