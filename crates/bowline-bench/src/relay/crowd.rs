//! The relay's memory for idle clients that have sent a frame before: ten thousand of a hundred
//! daemons, and 4,000 that have a daemon each; and what of it is left after these have gone.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::issuer::{self, Issuer};
use super::server::MeasuredServer;
use super::wire::{self, Shape};
use crate::report::Report;

const DAEMONS: u64 = 100;
/// Clients per daemon.
const CLIENTS: u64 = 100;
/// Daemons with one client each.
const PAIRS: u64 = 4_000;
/// A relay returns freed memory to the system every few seconds.
const RETURN_PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn measure(issuer: &Issuer, report: &mut Report) -> Result<()> {
    report.doing("memory of idle pairs");
    let relay = MeasuredServer::relay(issuer)?;
    let mut open = Vec::new();
    // Warm-up: allocations that happen only once.
    connect_all(&relay, issuer, DAEMONS, 1, &mut open)?;
    let before = relay.process.memory()?;
    for daemon in 0..DAEMONS {
        connect_all(&relay, issuer, daemon, CLIENTS, &mut open)?;
    }
    let grown = relay.process.memory()? - before;
    let pairs = held(&relay, "bowline_relay_pairs{state=\"paired\"}")? - 1.0;
    let clients = held(&relay, "bowline_relay_connections{role=\"client\"}")?;
    let daemons = held(&relay, "bowline_relay_connections{role=\"daemon\"}")?;
    report.figure("idle_pair_kib", grown / pairs / 1024.0);
    report.figure("connections_held", clients + daemons);
    drop((open, relay));
    whole_pairs(issuer, report)
}

/// A pair of one daemon and one client, each with a connection of its own.
fn whole_pairs(issuer: &Issuer, report: &mut Report) -> Result<()> {
    report.doing("memory of daemons with one client each");
    let relay = MeasuredServer::relay(issuer)?;
    let mut open = Vec::new();
    connect_all(&relay, issuer, PAIRS, 1, &mut Vec::new())?;
    until_gone(&relay)?;
    let before = relay.process.memory()?;
    for daemon in 0..PAIRS {
        connect_all(&relay, issuer, daemon, 1, &mut open)?;
    }
    let pairs = held(&relay, "bowline_relay_pairs{state=\"paired\"}")?;
    let kib_a_pair = |memory: f64| (memory - before) / pairs / 1024.0;
    report.figure("relay_pair_kib", kib_a_pair(relay.process.memory()?));
    drop(open);
    until_gone(&relay)?;
    let (gone, mut least) = (Instant::now(), f64::INFINITY);
    while gone.elapsed() < RETURN_PATIENCE {
        least = relay.process.memory()?.min(least);
        std::thread::sleep(Duration::from_millis(100));
    }
    report.figure("relay_pair_left_kib", kib_a_pair(least));
    Ok(())
}

/// Waits until the relay has forgotten all who disconnected.
fn until_gone(relay: &MeasuredServer) -> Result<()> {
    let begun = Instant::now();
    for name in
        ["bowline_relay_connections{role=\"daemon\"}", "bowline_relay_connections{role=\"client\"}"]
    {
        while held(relay, name)? > 0.0 {
            if begun.elapsed() > Duration::from_secs(30) {
                bail!("the relay still has connections that were closed");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Connects a daemon and its clients; each client sends and receives a frame.
fn connect_all(
    relay: &MeasuredServer,
    issuer: &Issuer,
    daemon: u64,
    clients: u64,
    open: &mut Vec<TcpStream>,
) -> Result<()> {
    let name = format!("daemon-{daemon}");
    let shape = Shape::relayed(1024);
    let mut arrived = vec![0; shape.arrives];
    let mut socket = wire::connect(relay.address, &issuer.daemon(&name))?;
    wire::upgraded(&mut socket)?;
    wire::until_online(relay.address, &issuer.daemon(&name))?;
    for client in 0..clients {
        let session = issuer::session(daemon * CLIENTS + client + 1)?;
        let mut stream = wire::connect(relay.address, &issuer.client(&name, session))?;
        wire::upgraded(&mut stream)?;
        let frame = shape.frame(session);
        stream.write_all(&frame)?;
        socket.read_exact(&mut arrived).context("a client's frame did not arrive")?;
        socket.write_all(&frame)?;
        stream.read_exact(&mut arrived).context("a daemon's frame did not arrive")?;
        open.push(stream);
    }
    open.push(socket);
    Ok(())
}

/// A metric of the relay.
fn held(relay: &MeasuredServer, name: &str) -> Result<f64> {
    let page = wire::get(relay.address, "/metrics")?;
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.context("the relay has no such metric")?.trim().parse()?)
}
