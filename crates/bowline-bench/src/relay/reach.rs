//! A gateway that is reached through a relay, compared with the same gateway reached directly: relay with
//! control plane, gateway and a device's local port are processes, as a user runs them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::ROUNDS;
use super::ends::{bowline, pair, start_relay, user_key, with_key};
use super::server::Process;
use crate::load::{self, PARALLEL, ServerUnderLoad};
use crate::report::Report;
use crate::rounds::{middle, quantile, ratio};

/// Turns measured one after the other, each way in each round.
const TURNS: usize = 100;
/// How often the relay is killed; once in a short run.
const KILLS: usize = 7;
/// How long the relay is away. Both ends have noticed by then.
const AWAY: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(30);
/// The model of the gateway's built-in agent.
const MODEL: &str = "bowline/offline";

pub(super) fn measure(length: Duration, report: &mut Report) -> Result<()> {
    report.doing("a gateway through a relay");
    let mut home = Home::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(home.turns(report))?;
    runtime.block_on(home.requests(length, report))?;
    runtime.block_on(home.reads(length, report))?;
    let kills = if length < Duration::from_secs(2) { 1 } else { KILLS };
    home.resumes(kills, report)
}

/// All processes, and the two ways to the gateway.
struct Home {
    folder: TempDir,
    relay: Option<Process>,
    relay_address: SocketAddr,
    direct: SocketAddr,
    through: SocketAddr,
    _gateway: Process,
    _device: Process,
}

impl Home {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let relay_address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let relay = start_relay(&folder, relay_address, relay_address)?;
        let data = |name: &str| folder.path().join(name);
        let key = user_key(&folder)?;
        let mut gateway = bowline()?;
        gateway.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--data"]);
        gateway.arg(data("gateway")).args(["--relay", &format!("http://{relay_address}")]);
        gateway.env("BOWLINE_OFFLINE_PACE", "0ms");
        let (gateway, line) = Process::start(with_key(gateway, &key))?;
        let ready: Value = serde_json::from_str(&line)?;
        let url = ready["url"].as_str().context("no address")?;
        let direct = url.trim_start_matches("http://").parse()?;
        let (device, through) = pair(data("gateway"), data("device"))?;
        Ok(Self {
            folder,
            relay: Some(relay),
            relay_address,
            direct,
            through,
            _gateway: gateway,
            _device: device,
        })
    }

    /// The time that the relay adds to a turn of a session, one at a time.
    async fn turns(&self, report: &mut Report) -> Result<()> {
        let (near, far) = (ServerUnderLoad::at(self.direct)?, ServerUnderLoad::at(self.through)?);
        let body = load::body(MODEL, Some("{}"), false);
        let (mut directly, mut added) = (Vec::new(), Vec::new());
        for server in [&near, &far] {
            server.ask(&body).await?;
        }
        for _ in 0..ROUNDS {
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..TURNS {
                for (server, times) in [&near, &far].into_iter().zip(&mut times) {
                    let begun = Instant::now();
                    server.ask(&body).await?;
                    times.push(begun.elapsed().as_secs_f64() * 1e3);
                }
            }
            let [mut near, mut far] = times;
            added.push(middle(&mut far) - middle(&mut near));
            directly.push(middle(&mut near));
        }
        report.figure("turn_via_relay_added_ms_p50", middle(&mut added));
        report.figure("turn_without_relay_ms_p50", middle(&mut directly));
        Ok(())
    }

    /// Turns per second, with many connections.
    async fn requests(&self, length: Duration, report: &mut Report) -> Result<()> {
        let (near, far) = (ServerUnderLoad::at(self.direct)?, ServerUnderLoad::at(self.through)?);
        let body = load::body(MODEL, Some("{}"), false);
        let round = length / ROUNDS as u32;
        let (mut directly, mut relayed) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            directly.push(load::requests(&near, &body, round).await?);
            relayed.push(load::requests(&far, &body, round).await?);
        }
        report.ratio("sbp_request_vs_direct", ratio(&relayed, &directly));
        report.figure("sbp_request_relayed_per_s", middle(&mut relayed));
        report.figure("sbp_request_direct_per_s", middle(&mut directly));
        Ok(())
    }

    /// The same for requests that take the gateway next to no time: what the way itself costs.
    async fn reads(&self, length: Duration, report: &mut Report) -> Result<()> {
        let round = length / ROUNDS as u32;
        let (mut directly, mut relayed) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            directly.push(reads(self.direct, round).await?);
            relayed.push(reads(self.through, round).await?);
        }
        report.ratio("sbp_read_vs_direct", ratio(&relayed, &directly));
        report.figure("sbp_read_relayed_per_s", middle(&mut relayed));
        report.figure("sbp_read_direct_per_s", middle(&mut directly));
        Ok(())
    }

    /// From the relay's return to the next byte of a connection that was open all the time.
    fn resumes(&mut self, kills: usize, report: &mut Report) -> Result<()> {
        report.doing("resuming after the relay was killed");
        let mut times = Vec::new();
        for number in 0..kills {
            // The back-off of both ends starts anew after a steady connection.
            if number > 0 {
                std::thread::sleep(STEADY);
            }
            let mut open = TcpStream::connect(self.through)?;
            open.set_read_timeout(Some(PATIENCE))?;
            ask(&mut open)?;
            drop(self.relay.take());
            std::thread::sleep(AWAY);
            self.relay = Some(start_relay(&self.folder, self.relay_address, self.relay_address)?);
            let back = Instant::now();
            ask(&mut open)?;
            times.push(back.elapsed().as_secs_f64() * 1e3);
        }
        report.figure("resume_ms_p50", middle(&mut times));
        report.figure("resume_ms_worst", quantile(&mut times, 1.0));
        Ok(())
    }
}

/// Lists of the newest session per second, with many connections.
async fn reads(address: SocketAddr, length: Duration) -> Result<f64> {
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(PARALLEL).build()?;
    let url = format!("http://{address}/v1/sessions?limit=1");
    let begun = Instant::now();
    let mut readers = JoinSet::new();
    for _ in 0..PARALLEL {
        let (client, url) = (client.clone(), url.clone());
        readers.spawn(async move {
            let mut count = 0;
            while begun.elapsed() < length {
                client.get(&url).send().await?.error_for_status()?.bytes().await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut count = 0;
    while let Some(read) = readers.join_next().await {
        count += read??;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

/// One request on a connection that stays open.
fn ask(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.ends_with(b"}") {
        let count = stream.read(&mut piece)?;
        ensure!(count > 0, "the connection ended");
        answer.extend_from_slice(&piece[..count]);
    }
    ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    Ok(())
}

const STEADY: Duration = Duration::from_secs(11);
