//! A relay, a control plane, and ends to connect through them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_client::relay::tunnel::{
    DeviceIdentity, TcpTargets, TunnelClient, TunnelServer, TunnelServerConfig,
};
use bowline_client::relay::{
    ClientClosed, ClientConfig, ClientEvent, ControlPlane, DaemonConfig, DaemonEvent, DeviceFile,
    KnownDaemons, LossReason, RelayClient, RelayDaemon, Session,
};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::control::{Control, KEY, plane_at};
use super::wire::Relay;
use crate::gateway::within;

pub(crate) struct World {
    pub(crate) relay: Arc<Relay>,
    pub(crate) control: Arc<Control>,
    pub(crate) folder: TempDir,
}

/// The id that a control plane gives to the first daemon.
pub(crate) const FIRST: &str = "daemon-1";

pub(crate) fn identity(seed: u8) -> IdentitySecret {
    IdentitySecret::from_seed(&[seed; 32])
}

impl World {
    pub(crate) async fn start() -> Self {
        let relay = Relay::start().await;
        let control = Control::start(Arc::clone(&relay)).await;
        Self { relay, control, folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn plane(&self) -> ControlPlane {
        plane_at(self.control.port, KEY)
    }

    pub(crate) fn daemon_config(&self) -> DaemonConfig {
        DaemonConfig::new(self.plane(), identity(1))
    }

    /// A daemon that is online.
    pub(crate) async fn daemon(&self) -> RelayDaemon {
        self.daemon_with(self.daemon_config()).await
    }

    pub(crate) async fn daemon_with(&self, config: DaemonConfig) -> RelayDaemon {
        let resumable = config.resumable;
        let mut daemon = RelayDaemon::start(config);
        online(&mut daemon).await;
        // Until its token for the next connection is there, it could not resume.
        let ready = || self.control.resumable.load(Ordering::SeqCst) == resumable;
        until("the daemon's second token", ready).await;
        daemon
    }

    pub(crate) fn known(&self) -> KnownDaemons {
        KnownDaemons::file(self.folder.path().join("known.json"))
    }

    pub(crate) fn client_config(&self) -> ClientConfig {
        ClientConfig::new(self.plane(), DaemonId::new(FIRST), "home", self.known())
    }

    pub(crate) fn client(&self) -> RelayClient {
        RelayClient::connect(self.client_config())
    }

    /// A daemon, a client, and the session between them at both ends.
    pub(crate) async fn pair(&self) -> (RelayDaemon, Session, RelayClient, Session) {
        let mut daemon = self.daemon().await;
        let mut client = self.client();
        let there = established(&mut client).await;
        let here = opened(&mut daemon).await;
        (daemon, here, client, there)
    }

    /// A daemon that serves every client, paired or not, with one target.
    pub(crate) async fn serving(&self, tcp: Option<String>) -> JoinHandle<()> {
        let mut config = self.tunnels(tcp);
        config.allow_unpaired = true;
        self.serving_with(config).await
    }

    /// What a daemon offers: paired devices only, and one target called `tcp`.
    pub(crate) fn tunnels(&self, tcp: Option<String>) -> TunnelServerConfig {
        let targets = TcpTargets::new(tcp.map(|target| ("tcp".to_owned(), target)));
        TunnelServerConfig::new(self.book(), Arc::new(targets))
    }

    pub(crate) fn book(&self) -> Arc<DeviceFile> {
        Arc::new(DeviceFile::watched(self.folder.path().join("devices.json")))
    }

    pub(crate) async fn serving_with(&self, config: TunnelServerConfig) -> JoinHandle<()> {
        let mut daemon = self.daemon_with(self.daemon_config()).await;
        let server = TunnelServer::new(config);
        tokio::spawn(async move {
            while let Some(event) = daemon.next().await {
                if let DaemonEvent::SessionOpened(session) = event {
                    let server = server.clone();
                    tokio::spawn(async move { server.serve(session).await });
                }
            }
        })
    }

    /// A tunnel of a client that proves nothing.
    pub(crate) fn tunnel(&self) -> TunnelClient {
        TunnelClient::connect(self.client_config(), DeviceIdentity::Plain)
    }
}

pub(crate) async fn online(daemon: &mut RelayDaemon) {
    let seen = async {
        loop {
            match daemon.next().await.unwrap() {
                DaemonEvent::Online { .. } => return,
                DaemonEvent::Closed(closed) => panic!("{closed}"),
                _ => {}
            }
        }
    };
    within("the daemon's connection", seen).await;
}

pub(crate) async fn opened(daemon: &mut RelayDaemon) -> Session {
    let seen = async {
        loop {
            if let DaemonEvent::SessionOpened(session) = daemon.next().await.unwrap() {
                return session;
            }
        }
    };
    within("a session", seen).await
}

pub(crate) async fn established(client: &mut RelayClient) -> Session {
    within("a session", client.session()).await.unwrap()
}

pub(crate) async fn event(client: &mut RelayClient) -> ClientEvent {
    within("an event", client.next()).await.unwrap()
}

/// Why the session is lost, whatever was told before.
pub(crate) async fn lost(client: &mut RelayClient) -> LossReason {
    loop {
        match event(client).await {
            ClientEvent::Lost { reason, .. } => return reason,
            ClientEvent::Closed(closed) => panic!("{closed}"),
            _ => {}
        }
    }
}

pub(crate) async fn closed(client: &mut RelayClient) -> ClientClosed {
    loop {
        if let ClientEvent::Closed(closed) = event(client).await {
            return closed;
        }
    }
}

pub(crate) async fn heard(session: &mut Session) -> Vec<u8> {
    within("a message", session.recv()).await.expect("the session goes on")
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    let looking = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(what, looking).await;
}
