//! The daemon's end of tunnels: lets paired devices in, and keeps their tunnels while they are away.
//!
//! Invariants
//! - Nothing is opened before a proof was accepted (SBRP-PEER-01): an unpaired client gets one answer
//!   and no more.
//! - A tunnel belongs to the device that began it: no other one resumes it.
//! - Of two sessions of one tunnel the newer counts.
//! - A device that was revoked loses its sessions and tunnels at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_sbrp::peer::Claim;
use bowline_sbrp::tunnel::{
    Hello, HelloFault, HelloReply, ResetReason, TunnelId, Welcome, refusal_for_version_1,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::KEEP;
use super::carry::carry;
use super::core::{Accepted, Carrier, TunnelCore};
use super::greet::{GreetError, hear};
use super::services::{PING, Services, echo};
use crate::relay::devices::{BookError, DeviceBook, PairError, PairedDevice};
use crate::relay::session::Session;

/// Who is at the other end of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelPeer {
    Device(Arc<PairedDevice>),
    /// A client without a proof, which the configuration allows.
    Plain,
}

impl TunnelPeer {
    fn key(&self) -> Option<[u8; 32]> {
        match self {
            Self::Device(device) => Some(*device.key.as_bytes()),
            Self::Plain => None,
        }
    }

    pub fn may_open(&self, service: &str) -> bool {
        match self {
            Self::Device(device) => device.may_open(service),
            Self::Plain => true,
        }
    }
}

/// The configuration of a daemon's tunnels.
#[derive(Debug, Clone)]
pub struct TunnelServerConfig {
    pub book: Arc<dyn DeviceBook>,
    pub services: Arc<dyn Services>,
    /// What clients are told that the daemon is called.
    pub name: String,
    /// Also let clients in that prove nothing. Then whoever owns the relay or the control plane can
    /// use the services.
    pub allow_unpaired: bool,
    /// How long a tunnel is kept without a session.
    pub keep: Duration,
}

impl TunnelServerConfig {
    pub fn new(book: Arc<dyn DeviceBook>, services: Arc<dyn Services>) -> Self {
        Self { book, services, name: String::new(), allow_unpaired: false, keep: KEEP }
    }
}

/// Serves the sessions of a daemon. Clones share the tunnels.
#[derive(Debug, Clone)]
pub struct TunnelServer {
    config: Arc<TunnelServerConfig>,
    tunnels: Arc<Tunnels>,
}

/// A tunnel's owner, and its name for it.
type TunnelKey = (Option<[u8; 32]>, TunnelId);

#[derive(Debug, Default)]
struct Tunnels(Mutex<HashMap<TunnelKey, Served>>);

#[derive(Debug)]
struct Served {
    core: Arc<TunnelCore>,
    /// Cancelled when a newer session takes the tunnel over.
    session: CancellationToken,
    /// Since when it has no session.
    idle_since: Option<Instant>,
    /// Accepts streams and runs services for them.
    _accepting: AbortOnDropHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.session.cancel();
        self.core.abort();
    }
}

impl Tunnels {
    fn lock(&self) -> MutexGuard<'_, HashMap<TunnelKey, Served>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TunnelServer {
    pub fn new(config: TunnelServerConfig) -> Self {
        Self { config: Arc::new(config), tunnels: Arc::default() }
    }

    /// Serves one session until it ends. Dropping the future ends the session; its tunnel waits for
    /// the next one.
    pub async fn serve(&self, mut session: Session) -> Result<(), GreetError> {
        let message = hear(&mut session, HELLO_WITHIN).await?;
        let mut book_changed = self.config.book.changed();
        book_changed.mark_unchanged();
        let (hello, peer) = match self.admit(&message, &session).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let message = match refusal {
                    HelloReply::Version if message.get(7) == Some(&1) => refusal_for_version_1(),
                    _ => refusal.message(),
                };
                session.send(message).await?;
                return Err(GreetError::Refused(refusal));
            }
        };
        let key = (peer.key(), hello.tunnel);
        let (tunnel, carrier, resumed) = match self.tunnel(key, hello.resume, &peer) {
            Ok(held) => held,
            Err(refusal) => {
                session.send(refusal.message()).await?;
                return Err(GreetError::Refused(refusal));
            }
        };
        let mut services = self.config.services.names();
        services.retain(|service| peer.may_open(service));
        let welcome = Welcome { resumed, name: self.config.name.clone(), services };
        session.send(HelloReply::Welcome(welcome).message()).await?;
        let revoked = self.revoked(peer.clone(), book_changed);
        tokio::select! {
            end = carry(session, &tunnel.core, carrier) => {
                tracing::debug!(%end, "a device's session ended");
                Ok(())
            }
            () = tunnel.session.cancelled() => Ok(()),
            () = revoked => {
                tracing::info!("a device was revoked: its tunnels are closed");
                self.tunnels.lock().retain(|(owner, _), _| *owner != peer.key());
                Err(GreetError::Refused(HelloReply::NotPaired))
            }
        }
    }

    /// Who this is, if they may come in.
    async fn admit(
        &self,
        message: &[u8],
        session: &Session,
    ) -> Result<(Hello, TunnelPeer), HelloReply> {
        let hello = Hello::read(message, &session.binding()).map_err(|fault| match fault {
            HelloFault::Version => HelloReply::Version,
            HelloFault::Malformed | HelloFault::Proof => HelloReply::NotPaired,
        })?;
        let failed = |BookError(why): BookError| {
            tracing::warn!(%why, "the list of paired devices cannot be used");
            HelloReply::Failed
        };
        let book = &self.config.book;
        let peer = match &hello.claim {
            Claim::Plain if self.config.allow_unpaired => TunnelPeer::Plain,
            Claim::Plain => return Err(HelloReply::NotPaired),
            Claim::Device(device) => {
                let device = book.find(device.key()).await.map_err(failed)?;
                TunnelPeer::Device(Arc::new(device.ok_or(HelloReply::NotPaired)?))
            }
            // A device that was paired and did not hear of it pairs again, with the same code or none.
            Claim::Pairing(claim) => match book.find(claim.device.key()).await.map_err(failed)? {
                Some(device) => TunnelPeer::Device(Arc::new(device)),
                None => {
                    TunnelPeer::Device(Arc::new(book.pair(claim).await.map_err(
                        |error| match error {
                            PairError::BadCode => HelloReply::BadCode,
                            PairError::TooMany => HelloReply::Busy,
                            PairError::Book(error) => failed(error),
                        },
                    )?))
                }
            },
        };
        Ok((hello, peer))
    }

    /// The tunnel of this name, resumed or new, taken from an older session if it has one.
    fn tunnel(
        &self,
        key: TunnelKey,
        resume: Option<u64>,
        peer: &TunnelPeer,
    ) -> Result<(HeldTunnel, Carrier, Option<u64>), HelloReply> {
        let mut tunnels = self.tunnels.lock();
        if let (Some(peer_received), Some(served)) = (resume, tunnels.get_mut(&key)) {
            served.session.cancel();
            served.session = CancellationToken::new();
            let (carrier, received) = served.core.take_over();
            if served.core.resume(carrier, peer_received).is_ok() {
                served.idle_since = None;
                return Ok((self.held(key, served), carrier, Some(received)));
            }
        }
        // New, or its positions do not fit: it begins anew.
        tunnels.remove(&key);
        if !has_room_for(&mut tunnels, key.0) {
            return Err(HelloReply::Busy);
        }
        let (core, streams) = TunnelCore::daemon();
        let (carrier, _) = core.take_over();
        let accepting = accept(streams, Arc::clone(&self.config.services), peer.clone());
        let served = Served {
            core,
            session: CancellationToken::new(),
            idle_since: None,
            _accepting: AbortOnDropHandle::new(tokio::spawn(accepting)),
        };
        let held = self.held(key, &served);
        tunnels.insert(key, served);
        Ok((held, carrier, None))
    }

    fn held(&self, key: TunnelKey, served: &Served) -> HeldTunnel {
        let (core, session) = (Arc::clone(&served.core), served.session.clone());
        HeldTunnel {
            key,
            core,
            session,
            tunnels: Arc::clone(&self.tunnels),
            keep: self.config.keep,
        }
    }

    /// Returns when the peer's device may not use the daemon any more.
    async fn revoked(&self, peer: TunnelPeer, mut changed: tokio::sync::watch::Receiver<u64>) {
        let TunnelPeer::Device(device) = peer else { return std::future::pending().await };
        loop {
            if changed.changed().await.is_err() {
                return std::future::pending().await;
            }
            match self.config.book.find(&device.key).await {
                Ok(Some(now)) if now == *device => {}
                Ok(_) => return,
                Err(error) => tracing::warn!(%error, "cannot tell whether a device was revoked"),
            }
        }
    }
}

/// Whether a device may have one more tunnel. If there are as many as there may be, one without a session
/// is given up for it: the device's own, or another's that has no streams. A program that runs often
/// and leaves a tunnel behind each time is not locked out by them.
fn has_room_for(tunnels: &mut HashMap<TunnelKey, Served>, owner: Option<[u8; 32]>) -> bool {
    let of_device = tunnels.keys().filter(|(other, _)| *other == owner).count();
    let is_full = of_device >= MOST_TUNNELS_OF_DEVICE;
    if !is_full && tunnels.len() < MOST_TUNNELS {
        return true;
    }
    let idle = tunnels.iter().filter_map(|(key, served)| {
        let has_streams = served.core.streams() > 0;
        let may_go = key.0 == owner || !(is_full || has_streams);
        let since = served.idle_since.filter(|_| may_go)?;
        Some((has_streams, since, *key))
    });
    let longest = idle.min_by_key(|(has_streams, since, _)| (*has_streams, *since));
    longest.is_some_and(|(.., key)| tunnels.remove(&key).is_some())
}

/// A tunnel in the hands of one session. However that ends, the tunnel waits for the next one, and is
/// given up after a while; at once, if either end said that it is needed no more.
#[derive(Debug)]
struct HeldTunnel {
    key: TunnelKey,
    core: Arc<TunnelCore>,
    /// Cancelled when a newer session takes the tunnel over.
    session: CancellationToken,
    tunnels: Arc<Tunnels>,
    keep: Duration,
}

impl Drop for HeldTunnel {
    fn drop(&mut self) {
        let mut tunnels = self.tunnels.lock();
        let served = tunnels.get_mut(&self.key).filter(|_| !self.session.is_cancelled());
        let Some(served) = served else { return };
        if self.core.is_closed() {
            tunnels.remove(&self.key);
            return;
        }
        served.idle_since = Some(Instant::now());
        drop(tunnels);
        let (tunnels, key, session, keep) =
            (Arc::clone(&self.tunnels), self.key, self.session.clone(), self.keep);
        // Outside of a runtime the program is about to end.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            tokio::select! {
                () = session.cancelled() => {}
                () = sleep(keep) => {
                    let mut tunnels = tunnels.lock();
                    if !session.is_cancelled() {
                        tunnels.remove(&key);
                    }
                }
            }
        });
    }
}

/// Runs a service for each stream. Dropping the future ends them.
async fn accept(
    mut streams: mpsc::UnboundedReceiver<Accepted>,
    services: Arc<dyn Services>,
    peer: TunnelPeer,
) {
    let mut running = JoinSet::new();
    while let Some((stream, service)) = streams.recv().await {
        while running.try_join_next().is_some() {}
        if service == PING {
            running.spawn(echo(stream));
        } else if !services.offers(&service) {
            stream.refuse(ResetReason::NotOffered);
        } else if !peer.may_open(&service) {
            stream.refuse(ResetReason::NotPermitted);
        } else {
            let services = Arc::clone(&services);
            let peer = peer.clone();
            running.spawn(async move { services.run(peer, service, stream).await });
        }
    }
    // The tunnel is gone, and its streams have ended with it.
}

/// How long a client may take to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
const MOST_TUNNELS_OF_DEVICE: usize = 16;
const MOST_TUNNELS: usize = 256;
