//! The daemon's end of tunnels: lets paired devices in, and carries their tunnels over their sessions.
//!
//! Invariants
//! - Nothing is opened before a proof was accepted (SBRP-PEER-01): an unpaired client gets one answer
//!   and no more.
//! - Sessions that were not admitted are few and short, whatever they send.
//! - A tunnel belongs to the device that began it: no other one resumes it.
//! - A device that was revoked loses its sessions and tunnels at once (`revocation`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_sbrp::peer::Claim;
use bowline_sbrp::tunnel::{
    Hello, HelloFault, HelloReply, TunnelBudget, Welcome, refusal_for_version_1,
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use super::KEEP;
use super::carry::carry;
use super::greet::{GreetError, hear};
use super::peer::TunnelPeer;
use super::revocation::end_revoked;
use super::services::Services;
use super::tunnels::Tunnels;
use crate::relay::devices::{BookError, DeviceBook, PairError};
use crate::relay::session::Session;

/// The configuration of a daemon's tunnels.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TunnelServerConfig {
    /// Which devices are paired.
    pub book: Arc<dyn DeviceBook>,
    /// What they may open.
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
    /// How many sessions may be served at once; further clients are told that the daemon is busy. 64 by
    /// default, fewer than [`DaemonConfig::most_sessions`](crate::relay::DaemonConfig::most_sessions).
    pub most_sessions: usize,
    /// What all tunnels together may hold in memory.
    pub budget: TunnelBudget,
}

impl TunnelServerConfig {
    /// A tunnel without streams.
    pub fn new(book: Arc<dyn DeviceBook>, services: Arc<dyn Services>) -> Self {
        Self {
            book,
            services,
            name: String::new(),
            allow_unpaired: false,
            keep: KEEP,
            linger: LINGER,
            most_sessions: MOST_SESSIONS,
            budget: TunnelBudget::default(),
        }
    }
}

/// Serves the sessions of a daemon. Clones share the tunnels, which end with the last of them.
#[derive(Debug, Clone)]
pub struct TunnelServer {
    config: Arc<TunnelServerConfig>,
    tunnels: Arc<Tunnels>,
    /// For all sessions that are served.
    places: Arc<Semaphore>,
    /// For sessions that have not been admitted yet.
    strangers: Arc<Semaphore>,
    /// Asks for a look at the book.
    look: Arc<Notify>,
    /// Ends the tunnels of revoked devices; runs from the first session on.
    watching: Arc<OnceLock<AbortOnDropHandle<()>>>,
}

impl TunnelServer {
    /// A tunnel without streams.
    pub fn new(config: TunnelServerConfig) -> Self {
        let tunnels = Tunnels::new(config.keep, config.linger, config.budget.clone());
        let places = Arc::new(Semaphore::new(config.most_sessions));
        let strangers = Arc::new(Semaphore::new(MOST_STRANGERS));
        let (look, watching) = (Arc::new(Notify::new()), Arc::default());
        Self { config: Arc::new(config), tunnels, places, strangers, look, watching }
    }

    /// Serves one session until it ends. Dropping the future ends the session; its tunnel waits for
    /// the next one.
    pub async fn serve(&self, mut session: Session) -> Result<(), GreetError> {
        self.watch();
        let place = self.places.try_acquire();
        let (Ok(_place), Ok(stranger)) = (place, self.strangers.try_acquire()) else {
            // Also before it has said anything: a client that says nothing would stay for as long.
            session.send(HelloReply::Busy.message()).await?;
            return Err(GreetError::Refused(HelloReply::Busy));
        };
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
        drop(stranger);
        let services = &self.config.services;
        let held = self.tunnels.hold(hello.tunnel, hello.resume, &peer, services);
        let Some((tunnel, carrier, resumed)) = held else {
            session.send(HelloReply::Busy.message()).await?;
            return Err(GreetError::Refused(HelloReply::Busy));
        };
        if book_changed.has_changed().unwrap_or(true) {
            // Whoever looked then did not see this tunnel.
            self.look.notify_one();
        }
        let mut services = services.names();
        services.retain(|service| peer.may_open(service));
        let welcome = Welcome { resumed, name: self.config.name.clone(), services };
        session.send(HelloReply::Welcome(welcome).message()).await?;
        tokio::select! {
            end = carry(session, &tunnel.core, carrier) => {
                tracing::debug!(%end, "a device's session ended");
                Ok(())
            }
            () = tunnel.session.cancelled() => Ok(()),
        }
    }

    fn watch(&self) {
        self.watching.get_or_init(|| {
            let book = Arc::clone(&self.config.book);
            let changed = book.changed();
            let (look, tunnels) = (Arc::clone(&self.look), Arc::downgrade(&self.tunnels));
            AbortOnDropHandle::new(tokio::spawn(end_revoked(book, changed, look, tunnels)))
        });
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
                            PairError::Full { .. } => {
                                tracing::warn!(%error, "a device was not paired");
                                HelloReply::Busy
                            }
                            PairError::Book(error) => failed(error),
                        },
                    )?))
                }
            },
        };
        Ok((hello, peer))
    }
}

/// How long a client may take to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// How many sessions may be about to say who they are. A daemon has 64 in all: those who are in are not
/// pushed out by those who say nothing.
const MOST_STRANGERS: usize = 16;
const MOST_SESSIONS: usize = 64;
const LINGER: Duration = Duration::from_secs(60);
