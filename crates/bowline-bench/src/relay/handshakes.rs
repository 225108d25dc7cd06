//! Clients that connect, do the handshake with their daemon and disconnect: token, upgrade, and the
//! protocol's handshake with its cryptography at both ends.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bowline_sbrp::frame::Frame;
use bowline_sbrp::handshake::{self, AwaitAccept, Ephemeral, Trust};
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::identity::{IdentityKey, IdentitySecret};

use super::issuer::{self, Issuer};
use super::server::MeasuredServer;
use super::{ROUNDS, middle, wire};
use crate::report::Report;

const DAEMONS: usize = 4;
/// Concurrent clients.
const CLIENTS: usize = 16;
/// Connections per round.
const CONNECTS: u64 = 2000;

pub(super) fn measure(issuer: &Issuer, report: &mut Report) -> Result<()> {
    report.doing("connects with a handshake");
    let relay = MeasuredServer::relay(issuer)?;
    let mut daemons = Vec::new();
    for number in 0..DAEMONS {
        daemons.push(EchoDaemon::connect(&relay, issuer, number)?);
    }
    let mut rates = Vec::new();
    for round in 0..ROUNDS as u64 {
        // Tokens are signed beforehand: that is the control plane's work.
        let visits: Result<Vec<Visit>> = (0..CONNECTS)
            .map(|number| {
                let session = issuer::session(round * CONNECTS + number + 1)?;
                let daemon = &daemons[number as usize % DAEMONS];
                let token = issuer.client(daemon.id.as_str(), session);
                Ok(Visit { token, session, daemon: daemon.id.clone(), key: daemon.key })
            })
            .collect();
        let visits = Mutex::new(visits?);
        let begun = Instant::now();
        thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|_| scope.spawn(|| come_and_go(relay.address, &visits))).collect();
            clients
                .into_iter()
                .try_for_each(|client| client.join().ok().context("a client thread panicked")?)
        })?;
        rates.push(CONNECTS as f64 / begun.elapsed().as_secs_f64());
    }
    report.figure("handshakes_per_s", middle(&mut rates));
    Ok(())
}

/// A daemon that only answers handshakes.
struct EchoDaemon {
    id: DaemonId,
    key: IdentityKey,
}

impl EchoDaemon {
    fn connect(relay: &MeasuredServer, issuer: &Issuer, number: usize) -> Result<Self> {
        let id = DaemonId::new(format!("daemon-{number}"));
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let identity = IdentitySecret::from_seed(&seed);
        let key = identity.public();
        let token = issuer.daemon(id.as_str());
        let mut stream = wire::connect(relay.address, &token)?;
        wire::upgraded(&mut stream)?;
        wire::until_online(relay.address, &token)?;
        let own = id.clone();
        thread::spawn(move || answer(&own, &identity, &stream));
        Ok(Self { id, key })
    }
}

/// Answers handshakes until the relay disconnects. Disconnects of clients are ignored.
fn answer(id: &DaemonId, identity: &IdentitySecret, stream: &TcpStream) -> Result<()> {
    let mut from = BufReader::new(stream);
    loop {
        let message = wire::read_message(&mut from)?;
        if let Frame::HandshakeInit { session, payload } = Frame::decode(message)? {
            let answer = handshake::answer(session, &payload, id, identity, ephemeral()?)?;
            (&mut &*stream).write_all(&wire::masked(&answer.accept.encode()))?;
        }
    }
}

/// What a client needs for one session.
struct Visit {
    token: String,
    session: SessionId,
    daemon: DaemonId,
    key: IdentityKey,
}

fn come_and_go(relay: SocketAddr, visits: &Mutex<Vec<Visit>>) -> Result<()> {
    loop {
        let next = visits.lock().ok().context("a client thread panicked")?.pop();
        let Some(visit) = next else { return Ok(()) };
        let mut stream = wire::connect(relay, &visit.token)?;
        wire::upgraded(&mut stream)?;
        let (waiting, init) = AwaitAccept::start(visit.session, visit.daemon, ephemeral()?);
        stream.write_all(&wire::masked(&init.encode()))?;
        let Frame::HandshakeAccept { payload, .. } =
            Frame::decode(wire::read_message(&mut stream)?)?
        else {
            bail!("no answer to a handshake");
        };
        waiting.accept(&payload, &Trust::Key(visit.key))?;
    }
}

fn ephemeral() -> Result<Ephemeral> {
    let mut bytes = zeroize::Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes)?;
    Ok(Ephemeral::from_random(bytes))
}
