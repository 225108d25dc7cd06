//! Daemons and clients that can be killed: each is a process of its own.
//!
//! The process is this test binary, which runs one ignored test ([`one_end`]). It prints its record
//! whenever that changed, and leaves in good order when its stdin ends.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bowline_client::relay::{
    ClientConfig, ClientEvent, ControlPlane, DaemonConfig, DaemonEvent, KnownDaemons,
    LivenessConfig, RelayClient, RelayDaemon,
};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use super::plant::Plant;
use super::record::{Record, Records, SharedRecord, talk};
use super::seed::Dice;
use crate::process::DEADLINE;

/// Shorter than by default, so that a silence is noticed while it lasts.
const LIVENESS: LivenessConfig =
    LivenessConfig::new(Duration::from_secs(1), Duration::from_secs(5));

/// What an end has to know, as JSON in its environment.
const ORDERS: &str = "BOWLINE_SOAK_END";
const PRINT_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Role {
    Daemon,
    Client,
}

#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    role: Role,
    issuer: String,
    key: String,
    daemon: String,
    identity: [u8; 32],
    seed: u64,
}

/// A running daemon or client.
pub(crate) struct Process {
    child: Child,
    reading: Option<JoinHandle<()>>,
    record: SharedRecord,
}

impl Process {
    fn start(orders: &Orders, records: &Records) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sbrp_soak::ends::one_end", "--ignored", "--nocapture"])
            .env(ORDERS, serde_json::to_string(orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let record = records.begin();
        let (lines, kept) = (BufReader::new(child.stdout.take().unwrap()), record.clone());
        let reading = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                // The test binary says something, too.
                if let Ok(said) = serde_json::from_str(&line) {
                    *kept.lock().unwrap() = said;
                }
            }
        });
        Self { child, reading: Some(reading), record }
    }

    pub(crate) fn record(&self) -> Record {
        self.record.lock().unwrap().clone()
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Graceful shutdown.
    pub(crate) async fn stop(mut self) {
        drop(self.child.stdin.take());
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < DEADLINE, "it does not leave in time");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(status.success(), "{status}");
        self.reading.take().unwrap().join().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A daemon's identity.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) id: DaemonId,
    pub(crate) seed: [u8; 32],
}

impl Identity {
    pub(crate) async fn register(plane: &ControlPlane, number: u8) -> Self {
        let seed = [number + 1; 32];
        let key = IdentitySecret::from_seed(&seed).public();
        let registered = plane.register(&key, None, true).await.unwrap();
        Self { id: DaemonId::new(registered.daemon_id), seed }
    }
}

pub(crate) fn daemon(
    plant: &Plant,
    identity: &Identity,
    records: &Records,
    dice: &mut Dice,
) -> Process {
    start(Role::Daemon, plant, identity, records, dice)
}

pub(crate) fn client(
    plant: &Plant,
    identity: &Identity,
    records: &Records,
    dice: &mut Dice,
) -> Process {
    start(Role::Client, plant, identity, records, dice)
}

fn start(
    role: Role,
    plant: &Plant,
    identity: &Identity,
    records: &Records,
    dice: &mut Dice,
) -> Process {
    let orders = Orders {
        role,
        issuer: plant.issuer.clone(),
        key: plant.key.clone(),
        daemon: identity.id.as_str().to_owned(),
        identity: identity.seed,
        seed: dice.fork_seed(),
    };
    Process::start(&orders, records)
}

/// The program of a daemon or client.
#[tokio::test]
#[ignore = "run as a process by the tests beside it"]
async fn one_end() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    let plane = ControlPlane::new(orders.issuer.parse().unwrap(), &orders.key).unwrap();
    let record = SharedRecord::default();
    let dice = Dice::from_seed(orders.seed);
    let kept = record.clone();
    let printing = tokio::spawn(async move {
        let mut last = Record::default();
        loop {
            print_if_new(&kept, &mut last);
            tokio::time::sleep(PRINT_EVERY).await;
        }
    });
    match orders.role {
        Role::Daemon => run_daemon(plane, orders.identity, &record, dice).await,
        Role::Client => run_client(plane, DaemonId::new(orders.daemon), &record, dice).await,
    }
    printing.abort();
    print_if_new(&record, &mut Record::default());
}

fn print_if_new(record: &SharedRecord, last: &mut Record) {
    let now = record.lock().unwrap().clone();
    if now != *last {
        println!("{}", serde_json::to_string(&now).unwrap());
        *last = now;
    }
}

/// Waits until the test closes stdin, or is gone.
async fn told_to_stop() {
    let _ = tokio::io::stdin().read(&mut [0; 1]).await;
}

async fn run_daemon(plane: ControlPlane, seed: [u8; 32], record: &SharedRecord, mut dice: Dice) {
    let mut config = DaemonConfig::new(plane, IdentitySecret::from_seed(&seed));
    config.liveness = LIVENESS;
    config.replaced_wait = Duration::from_secs(1);
    let mut daemon = RelayDaemon::start(config);
    let mut stop = std::pin::pin!(told_to_stop());
    loop {
        let event = tokio::select! {
            event = daemon.next() => event,
            () = &mut stop => return daemon.stop().await,
        };
        match event {
            Some(DaemonEvent::SessionOpened(session)) => {
                tokio::spawn(talk("daemon", session, record.clone(), dice.fork()));
            }
            Some(DaemonEvent::Online { .. }) => record.lock().unwrap().arrivals += 1,
            Some(DaemonEvent::Lost { reason, retry_in }) => {
                record.lock().unwrap().lost("daemon", &reason, retry_in);
            }
            Some(DaemonEvent::Closed(closed)) => {
                return record.lock().unwrap().wrong(format!("a daemon gave up: {closed}"));
            }
            Some(_) => {}
            None => return,
        }
    }
}

async fn run_client(plane: ControlPlane, daemon: DaemonId, record: &SharedRecord, mut dice: Dice) {
    let mut config = ClientConfig::new(plane, daemon, "daemon", KnownDaemons::nowhere());
    config.liveness = LIVENESS;
    let mut client = RelayClient::connect(config);
    let mut stop = std::pin::pin!(told_to_stop());
    loop {
        let event = tokio::select! {
            event = client.next() => event,
            () = &mut stop => return client.close().await,
        };
        match event {
            Some(ClientEvent::Established { session, .. }) => {
                record.lock().unwrap().arrivals += 1;
                tokio::spawn(talk("client", session, record.clone(), dice.fork()));
            }
            Some(ClientEvent::Lost { reason, retry_in }) => {
                record.lock().unwrap().lost("client", &reason, retry_in);
            }
            Some(ClientEvent::Closed(closed)) => {
                return record.lock().unwrap().wrong(format!("a client gave up: {closed}"));
            }
            Some(_) => {}
            None => return,
        }
    }
}
