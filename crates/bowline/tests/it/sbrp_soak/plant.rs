//! A control plane and a relay that can be killed: each relay has its own tokio runtime, which is
//! dropped with all its tasks to simulate kill -9.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_client::relay::ControlPlane;
use bowline_net::DoorConfig;
use bowline_net::DoorError;
use bowline_net::rate::Rate;
use bowline_relay::control::registry::Registry;
use bowline_relay::control::{self, Control};
use bowline_relay::relay::{Relay, RelayConfig, RelayStartError};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::proxy::Proxy;
use crate::process::DEADLINE;
use crate::sbrp::world::free_port;

pub(crate) struct Plant {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) plane: ControlPlane,
    relay: Option<Running>,
    address: SocketAddr,
    issuer: String,
    grace: Duration,
    _folder: TempDir,
}

struct Running {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    run: JoinHandle<()>,
}

/// A runtime with one worker thread, in place of a process.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

impl Plant {
    pub(crate) async fn start(grace: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let proxy = Proxy::start(address).await;
        let listen = DoorConfig::plain("127.0.0.1:0".parse().unwrap());
        let door = control::open_door(listen, &control::ControlLimits::default()).await.unwrap();
        let issuer = format!("http://{}", door.address());
        let relay_url = format!("ws://{}/relay", proxy.address).parse().unwrap();
        let mut config = control::ControlConfig::new(folder.path(), &issuer, relay_url);
        // All come from one address with one key, and far more often than people do.
        let often = Rate { burst: 1_000_000, every: Duration::from_millis(1) };
        config.limits.tokens_per_address = often;
        config.limits.tokens_per_key = often;
        let control = Control::open(config).unwrap();
        tokio::spawn(control.serve(door, CancellationToken::new()));
        let key = Registry::open_existing(folder.path()).unwrap().add_user("alice", now()).unwrap();
        let plane = ControlPlane::new(issuer.parse().unwrap(), key.reveal()).unwrap();
        let mut plant = Self { proxy, plane, relay: None, address, issuer, grace, _folder: folder };
        plant.start_relay().await;
        plant
    }

    pub(crate) async fn start_relay(&mut self) {
        let begun = Instant::now();
        let runtime = runtime();
        let bound = loop {
            let config = RelayConfig {
                listen: self.address,
                issuer: self.issuer.clone(),
                grace: self.grace,
                ..RelayConfig::default()
            };
            match runtime.spawn(Relay::bind(config)).await.unwrap() {
                Ok(bound) => break bound,
                // The one before is about to be gone.
                Err(RelayStartError::Door(DoorError::AddressInUse { .. }))
                    if begun.elapsed() < DEADLINE =>
                {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        let (stop, stopped) = oneshot::channel();
        let run = runtime.spawn(bound.run(stopped));
        self.relay = Some(Running { runtime, stop, run });
    }

    /// Simulates kill -9.
    pub(crate) fn kill_relay(&mut self) {
        self.relay.take().unwrap().runtime.shutdown_background();
    }

    /// Simulates SIGTERM.
    pub(crate) async fn stop_relay(&mut self) {
        let Running { runtime, stop, run } = self.relay.take().unwrap();
        stop.send(()).unwrap();
        tokio::time::timeout(DEADLINE, run).await.expect("it stops in time").unwrap();
        runtime.shutdown_background();
    }

    /// The sum of all metrics whose line begins with `name`.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let url = format!("http://{}/metrics", self.address);
        let page = reqwest::get(url).await.unwrap().text().await.unwrap();
        let lines = page.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    pub(crate) async fn until_metric(&self, name: &str, is: u64) {
        let begun = Instant::now();
        loop {
            let seen = self.metric(name).await;
            if seen == is {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "{name} is {seen} and never {is}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        if let Some(relay) = self.relay.take() {
            relay.runtime.shutdown_background();
        }
    }
}

fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()
}
