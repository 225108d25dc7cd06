//! What access costs: the time that a key takes on a cheap request, what users get done while
//! others flood the gateway, and what the audit takes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::audit;
use crate::flood::{Flood, FloodSize, turns_of_users};
use crate::gateway_process::Gateway;
use crate::load::median;
use crate::mock;
use crate::report::Report;

/// A request that does next to nothing besides checking who asks.
const CHEAP: &str = "/v1/models/bowline/offline";
/// Requests before the first measured one.
const WARM_UP: usize = 200;
const USERS: usize = 8;
const FLOOD: FloodSize =
    FloodSize { unread_connections: 2000, slow_bodies: 200, wrong_keys_per_second: 100 };

pub async fn run(length: Duration, report: &mut Report) -> Result<()> {
    let upstream = mock::Process::start().await?;
    report.doing("requests with and without a key");
    let folder = tempfile::tempdir()?;
    // Open, so that the same process answers who shows a key and who shows none.
    let open = [("BOWLINE_ACCESS_LOOPBACK", "open")];
    let gateway = Gateway::start_with(folder.path(), upstream.address, &open).await?;
    let key = new_key(&gateway, folder.path(), "ada").await?;
    let (mut keyless, mut with_key) = request_times(gateway.address, &key, length).await?;
    let (keyless, with_key) = (median(&mut keyless), median(&mut with_key));
    report.figure("auth_added_us_p50", (with_key.as_secs_f64() - keyless.as_secs_f64()) * 1e6);
    report.figure("keyless_request_us_p50", keyless.as_secs_f64() * 1e6);
    drop(gateway);

    report.doing("turns of users without a flood, and with one");
    let folder = tempfile::tempdir()?;
    let gateway = Gateway::start_with(folder.path(), upstream.address, &[]).await?;
    let ada = new_key(&gateway, folder.path(), "ada").await?;
    let mallory = new_key(&gateway, folder.path(), "mallory").await?;
    let turns = || turns_of_users(gateway.address, &ada, USERS, length);
    let before = turns().await?;
    let mut flood = Flood::start(gateway.address, FLOOD, &mallory);
    flood.risen().await?;
    let flooded = turns().await?;
    flood.wrong_keys()?;
    drop(flood);
    // Before and after, because sessions grow and disks have moods.
    let quiet = f64::midpoint(before, turns().await?);
    report.ratio("flood_vs_quiet", flooded / quiet);
    report.figure("quiet_turns_per_s", quiet);
    report.figure("flooded_turns_per_s", flooded);
    drop(gateway);
    audit::run(upstream.address, length, report).await
}

/// A new user's key.
async fn new_key(gateway: &Gateway, data: &Path, user: &str) -> Result<String> {
    let owners = std::fs::read_to_string(data.join("local.key"))?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let post = async |path: &str, body: Value| -> Result<Value> {
        let url = format!("http://{}{path}", gateway.address);
        let answer = client.post(url).bearer_auth(owners.trim()).json(&body).send().await?;
        Ok(answer.error_for_status()?.json().await?)
    };
    post("/v1/users", json!({ "name": user })).await?;
    let made = post("/v1/keys", json!({ "user": user, "name": "bench" })).await?;
    Ok(made["key"].as_str().context("no key")?.to_owned())
}

/// The times of a cheap request without a key and with one, in turns on two connections.
async fn request_times(
    gateway: SocketAddr,
    key: &str,
    length: Duration,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let mut keyless = Asking::new(gateway, "").await?;
    let mut with_key = Asking::new(gateway, &format!("Authorization: Bearer {key}\r\n")).await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..WARM_UP {
        keyless.ask().await?;
        with_key.ask().await?;
    }
    let begun = Instant::now();
    while begun.elapsed() < length {
        without.push(keyless.ask().await?);
        with.push(with_key.ask().await?);
    }
    Ok((without, with))
}

/// A connection that sends the same request again and again. By hand: a client's own time would be
/// most of what is measured.
struct Asking {
    stream: TcpStream,
    request: String,
    answer: Vec<u8>,
    /// The size of an answer, from the first one.
    length: usize,
}

impl Asking {
    async fn new(gateway: SocketAddr, header: &str) -> Result<Self> {
        let stream = TcpStream::connect(gateway).await?;
        stream.set_nodelay(true)?;
        let request = format!("GET {CHEAP} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        let mut asking = Self { stream, request, answer: Vec::new(), length: usize::MAX };
        asking.length = asking.first().await?;
        Ok(asking)
    }

    /// The size of the first answer.
    async fn first(&mut self) -> Result<usize> {
        self.stream.write_all(self.request.as_bytes()).await?;
        loop {
            ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the gateway hung up");
            let text = String::from_utf8_lossy(&self.answer);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            ensure!(head.starts_with("HTTP/1.1 200 "), "the gateway answered {head}");
            let header = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = header.context("an answer without a length")?.parse()?;
            if body.len() >= length {
                return Ok(head.len() + 4 + length);
            }
        }
    }

    async fn ask(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        self.answer.clear();
        self.stream.write_all(self.request.as_bytes()).await?;
        while self.answer.len() < self.length {
            ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the gateway hung up");
        }
        Ok(begun.elapsed())
    }
}
