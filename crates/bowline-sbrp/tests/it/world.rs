//! One daemon, two clients and a relay, wired through sockets, in a time of its own.
//!
//! Everything that happens is an [`Op`]; the same ops and seed give the same history. The relay
//! here is a driver as thin as one can be: all decisions are the machines'.

mod ends;
mod relay;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bowline_sbrp::client::{Client, ClientInput};
use bowline_sbrp::daemon::{Daemon, DaemonInput};
use bowline_sbrp::frame::Reason;
use bowline_sbrp::handshake::{Ephemeral, Trust};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::relay::{ConnectionId, DEFAULT_GRACE, PairTable, TableInput};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::ledger::{Ledger, To};
use crate::socket::{Owner, Socket};
use crate::tamper::Tamper;

pub(crate) fn daemon_id() -> DaemonId {
    DaemonId::new("d_world")
}

const CLIENTS: usize = 2;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    /// A client connects, if it is not connected.
    Connect(u8),
    /// The daemon connects, if it is not connected.
    DaemonConnect,
    /// The daemon connects once more, beside the connection it has.
    DaemonDoubles,
    /// The relay reads from a socket.
    Up(u8),
    /// An end reads from a socket.
    Down(u8),
    /// All read from all, some rounds.
    Flow(u8),
    /// An end notices that a socket is dead; so much of what it sent still arrives.
    CutAtEnd(u8, u8),
    /// The relay notices first.
    CutAtRelay(u8, u8),
    ClientSays(u8),
    DaemonSays(u8),
    DaemonCloses(u8),
    Wait(u8),
    Tamper(Tamper, u8, u8, u8),
}

#[derive(Debug)]
pub(crate) struct World {
    now: Instant,
    seed: u64,
    resumable: bool,
    honest: bool,
    count: u64,
    pub(crate) sockets: BTreeMap<ConnectionId, Socket>,
    table: PairTable,
    daemon: Daemon,
    daemon_socket: Option<ConnectionId>,
    clients: Vec<(Client, Option<ConnectionId>)>,
    ledger: Ledger,
    resumed: usize,
    archive: Vec<Bytes>,
}

fn identity() -> IdentitySecret {
    IdentitySecret::from_seed(&[7; 32])
}

impl World {
    /// With a dishonest relay, clients know the daemon's key beforehand: against a liar at first
    /// use, trust on first use is no defence.
    pub(crate) fn new(seed: u64, resumable: bool, honest: bool) -> Self {
        let trust = if honest { Trust::FirstUse } else { Trust::Key(identity().public()) };
        Self {
            now: Instant::now(),
            seed,
            resumable,
            honest,
            count: 0,
            sockets: BTreeMap::new(),
            table: PairTable::new(DEFAULT_GRACE),
            daemon: Daemon::new(daemon_id(), identity(), resumable, 64),
            daemon_socket: None,
            clients: (0..CLIENTS).map(|_| (Client::new(daemon_id(), trust), None)).collect(),
            ledger: Ledger::default(),
            resumed: 0,
            archive: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, op: Op) {
        match op {
            Op::Connect(at) => self.connect(usize::from(at) % CLIENTS),
            Op::DaemonConnect if self.daemon_socket.is_some() => {}
            Op::DaemonConnect | Op::DaemonDoubles => self.daemon_connect(),
            Op::Up(at) => {
                let _moved = self.pick(at).is_some_and(|connection| self.up(connection));
            }
            Op::Down(at) => {
                let _moved = self.pick(at).is_some_and(|connection| self.down(connection));
            }
            Op::Flow(rounds) => {
                let _moved = (0..=rounds % 4).all(|_| self.flow());
            }
            Op::CutAtEnd(at, rest) => {
                if let Some(connection) = self.pick(at) {
                    let socket = self.sockets.get_mut(&connection).unwrap();
                    socket.up.truncate(usize::from(rest) % 4);
                    socket.down.clear();
                    self.end_notices(connection);
                }
            }
            Op::CutAtRelay(at, rest) => {
                if let Some(connection) = self.pick(at) {
                    let socket = self.sockets.get_mut(&connection).unwrap();
                    socket.down.truncate(usize::from(rest) % 4);
                    socket.up.clear();
                    self.relay_notices(connection);
                }
            }
            Op::ClientSays(at) => drop(self.client_says(usize::from(at) % CLIENTS)),
            Op::DaemonSays(at) => {
                let session = self.clients[usize::from(at) % CLIENTS].0.session();
                if let Some(session) = session {
                    self.daemon_says(session);
                }
            }
            Op::DaemonCloses(at) => {
                let session = self.clients[usize::from(at) % CLIENTS].0.session();
                if let Some(session) = session.filter(|id| self.daemon.session(*id).is_some()) {
                    let reason = Reason::Policy;
                    self.daemon(DaemonInput::Close { session, reason });
                }
            }
            Op::Wait(seconds) => self.wait(u64::from(seconds % 20)),
            Op::Tamper(how, socket, at, detail) => self.tamper(how, socket, at, detail),
        }
        self.sockets.retain(|_, socket| !socket.is_gone());
    }

    /// Lets everything that is under way arrive, and everyone who wants back come back.
    pub(crate) fn calm(&mut self) {
        for _ in 0..100 {
            if self.daemon_socket.is_none() {
                self.daemon_connect();
            }
            (0..CLIENTS).for_each(|at| self.connect(at));
            while self.flow() {}
            self.sockets.retain(|_, socket| !socket.is_gone());
            if self.clients.iter().all(|(client, _)| client.state() == "active") {
                return;
            }
            self.wait(3);
        }
        panic!("no peace: {:?}", self.clients);
    }

    /// Every socket is read from at both sides; whether anything came.
    fn flow(&mut self) -> bool {
        let connections: Vec<_> = self.sockets.keys().copied().collect();
        connections.into_iter().fold(false, |moved, connection| {
            let (up, down) = (self.up(connection), self.down(connection));
            moved | up | down
        })
    }

    /// With an honest relay and a calm network everyone can talk, and nothing got lost silently.
    pub(crate) fn check_everyone_talks(&mut self) {
        self.calm();
        for at in 0..CLIENTS {
            let session = self.clients[at].0.session().unwrap();
            let said = self.client_says(at).unwrap();
            let answer = self.daemon_says(session).unwrap();
            self.calm();
            assert_eq!(self.ledger.last_heard(session, To::Daemon), Some(said.as_slice()));
            assert_eq!(self.ledger.last_heard(session, To::Client), Some(answer.as_slice()));
        }
        self.ledger.check_order_and_loss();
    }

    pub(crate) fn total_heard(&self) -> usize {
        self.ledger.total_heard()
    }

    pub(crate) fn total_resumed(&self) -> usize {
        self.resumed
    }

    pub(crate) fn pick(&self, at: u8) -> Option<ConnectionId> {
        let many = self.sockets.len();
        (many > 0).then(|| *self.sockets.keys().nth(usize::from(at) % many).unwrap())
    }

    pub(crate) fn archived(&self, at: u8) -> Option<Bytes> {
        let many = self.archive.len();
        (many > 0).then(|| self.archive[(usize::from(at) * 31) % many].clone())
    }

    fn fresh(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Randomness of the world: SplitMix64 over its seed.
    pub(crate) fn ephemeral(&mut self) -> Ephemeral {
        let mut bytes = Zeroizing::new([0; 32]);
        for chunk in bytes.chunks_mut(8) {
            self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = self.seed;
            word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            chunk.copy_from_slice(&(word ^ (word >> 31)).to_be_bytes());
        }
        Ephemeral::from_random(bytes)
    }

    fn open(&mut self, owner: impl FnOnce(u64) -> Owner) -> ConnectionId {
        let number = self.fresh();
        self.sockets.insert(ConnectionId(number), Socket::new(owner(number)));
        ConnectionId(number)
    }

    fn send_up(&mut self, connection: Option<ConnectionId>, frame: Bytes) {
        self.ledger.sent(&frame);
        self.archive.push(frame.clone());
        if let Some(socket) = connection.and_then(|connection| self.sockets.get_mut(&connection)) {
            socket.send_up(frame);
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        let now = self.now;
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if due(self.table.deadline()) {
            self.relay(TableInput::Tick);
        }
        if due(self.daemon.deadline()) {
            self.daemon(DaemonInput::Tick);
        }
        for at in 0..CLIENTS {
            if due(self.clients[at].0.deadline()) {
                self.client(at, ClientInput::Tick);
            }
        }
    }
}
