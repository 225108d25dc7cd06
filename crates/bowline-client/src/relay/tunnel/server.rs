//! The daemon's end of tunnels: lets paired devices in, and carries their tunnels over their sessions.
//!
//! Invariants
//! - Nothing is opened before a proof was accepted (SBRP-PEER-01): an unpaired client gets one answer
//!   and no more.
//! - A tunnel belongs to the device that began it: no other one resumes it.
//! - A device that was revoked loses its sessions and tunnels at once.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::peer::Claim;
use bowline_sbrp::tunnel::{Hello, HelloFault, HelloReply, Welcome, refusal_for_version_1};

use super::KEEP;
use super::carry::carry;
use super::greet::{GreetError, hear};
use super::peer::TunnelPeer;
use super::services::Services;
use super::tunnels::Tunnels;
use crate::relay::devices::{BookError, DeviceBook, PairError};
use crate::relay::session::Session;

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
    /// How long services may go on with what they have received after the device closed the tunnel;
    /// 60 s by default.
    pub linger: Duration,
}

impl TunnelServerConfig {
    pub fn new(book: Arc<dyn DeviceBook>, services: Arc<dyn Services>) -> Self {
        let (name, allow_unpaired) = (String::new(), false);
        Self { book, services, name, allow_unpaired, keep: KEEP, linger: LINGER }
    }
}

/// Serves the sessions of a daemon. Clones share the tunnels, which end with the last of them.
#[derive(Debug, Clone)]
pub struct TunnelServer {
    config: Arc<TunnelServerConfig>,
    tunnels: Arc<Tunnels>,
}

impl TunnelServer {
    pub fn new(config: TunnelServerConfig) -> Self {
        let tunnels = Tunnels::new(config.keep, config.linger);
        Self { config: Arc::new(config), tunnels }
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
        let services = &self.config.services;
        let held = self.tunnels.hold(hello.tunnel, hello.resume, &peer, services);
        let Some((tunnel, carrier, resumed)) = held else {
            session.send(HelloReply::Busy.message()).await?;
            return Err(GreetError::Refused(HelloReply::Busy));
        };
        let mut services = services.names();
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
                self.tunnels.retain(|other| other.key() != peer.key());
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

/// How long a client may take to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
const LINGER: Duration = Duration::from_secs(60);
