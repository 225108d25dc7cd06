//! One daemon, two clients and a relay, wired through sockets, in a time of its own.
//!
//! Everything that happens is an [`Op`]; the same ops and seed give the same history. The relay
//! here is a driver as thin as one can be: all decisions are the machines'.

mod ends;
mod relay;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bowline_sbrp::client::{self, Client};
use bowline_sbrp::daemon::{self, Daemon};
use bowline_sbrp::frame::Reason;
use bowline_sbrp::handshake::{Ephemeral, Trust};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::relay::{Berth, DEFAULT_GRACE, Event as RelayEvent, Link};
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
    pub(crate) sockets: BTreeMap<Link, Socket>,
    berth: Berth,
    daemon: Daemon,
    daemon_socket: Option<Link>,
    clients: Vec<(Client, Option<Link>)>,
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
            berth: Berth::new(DEFAULT_GRACE),
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
                let _moved = self.pick(at).is_some_and(|link| self.up(link));
            }
            Op::Down(at) => {
                let _moved = self.pick(at).is_some_and(|link| self.down(link));
            }
            Op::Flow(rounds) => {
                let _moved = (0..=rounds % 4).all(|_| self.flow());
            }
            Op::CutAtEnd(at, rest) => {
                if let Some(link) = self.pick(at) {
                    let socket = self.sockets.get_mut(&link).unwrap();
                    socket.up.truncate(usize::from(rest) % 4);
                    socket.down.clear();
                    self.end_notices(link);
                }
            }
            Op::CutAtRelay(at, rest) => {
                if let Some(link) = self.pick(at) {
                    let socket = self.sockets.get_mut(&link).unwrap();
                    socket.down.truncate(usize::from(rest) % 4);
                    socket.up.clear();
                    self.relay_notices(link);
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
                    self.daemon(daemon::Event::Close { session, reason });
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
        let links: Vec<_> = self.sockets.keys().copied().collect();
        links.into_iter().fold(false, |moved, link| {
            let (up, down) = (self.up(link), self.down(link));
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

    pub(crate) fn pick(&self, at: u8) -> Option<Link> {
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

    fn open(&mut self, owner: impl FnOnce(u64) -> Owner) -> Link {
        let number = self.fresh();
        self.sockets.insert(Link(number), Socket::new(owner(number)));
        Link(number)
    }

    fn send_up(&mut self, link: Option<Link>, frame: Bytes) {
        self.ledger.sent(&frame);
        self.archive.push(frame.clone());
        if let Some(socket) = link.and_then(|link| self.sockets.get_mut(&link)) {
            socket.send_up(frame);
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        let now = self.now;
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if due(self.berth.deadline()) {
            self.relay(RelayEvent::Tick);
        }
        if due(self.daemon.deadline()) {
            self.daemon(daemon::Event::Tick);
        }
        for at in 0..CLIENTS {
            if due(self.clients[at].0.deadline()) {
                self.client(at, client::Event::Tick);
            }
        }
    }
}
