//! Sessions that move between two gateways, bundles as fast as files, and a tracker on one core.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bowline_federation::{Credentials, MemoryPins, Peers, StaticPeer, SystemLookup, Target};
use bowline_gateway::identity_file;
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::{Announced, BaseUrl, FederationAction, GatewayId};
use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::gateway_process::{CHAT, Gateway};
use crate::load::{body, median};
use crate::relay::cores;
use crate::relay::server::Process;
use crate::report::Report;
use crate::surfaces::Door;
use crate::{mock, seed};

/// Runs of each operation; the median counts.
const TRIES: usize = 21;
/// Content ids that the tracker knows.
const KNOWN: usize = 1_000;
/// Look-ups under way at once.
const PARALLEL: usize = 16;

const NAMES: [&str; 2] = ["one", "two"];

/// Two gateways that know each other.
struct Pair {
    gateways: Vec<Gateway>,
    folders: Vec<PathBuf>,
    client: reqwest::Client,
}

pub async fn run(length: Duration, report: &mut Report) -> Result<()> {
    let upstream = mock::Process::start().await?;
    let folder = tempfile::tempdir()?;
    report.doing("writing sessions of 1,000 and 10,000 messages");
    let folders: Vec<_> = NAMES.iter().map(|name| folder.path().join(name)).collect();
    let mut doors = Vec::new();
    for folder in &folders {
        std::fs::create_dir_all(folder)?;
        doors.push(seed::sessions(folder, &[500, 500, 5_000]).await?);
    }
    let pair = Pair::start(folders, upstream.address).await?;
    let [thousand, other, ten] = &doors[0][..] else { anyhow::bail!("no sessions to measure") };

    report.doing("imports of 1,000 messages from the other gateway");
    let (mut imports, mut gaps) = (Vec::new(), Vec::new());
    let mut door = Door { id: thousand.id.clone(), token: thousand.token.clone() };
    for n in 0..TRIES {
        let (next, took) = pair.moved(n % 2, &door).await?;
        imports.push(took);
        door = next;
    }
    report.figure("import_1000_ms", milliseconds(&mut imports));

    report.doing("moves, until the other gateway answers a turn");
    let mut door = Door { id: other.id.clone(), token: other.token.clone() };
    for n in 0..TRIES {
        let token = pair.exported(n % 2, &door, json!({})).await?;
        let begun = Instant::now();
        door = pair.imported(1 - n % 2, &token).await?;
        pair.turn(1 - n % 2, &door).await?;
        gaps.push(begun.elapsed());
    }
    // An upper bound: the first gateway takes turns until it has confirmed.
    report.figure("move_gap_ms", milliseconds(&mut gaps));

    bundles(&pair, ten, folder.path(), report).await?;
    look_ups(&pair, folder.path(), length, report).await
}

impl Pair {
    async fn start(folders: Vec<PathBuf>, upstream: SocketAddr) -> Result<Self> {
        let held = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
        let at = [held[0].local_addr()?, held[1].local_addr()?];
        drop(held);
        let mut gateways = Vec::new();
        for (n, folder) in folders.iter().enumerate() {
            let peer = format!("{}=http://{}", NAMES[1 - n], at[1 - n]);
            let flags = ["--federation", "--gateway-id", NAMES[n], "--peer", &peer];
            let flags = flags.map(str::to_owned);
            gateways.push(Gateway::start_at(folder, upstream, at[n], &flags).await?);
        }
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { gateways, folders, client })
    }

    fn url(&self, n: usize) -> Result<BaseUrl> {
        Ok(format!("http://{}", self.gateways[n].address).parse()?)
    }

    async fn post(&self, n: usize, path: &str, key: Option<&str>, body: String) -> Result<Value> {
        let url = format!("http://{}{path}", self.gateways[n].address);
        let mut request = self.client.post(url).header("content-type", "application/json");
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = request.body(body).send().await?;
        let (status, text) = (response.status(), response.text().await?);
        ensure!(status.is_success(), "{path}: {status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// The roaming token of a session of that gateway.
    async fn exported(&self, n: usize, door: &Door, asked: Value) -> Result<String> {
        let path = format!("/v1/sbp/sessions/{}/export", door.id);
        let made = self.post(n, &path, Some(&door.token), asked.to_string()).await?;
        Ok(made["roaming_token"].as_str().context("no token")?.to_owned())
    }

    async fn imported(&self, n: usize, token: &str) -> Result<Door> {
        let asked = json!({ "roaming_token": token }).to_string();
        let made = self.post(n, "/v1/sbp/sessions/import", None, asked).await?;
        let text = |name: &str| made[name].as_str().map(str::to_owned).context("no session");
        Ok(Door { id: text("session_id")?, token: text("session_token")? })
    }

    /// Moves a session from that gateway to the other one; how long the import took.
    async fn moved(&self, n: usize, door: &Door) -> Result<(Door, Duration)> {
        let token = self.exported(n, door, json!({})).await?;
        let begun = Instant::now();
        let there = self.imported(1 - n, &token).await?;
        Ok((there, begun.elapsed()))
    }

    async fn turn(&self, n: usize, door: &Door) -> Result<()> {
        let sbp = json!({ "session_id": door.id }).to_string();
        let asked = body("bench", Some(&sbp), false);
        self.post(n, CHAT, Some(&door.token), asked).await.map(drop)
    }

    /// What asks in the name of that gateway.
    fn peers(&self, n: usize) -> Result<Peers> {
        let identity = identity_file::load(&self.folders[n])?.context("no identity")?;
        let (id, url) = (NAMES[n].parse()?, self.url(n)?);
        let me = Credentials { id, url, keys: Arc::new(identity.into()) };
        let pins = Arc::new(MemoryPins::default());
        Ok(Peers::new(me, Vec::new(), pins, Arc::new(SystemLookup))?)
    }
}

/// A bundle as its peer fetches it, beside the same bytes as a file of a plain server.
async fn bundles(pair: &Pair, door: &Door, folder: &Path, report: &mut Report) -> Result<()> {
    report.doing("bundles of 10,000 messages, and a file of the same size");
    let path = format!("/v1/sbp/sessions/{}/export", door.id);
    let asked = json!({ "for_gateway": NAMES[1] }).to_string();
    let made = pair.post(0, &path, Some(&door.token), asked).await?;
    let cid = made["bundle_cid"].as_str().context("no content id")?.to_owned();
    let (asking, asked_of): (Peers, GatewayId) = (pair.peers(1)?, NAMES[0].parse()?);
    let url = format!("http://{}/v1/sbp/bundles/{cid}", pair.gateways[0].address);
    let mut times = Vec::new();
    let mut bundle = Bytes::new();
    for _ in 0..TRIES {
        let token = asking.token(&asked_of, FederationAction::Bundle, &cid);
        let begun = Instant::now();
        let response = pair.client.get(&url).bearer_auth(token).send().await?;
        bundle = response.error_for_status()?.bytes().await?;
        times.push(begun.elapsed());
    }
    let file = folder.join("bundle.json");
    std::fs::write(&file, &bundle)?;
    let address = serve_file(file)?;
    let mut plain = Vec::new();
    for _ in 0..TRIES {
        let begun = Instant::now();
        let response = pair.client.get(format!("http://{address}/")).send().await?;
        let got = response.error_for_status()?.bytes().await?;
        plain.push(begun.elapsed());
        ensure!(got == bundle, "the file is another one");
    }
    let rate = |times: &mut [Duration]| bundle.len() as f64 / 1e6 / median(times).as_secs_f64();
    let (ours, theirs) = (rate(&mut times), rate(&mut plain));
    report.figure("bundle_mb", bundle.len() as f64 / 1e6);
    report.figure("bundle_mb_per_s", ours);
    report.figure("static_mb_per_s", theirs);
    report.ratio("bundle_vs_static", ours / theirs);
    Ok(())
}

/// A server that reads one file for each request, in a thread of its own.
fn serve_file(file: PathBuf) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                let file = file.clone();
                let answer = service_fn(move |_: hyper::Request<hyper::body::Incoming>| {
                    let file = file.clone();
                    async move {
                        let text = tokio::fs::read(file).await?;
                        Ok::<_, std::io::Error>(hyper::Response::new(Full::new(Bytes::from(text))))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
    });
    Ok(address)
}

/// Signed answers of a tracker on one core.
async fn look_ups(pair: &Pair, folder: &Path, length: Duration, report: &mut Report) -> Result<()> {
    report.doing("look-ups of a tracker on one core");
    cores::prepare(report);
    let peer = format!("{}={}", NAMES[0], pair.url(0)?);
    let mut command = cores::measured(&std::env::current_exe()?);
    command
        .args(["tracker", "run", "--json", "--listen", "127.0.0.1:0", "--peer", &peer, "--data"])
        .arg(folder.join("tracker"))
        .env("BOWLINE_LOG_LEVEL", "warn");
    let (_process, line) = Process::start(command)?;
    let ready: Value = serde_json::from_str(&line)?;
    let url: BaseUrl = ready["url"].as_str().context("no address")?.parse()?;
    let named = StaticPeer { id: "tracker".parse()?, url: url.clone(), key: None };
    let (target, peers) = (Target::named(&named), pair.peers(0)?);
    let cids: Vec<_> = (0..KNOWN).map(|n| Cid::of_bytes(&n.to_be_bytes())).collect();
    let expires_at = Timestamp::now().as_second() + 3600;
    let announced: Vec<_> = cids.iter().map(|cid| Announced { cid: *cid, expires_at }).collect();
    peers.announce(&target, &announced, &[]).await?;
    // Verified, before many are only counted.
    let seen = peers.look_up(&target, cids[0]).await?;
    ensure!(seen.gateways.len() == 1, "the tracker knows nobody");

    let (count, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut asking = tokio::task::JoinSet::new();
    for first in 0..PARALLEL {
        let (count, client, cids) = (Arc::clone(&count), pair.client.clone(), cids.clone());
        let url = url.clone();
        asking.spawn(async move {
            let mut at = first;
            while begun.elapsed() < length {
                let url = url.join(&format!("/v1/sbp/registry/{}", cids[at % KNOWN]));
                let answer = client.get(url).send().await?.error_for_status()?.bytes().await?;
                ensure!(answer.len() > 200, "an answer without a gateway");
                count.fetch_add(1, Ordering::Relaxed);
                at += PARALLEL;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked??;
    }
    let rate = count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    report.figure("tracker_lookups_per_s", rate);
    Ok(())
}

fn milliseconds(times: &mut [Duration]) -> f64 {
    median(times).as_secs_f64() * 1e3
}
