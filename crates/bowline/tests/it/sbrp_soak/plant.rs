//! A control plane, and a relay that can be killed: it is a process of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_client::relay::ControlPlane;
use bowline_net::DoorConfig;
use bowline_net::rate::Rate;
use bowline_relay::control::registry::Registry;
use bowline_relay::control::{self, Control};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::proxy::Proxy;
use crate::process::{DEADLINE, bowline};
use crate::sbrp::world::Program;

pub(crate) struct Plant {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) plane: ControlPlane,
    pub(crate) issuer: String,
    /// The API key of the only user.
    pub(crate) key: String,
    relay: Option<Program>,
    address: SocketAddr,
    grace: Duration,
    _folder: TempDir,
}

impl Plant {
    pub(crate) async fn start(grace: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], bowline_servers::quiet_port()));
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
        let key = key.reveal().to_owned();
        let mut plant =
            Self { proxy, plane, issuer, key, relay: None, address, grace, _folder: folder };
        plant.start_relay().await;
        plant
    }

    pub(crate) async fn start_relay(&mut self) {
        let mut command = bowline();
        command.args(["relay", "run", "--json", "--listen", &self.address.to_string()]);
        command.args(["--issuer", &self.issuer, "--grace", &format!("{}s", self.grace.as_secs())]);
        self.relay = Some(tokio::task::block_in_place(|| {
            let relay = Program::start(command);
            relay.line();
            relay
        }));
    }

    /// kill -9.
    pub(crate) fn kill_relay(&mut self) {
        self.relay.take().unwrap().kill();
    }

    /// SIGTERM, and waits until it has ended.
    pub(crate) fn stop_relay(&mut self) {
        let mut relay = self.relay.take().unwrap();
        relay.terminate();
        assert!(tokio::task::block_in_place(|| relay.ended()).success());
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

fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()
}
