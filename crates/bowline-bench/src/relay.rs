//! A relay under load, compared with a TCP forwarder and a WebSocket proxy in the same run.
//!
//! The measured server runs on one core, the generator on the other, with blocking sockets and
//! prepared frames, so that the generator is not the bottleneck. All servers get the same bytes;
//! rounds alternate, and the median ratio counts, because a machine is never quite idle.

pub(crate) mod cores;
mod crowd;
mod delay;
mod ends;
mod forward;
mod handshakes;
mod hops;
mod issuer;
mod nginx;
mod path;
mod reach;
mod seal;
pub(crate) mod server;
mod ssh;
mod tunnel;
mod wire;

use std::time::Duration;

use anyhow::{Result, bail};
use bowline_sbrp::frame::HEADER_LEN;

use self::issuer::Issuer;
use self::nginx::Nginx;
use self::path::Path;
use self::server::{MeasuredServer, Process};
use self::wire::Shape;
use crate::report::Report;
use crate::rounds::{middle, ratio};

pub use self::forward::serve as forward;
pub use self::hops::{Hop, serve as hop};

/// Rounds; in each, every server is measured once.
const ROUNDS: usize = 5;
/// Clients that send concurrently, each to its own daemon.
const PAIRS: usize = 4;

const PARTS: [&str; 7] = ["frames", "latency", "idle", "handshakes", "seal", "reach", "tunnel"];

/// Runs the named parts, or all. Blocks: not to be called from async code.
pub fn run(length: Duration, only: &[String], report: &mut Report) -> Result<()> {
    if let Some(unknown) = only.iter().find(|part| !PARTS.contains(&part.as_str())) {
        bail!("there is no part `{unknown}`; the parts are {}", PARTS.join(", "));
    }
    let wanted = |part: &str| only.is_empty() || only.iter().any(|o| o == part);
    cores::prepare(report);
    let issuer = Issuer::start()?;
    if wanted("frames") {
        frames(&issuer, length, report)?;
    }
    if wanted("latency") {
        latency(&issuer, report)?;
    }
    if wanted("idle") {
        crowd::measure(&issuer, report)?;
    }
    if wanted("handshakes") {
        handshakes::measure(&issuer, report)?;
    }
    if wanted("seal") {
        seal::measure(report)?;
    }
    if wanted("reach") {
        reach::measure(length, report)?;
    }
    if wanted("tunnel") {
        tunnel::measure(length, report)?;
    }
    Ok(())
}

/// Frames and bytes per second, one way: from clients to their daemons.
fn frames(issuer: &Issuer, length: Duration, report: &mut Report) -> Result<()> {
    let relay = MeasuredServer::relay(issuer)?;
    let forwarder = MeasuredServer::forwarder()?;
    let nginx = Nginx::start(report)?;
    let round = length / ROUNDS as u32;
    for (name, payload) in [("frames_64", 64), ("bytes_16k", 16 << 10)] {
        report.doing(name);
        let (mut tcp, mut ours, mut proxy) = (Rates::default(), Rates::default(), Rates::default());
        for turn in 0..ROUNDS {
            let copied = Shape::through(payload);
            let paths = pairs(|_| Path::through(forwarder.address, &forwarder.behind))?;
            tcp.take(&forwarder.process, &paths, copied, round)?;
            let session = |pair| (turn * PAIRS + pair) as u64 + 1;
            let paths = pairs(|pair| Path::relay(&relay, issuer, session(pair)))?;
            ours.take(&relay.process, &paths, Shape::relayed(payload), round)?;
            if let Some(nginx) = &nginx {
                let paths = pairs(|_| Path::proxied(nginx.address, &nginx.behind))?;
                proxy.take(&nginx.process, &paths, copied, round)?;
            }
        }
        report.ratio(&format!("{name}_vs_tcp"), ratio(&ours.per_s, &tcp.per_s));
        if name == "frames_64" {
            let there = nginx.is_some().then(|| ratio(&ours.per_s, &proxy.per_s));
            report.ratio_if("frames_64_vs_nginx", there);
        }
        let (unit, each) = match name {
            "frames_64" => ("per_s", 1.0),
            _ => ("mb_per_s", (payload + HEADER_LEN) as f64 / 1e6),
        };
        for (who, mut rates) in [("relay", ours), ("tcp", tcp), ("nginx", proxy)] {
            if !rates.per_s.is_empty() {
                report.figure(&format!("{name}_{who}_{unit}"), middle(&mut rates.per_s) * each);
                report.figure(&format!("{name}_{who}_cpu_ns"), middle(&mut rates.cpu_ns));
            }
        }
    }
    Ok(())
}

fn pairs(path: impl Fn(usize) -> Result<Path>) -> Result<Vec<Path>> {
    (0..PAIRS).map(path).collect()
}

/// The results of one server, by round.
#[derive(Debug, Default)]
struct Rates {
    /// Frames per second.
    per_s: Vec<f64>,
    /// CPU time per frame: independent of other load on the machine.
    cpu_ns: Vec<f64>,
}

impl Rates {
    fn take(
        &mut self,
        process: &Process,
        paths: &[Path],
        shape: Shape,
        length: Duration,
    ) -> Result<()> {
        let before = process.cpu()?;
        let (frames, took) = path::flood(paths, shape, length)?;
        let used = process.cpu()? - before;
        self.per_s.push(frames as f64 / took.as_secs_f64());
        self.cpu_ns.push(used.as_secs_f64() * 1e9 / frames as f64);
        Ok(())
    }
}

/// The latency of single frames, minus the latency without a server in between.
fn latency(issuer: &Issuer, report: &mut Report) -> Result<()> {
    const FRAMES: usize = 4000;
    report.doing("latency");
    let relay = MeasuredServer::relay(issuer)?;
    let forwarder = MeasuredServer::forwarder()?;
    let nothing = std::net::TcpListener::bind("127.0.0.1:0")?;
    let (mut direct, mut tcp, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..ROUNDS {
        let path = Path::through(nothing.local_addr()?, &nothing)?;
        direct.push(path::one_at_a_time(path, Shape::through(64), FRAMES)?);
        let path = Path::through(forwarder.address, &forwarder.behind)?;
        tcp.push(path::one_at_a_time(path, Shape::through(64), FRAMES)?);
        let path = Path::relay(&relay, issuer, turn as u64 + 1)?;
        ours.push(path::one_at_a_time(path, Shape::relayed(64), FRAMES)?);
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let all = |rounds: &[Vec<Duration>]| -> Vec<f64> {
            rounds.iter().map(|times| quantile(times, share).as_secs_f64() * 1e6).collect()
        };
        let base = middle(&mut all(&direct));
        let added = |rounds: &[Vec<Duration>]| -> Vec<f64> {
            all(rounds).iter().map(|time| (time - base).max(0.0)).collect()
        };
        let (mut ours, mut tcp) = (added(&ours), added(&tcp));
        report.ratio(&format!("latency_{name}_vs_tcp"), ratio(&ours, &tcp));
        report.figure(&format!("latency_{name}_relay_us"), middle(&mut ours));
        report.figure(&format!("latency_{name}_tcp_us"), middle(&mut tcp));
        report.figure(&format!("latency_{name}_direct_us"), base);
    }
    Ok(())
}

/// A quantile of sorted times.
fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_measured() {
        let times: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(quantile(&times, 0.5), Duration::from_micros(51));
        assert_eq!(quantile(&times, 0.99), Duration::from_micros(100));
        assert_eq!(quantile(&times[..1], 0.99), Duration::from_micros(1));
    }
}
