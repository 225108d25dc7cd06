//! The relay's memory for ten thousand idle clients that have sent a frame before.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context, Result};

use super::issuer::{self, Issuer};
use super::server::MeasuredServer;
use super::wire::{self, Shape};
use crate::report::Report;

const DAEMONS: u64 = 100;
/// Clients per daemon.
const CLIENTS: u64 = 100;

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
