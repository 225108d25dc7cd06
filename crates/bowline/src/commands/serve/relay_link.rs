//! The gateway as a daemon of a relay: paired devices enter by its own door.
//!
//! Joins two crates that do not know each other. The relay's daemon asks the gateway who is paired
//! ([`GatewayBook`]), and hands it the streams that devices open ([`GatewayServices`]).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_client::relay::tunnel::{
    API, HTTP, Services, TunnelPeer, TunnelServer, TunnelServerConfig, TunnelStream,
};
use bowline_client::relay::{
    BookError, DaemonConfig, DaemonEvent, DeviceBook, MOST_PAIRED, PairError, PairedDevice,
    RelayDaemon, WaitingCode, load_or_create,
};
use bowline_gateway::devices::PairRefused;
use bowline_gateway::{Device, Devices, Gateway};
use bowline_net::{DeviceEntry, Entrance};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::{Fingerprint, IdentityKey};
use bowline_sbrp::pairing::{PairingCode, PairingText};
use bowline_sbrp::peer::PairingClaim;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::cli::relay_ends::ControlArgs;
use crate::failure::Failure;
use crate::settings::RelaySettings;
use crate::terminal::printable;
use crate::{owner, paths};

/// A running link.
#[derive(Debug)]
pub(super) struct RelayLink {
    state: watch::Receiver<LinkState>,
    invitation: Invitation,
    devices: Devices,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// How the link does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkState {
    Connecting,
    Online {
        relay: String,
        daemon: DaemonId,
    },
    /// The next attempt follows.
    Lost {
        why: String,
    },
    /// It will not come back by itself.
    Closed {
        why: String,
    },
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Online { relay, .. } => write!(f, "reachable through {}", printable(relay)),
            Self::Lost { why } => write!(f, "not reachable: {}; trying again", printable(why)),
            Self::Closed { why } => write!(f, "NOT reachable: {}", printable(why)),
        }
    }
}

impl RelayLink {
    /// Starts the link, if the settings name a relay. It connects in the background.
    pub(super) fn start(
        settings: &RelaySettings,
        data: &Path,
        gateway: &Gateway,
    ) -> Result<Option<Self>, Failure> {
        let Some(url) = settings.url.clone() else { return Ok(None) };
        let args = ControlArgs { control: Some(url.clone()), key_file: settings.key_file.clone() };
        let control = owner::control_plane(&args, Some(data))?;
        let identity = load_or_create(&owner::gateway_identity(Some(data)))
            .map_err(|error| Failure::new(&error).hint(error.hint()))?;
        let name = settings.name.clone().or_else(paths::machine);
        let invitation = Invitation { control: url, fingerprint: identity.public().fingerprint() };
        let devices = gateway.devices();
        let book = Arc::new(GatewayBook(devices.clone()));
        let services = Arc::new(GatewayServices(gateway.entrance()));
        let mut tunnels = TunnelServerConfig::new(Arc::<GatewayBook>::clone(&book), services);
        tunnels.name = name.clone().unwrap_or_default();
        let mut config = DaemonConfig::new(control, identity);
        config.name = name;
        config.devices = Some(book);
        let (tell, state) = watch::channel(LinkState::Connecting);
        let stop = CancellationToken::new();
        let run = Run {
            daemon: RelayDaemon::start(config),
            server: TunnelServer::new(tunnels),
            devices: devices.clone(),
            invitation: invitation.clone(),
            daemon_id: None,
            tell,
            stop: stop.clone(),
        };
        let task = tokio::spawn(run.run());
        Ok(Some(Self { state, invitation, devices, stop, task }))
    }

    /// Waits until it is online or known to fail, for a moment.
    pub(super) async fn settled(&self) -> LinkState {
        let mut state = self.state.clone();
        let known = state.wait_for(|state| *state != LinkState::Connecting);
        let _ = tokio::time::timeout(SETTLE, known).await;
        self.state.borrow().clone()
    }

    /// A text by which the first device can be paired; `None` if there is one, or no relay.
    pub(super) async fn first_invitation(&self) -> Option<String> {
        let LinkState::Online { daemon, .. } = self.state.borrow().clone() else { return None };
        if !self.devices.all().await.ok()?.is_empty() {
            return None;
        }
        let offer = self.devices.offer(None, None).await.ok()?;
        Some(self.invitation.text(&offer.code, &daemon))
    }

    /// Says goodbye to the relay.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

/// The task of a link.
struct Run {
    daemon: RelayDaemon,
    server: TunnelServer,
    devices: Devices,
    invitation: Invitation,
    /// Set when it is registered.
    daemon_id: Option<DaemonId>,
    tell: watch::Sender<LinkState>,
    stop: CancellationToken,
}

impl Run {
    async fn run(mut self) {
        let mut sessions = JoinSet::new();
        loop {
            let event = tokio::select! {
                event = self.daemon.next() => event,
                Some(_) = sessions.join_next() => continue,
                () = self.stop.cancelled() => break,
            };
            match event {
                Some(DaemonEvent::SessionOpened(session)) => {
                    let server = self.server.clone();
                    sessions.spawn(async move {
                        if let Err(error) = server.serve(session).await {
                            tracing::debug!(%error, "a client was not let in");
                        }
                    });
                }
                Some(event) => self.happened(&event),
                None => return,
            }
        }
        self.devices.set_pairing_text(None);
        self.daemon.stop().await;
    }

    fn happened(&mut self, event: &DaemonEvent) {
        match event {
            DaemonEvent::Registered { daemon } => self.daemon_id = Some(daemon.clone()),
            DaemonEvent::Online { relay } => {
                tracing::info!(relay, "reachable through the relay");
                let Some(daemon) = self.daemon_id.clone() else { return };
                let (invitation, id) = (self.invitation.clone(), daemon.clone());
                let text = move |code: &[u8; 16]| invitation.text(code, &id);
                self.devices.set_pairing_text(Some(Arc::new(text)));
                self.tell.send_replace(LinkState::Online { relay: relay.clone(), daemon });
            }
            DaemonEvent::Lost { reason, .. } => {
                tracing::warn!(%reason, "not reachable through the relay; trying again");
                // A code would be of no use now.
                self.devices.set_pairing_text(None);
                self.tell.send_replace(LinkState::Lost { why: reason.to_string() });
            }
            DaemonEvent::Replaced { .. } => {
                let why = "another process with this identity is connected".to_owned();
                tracing::warn!("not reachable through the relay: {why}");
                self.devices.set_pairing_text(None);
                self.tell.send_replace(LinkState::Lost { why });
            }
            DaemonEvent::Closed(closed) => {
                let why = closed.to_string();
                tracing::error!(why, "not reachable through the relay any more");
                self.devices.set_pairing_text(None);
                self.tell.send_replace(LinkState::Closed { why });
            }
            _ => {}
        }
    }
}

/// What a pairing text says beside the code.
#[derive(Debug, Clone)]
struct Invitation {
    control: Url,
    fingerprint: Fingerprint,
}

impl Invitation {
    fn text(&self, code: &[u8; 16], daemon: &DaemonId) -> String {
        PairingText {
            code: PairingCode::from_random(*code),
            fingerprint: self.fingerprint,
            daemon: daemon.clone(),
            control: self.control.to_string(),
        }
        .to_string()
    }
}

/// The gateway's devices, as the relay's daemon asks for them.
#[derive(Debug)]
struct GatewayBook(Devices);

#[async_trait]
impl DeviceBook for GatewayBook {
    async fn find(&self, key: &IdentityKey) -> Result<Option<PairedDevice>, BookError> {
        let found = self.0.find(key.as_bytes()).await.map_err(unusable)?;
        Ok(found.and_then(paired))
    }

    async fn pair(&self, claim: &PairingClaim) -> Result<PairedDevice, PairError> {
        let key = *claim.device.key().as_bytes();
        // The control plane takes no more, and one that it is not told of could not come back.
        if self.0.all().await.map_err(unusable)?.len() >= MOST_PAIRED {
            return Err(PairError::Full { most: MOST_PAIRED });
        }
        let made = self.0.pair(key, &claim.name, |code| claim.knows(code)).await;
        let device = made.map_err(|refused| match refused {
            PairRefused::BadCode => PairError::BadCode,
            PairRefused::TooMany => PairError::TooMany,
            PairRefused::Store(error) => unusable(error).into(),
        })?;
        paired(device).ok_or_else(|| BookError("a stored key is malformed".into()).into())
    }

    async fn all(&self) -> Result<Vec<PairedDevice>, BookError> {
        let devices = self.0.all().await.map_err(unusable)?;
        Ok(devices.into_iter().filter_map(paired).collect())
    }

    async fn codes(&self) -> Result<Vec<WaitingCode>, BookError> {
        let waiting = self.0.pending().await.map_err(unusable)?;
        let waiting = waiting.into_iter().map(|(code, expires_at)| WaitingCode {
            code: PairingCode::from_random(code),
            expires_at: expires_at.as_second().try_into().unwrap_or_default(),
        });
        Ok(waiting.collect())
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed()
    }
}

fn paired(device: Device) -> Option<PairedDevice> {
    let key = IdentityKey::from_bytes(&device.key).ok()?;
    // What it may do is the gateway's to say, request by request.
    Some(PairedDevice { id: device.id.to_string(), key, name: device.name, services: vec![] })
}

fn unusable(error: impl std::fmt::Display) -> BookError {
    BookError(error.to_string())
}

/// Streams go in by the gateway's door, with the device as their peer.
#[derive(Debug)]
struct GatewayServices(Entrance);

#[async_trait]
impl Services for GatewayServices {
    fn names(&self) -> Vec<String> {
        vec![HTTP.into(), API.into()]
    }

    async fn run(&self, peer: TunnelPeer, service: String, stream: TunnelStream) {
        let TunnelPeer::Device(device) = peer else { return };
        let entry = DeviceEntry { id: device.id.as_str().into(), programs: service == API };
        if let Err(error) = self.0.enter(stream, entry) {
            tracing::debug!(%error, "a device's stream was not let in");
        }
    }
}

const SETTLE: std::time::Duration = std::time::Duration::from_secs(5);
