//! The client's end of a tunnel: keeps it going over as many sessions as it takes.
//!
//! Invariants
//! - A stream survives lost sessions for as long as the daemon keeps the tunnel. If the daemon no
//!   longer has it, or it could not be reached for [`KEEP`], every stream ends with an error.
//! - Each session begins with a new proof.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::handshake::VerifiedIdentity;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::pairing::PairingCode;
use bowline_sbrp::peer::Identification;
use bowline_sbrp::tunnel::{Hello, HelloReply, LONGEST_SERVICE, TunnelId, Welcome};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::KEEP;
use super::carry::carry;
use super::core::TunnelCore;
use super::greet::{GreetError, hear};
use super::stream::TunnelStream;
use crate::relay::client::{ClientClosed, ClientConfig, ClientEvent, RelayClient};
use crate::relay::pins::KnownError;
use crate::relay::random;
use crate::relay::reasons::LossReason;
use crate::relay::session::{SendError, Session};

/// How a client identifies itself to the daemon (SBRP-PEER-01).
#[derive(Debug, Clone)]
pub enum DeviceIdentity {
    /// Not at all. Daemons refuse it unless they were told otherwise.
    Plain,
    /// As a device that was paired.
    Device(Arc<IdentitySecret>),
    /// As a device that is paired by this. Later sessions need no code.
    Pairing {
        /// The device's key, made for this daemon.
        device: Arc<IdentitySecret>,
        /// The code that the daemon showed.
        code: PairingCode,
        /// What its owner calls the device.
        name: String,
    },
}

impl DeviceIdentity {
    fn shown(&self) -> Identification<'_> {
        match self {
            Self::Plain => Identification::Plain,
            Self::Device(device) => Identification::Device(device),
            Self::Pairing { device, code, name } => Identification::Pairing { device, code, name },
        }
    }
}

/// What happens to a tunnel.
#[derive(Debug)]
#[non_exhaustive]
pub enum TunnelNotice {
    /// The daemon let this client in.
    Connected(Connected),
    /// The daemon is disconnected from the relay; streams wait.
    Paused,
    /// The daemon reconnected and has not signalled yet whether it can resume the session.
    Pending,
    /// The session continues.
    Resumed,
    /// The daemon's key could not be pinned (SBRP-CLIENT-08).
    NotPinned(KnownError),
    /// The daemon refused this client for now, and says why: [`GreetError::Refused`]. The loss of the
    /// session follows, and another attempt.
    Refused(GreetError),
    /// There is no session now; the next attempt begins after `retry_in`. Streams wait.
    Lost {
        /// Why it was lost.
        reason: LossReason,
        /// When the next attempt begins.
        retry_in: Duration,
    },
    /// The daemon no longer had the tunnel, or was away for too long: this many streams were cut off.
    StreamsLost(usize),
    /// The tunnel is over. This is the last event.
    Closed(TunnelClosed),
}

/// A session of a tunnel.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Connected {
    /// The session.
    pub session: SessionId,
    /// The key that the daemon has proven.
    pub identity: VerifiedIdentity,
    /// Host and port of the relay.
    pub relay: String,
    /// The daemon's key was not pinned before: the user should compare its fingerprint.
    pub first_use: bool,
    /// Streams of before go on.
    pub resumed: bool,
    /// What the daemon is called; empty if it has no name.
    pub name: String,
    /// The services that this device may open.
    pub services: Vec<String>,
}

/// Why a tunnel is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelClosed {
    /// The client stopped.
    #[error(transparent)]
    Client(#[from] ClientClosed),
    /// The daemon does not let this client in.
    #[error(transparent)]
    Greet(#[from] GreetError),
}

/// Why a stream was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenStreamError {
    /// There is no connection to the daemon.
    #[error("there is no connection to the daemon")]
    NotConnected,
    /// There are as many connections through this tunnel as there may be.
    #[error("there are as many connections through this tunnel as there may be")]
    TooMany,
    /// The name of the service is empty or too long.
    #[error("the name of the service is empty or too long")]
    Service,
}

/// A tunnel that runs until it is closed or dropped.
#[derive(Debug)]
pub struct TunnelClient {
    opener: TunnelOpener,
    notices: mpsc::Receiver<TunnelNotice>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Opens streams; clones share the tunnel.
#[derive(Debug, Clone)]
pub struct TunnelOpener {
    /// `None` until the daemon let this client in, and while it is away.
    tunnel: watch::Receiver<Option<Arc<TunnelCore>>>,
    /// Shortens the wait for the next attempt to connect.
    hurry: Arc<Notify>,
}

impl TunnelOpener {
    /// Opens a stream to a service. While there is no session, or no room for another stream, it waits, for
    /// so long. Somebody who waits shortens the pause until the next attempt to connect.
    pub async fn open(
        &self,
        service: &str,
        patience: Duration,
    ) -> Result<TunnelStream, OpenStreamError> {
        if !(1..=LONGEST_SERVICE).contains(&service.len()) {
            return Err(OpenStreamError::Service);
        }
        let mut tunnel = self.tunnel.clone();
        let until = Instant::now() + patience;
        loop {
            if tunnel.borrow().is_none() {
                self.hurry.notify_one();
            }
            // Each attempt that fails is followed by a pause, which is shortened in its turn.
            let look_at = until.min(Instant::now() + HURRY_EVERY);
            let core = match timeout_at(look_at, tunnel.wait_for(Option::is_some)).await {
                Ok(Ok(core)) => core.clone().ok_or(OpenStreamError::NotConnected)?,
                Err(_) if Instant::now() < until => continue,
                Ok(Err(_)) | Err(_) => return Err(OpenStreamError::NotConnected),
            };
            if let Some(stream) = core.open(service) {
                return Ok(stream);
            }
            if Instant::now() + ROOM_PAUSE > until {
                return Err(OpenStreamError::TooMany);
            }
            sleep(ROOM_PAUSE).await;
        }
    }
}

impl TunnelClient {
    /// Connects, and reconnects until [`TunnelNotice::Closed`]. Call it inside a Tokio runtime.
    pub fn connect(config: ClientConfig, identity: DeviceIdentity) -> Self {
        let (tell, notices) = mpsc::channel(NOTICES);
        let (current, tunnel) = watch::channel(None);
        let stop = CancellationToken::new();
        let client = RelayClient::connect(config);
        let hurry = client.hurry();
        let driver = TunnelDriver {
            client,
            identity,
            id: None,
            core: TunnelCore::client(),
            current,
            carrying: None,
            tell,
            stop: stop.clone(),
        };
        let task = tokio::spawn(driver.run());
        Self { opener: TunnelOpener { tunnel, hurry }, notices, stop, task }
    }

    /// Opens streams; it can be cloned and given away.
    pub fn opener(&self) -> TunnelOpener {
        self.opener.clone()
    }

    /// The next event; `None` after [`TunnelNotice::Closed`]. When 64 events are queued, the tunnel
    /// waits until one is read.
    pub async fn next(&mut self) -> Option<TunnelNotice> {
        self.notices.recv().await
    }

    /// Waits until the daemon let this client in; other events are skipped.
    pub async fn connected(&mut self) -> Result<Connected, TunnelClosed> {
        loop {
            match self.next().await {
                Some(TunnelNotice::Connected(connected)) => return Ok(connected),
                Some(TunnelNotice::Closed(closed)) => return Err(closed),
                Some(_) => {}
                None => return Err(ClientClosed::Stopped.into()),
            }
        }
    }

    /// Ends the session and disconnects, within a few seconds.
    pub async fn close(mut self) {
        self.stop.cancel();
        if timeout(STOP_PATIENCE, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for TunnelClient {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct TunnelDriver {
    client: RelayClient,
    identity: DeviceIdentity,
    /// Set when the daemon knows the tunnel.
    id: Option<TunnelId>,
    core: Arc<TunnelCore>,
    current: watch::Sender<Option<Arc<TunnelCore>>>,
    /// The task of the session that is in use.
    carrying: Option<Carrying>,
    tell: mpsc::Sender<TunnelNotice>,
    stop: CancellationToken,
}

/// The session that is in use, and what becomes of it.
type Carrying = AbortOnDropHandle<()>;

impl TunnelDriver {
    async fn run(mut self) {
        let stop = self.stop.clone();
        let closed = match stop.run_until_cancelled(self.keep_going()).await {
            Some(closed) => closed,
            None => {
                self.say_goodbye().await;
                ClientClosed::Stopped.into()
            }
        };
        self.current.send_replace(None);
        self.core.abort();
        let _ = self.tell.try_send(TunnelNotice::Closed(closed));
        self.client.close().await;
    }

    /// Tells the daemon that the tunnel is needed no more, so that it does not keep it.
    async fn say_goodbye(&mut self) {
        if let Some(carrying) = self.carrying.take() {
            self.core.close();
            let _ = timeout(GOODBYE, carrying).await;
        }
    }

    async fn keep_going(&mut self) -> TunnelClosed {
        // From when on nothing holds the streams any more.
        let mut give_up: Option<Instant> = None;
        loop {
            tokio::select! {
                event = self.client.next() => {
                    let notice = match event {
                        None => return ClientClosed::Stopped.into(),
                        Some(ClientEvent::Closed(closed)) => return closed.into(),
                        Some(ClientEvent::Established { session, identity, relay, first_use }) => {
                            match self.begin(session, *identity, relay, first_use).await {
                                Ok((begun, connected)) => {
                                    (self.carrying, give_up) = (Some(begun), None);
                                    self.current.send_replace(Some(Arc::clone(&self.core)));
                                    TunnelNotice::Connected(connected)
                                }
                                Err(error) if error.may_pass() => {
                                    // Dropping the session ended it: the client begins another.
                                    tracing::debug!(%error, "the daemon did not let us in");
                                    match error {
                                        GreetError::Refused(_) => TunnelNotice::Refused(error),
                                        _ => continue,
                                    }
                                }
                                Err(error) => return error.into(),
                            }
                        }
                        Some(ClientEvent::Paused) => TunnelNotice::Paused,
                        Some(ClientEvent::Pending) => TunnelNotice::Pending,
                        Some(ClientEvent::Resumed) => TunnelNotice::Resumed,
                        Some(ClientEvent::NotPinned(error)) => TunnelNotice::NotPinned(error),
                        Some(ClientEvent::Lost { reason, retry_in }) => {
                            self.carrying = None;
                            self.current.send_replace(None);
                            give_up.get_or_insert_with(|| Instant::now() + KEEP);
                            TunnelNotice::Lost { reason, retry_in }
                        }
                    };
                    let _ = self.tell.send(notice).await;
                }
                () = ended(&mut self.carrying) => {
                    // The session's handle is dropped: the client reports the loss and reconnects.
                    self.carrying = None;
                    self.current.send_replace(None);
                }
                () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                    give_up = None;
                    self.start_over().await;
                }
            }
        }
    }

    /// Says hello in a new session, and goes on with the tunnel or begins it.
    async fn begin(
        &mut self,
        mut session: Session,
        identity: VerifiedIdentity,
        relay: String,
        first_use: bool,
    ) -> Result<(Carrying, Connected), GreetError> {
        let (mut carrier, received) = self.core.take_over();
        let resume = self.id.map(|_| received);
        let id = match self.id {
            Some(id) => id,
            None => TunnelId::from_random(random::bytes().map_err(|_| GreetError::Silent)?),
        };
        let hello = Hello::message(id, resume, &self.identity.shown(), &session.binding());
        match session.send(hello).await {
            // A daemon that is busy may have said so already.
            Ok(()) | Err(SendError::Ended(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let reply = hear(&mut session, PATIENCE).await?;
        let Welcome { resumed, name, services } = match HelloReply::read(&reply) {
            Some(HelloReply::Welcome(welcome)) => welcome,
            Some(refusal) => return Err(GreetError::Refused(refusal)),
            None => return Err(GreetError::Garbled),
        };
        if let DeviceIdentity::Pairing { device, .. } = &self.identity {
            self.identity = DeviceIdentity::Device(Arc::clone(device));
        }
        let goes_on = match resumed {
            Some(received) => self.core.resume(carrier, received).is_ok(),
            None => false,
        };
        if !goes_on && resume.is_some() {
            self.start_over().await;
            (carrier, _) = self.core.take_over();
        }
        if resumed.is_some() && !goes_on {
            // The daemon's end of the tunnel does not fit ours any more: begin another.
            return Err(GreetError::Interrupted);
        }
        self.id = Some(id);
        let connected = Connected {
            session: session.id(),
            identity,
            relay,
            first_use,
            resumed: goes_on,
            name,
            services,
        };
        let core = Arc::clone(&self.core);
        let carrying = tokio::spawn(async move {
            let end = carry(session, &core, carrier).await;
            tracing::debug!(%end, "a tunnel's session ended");
        });
        Ok((AbortOnDropHandle::new(carrying), connected))
    }

    /// Cuts the streams off and begins a new tunnel.
    async fn start_over(&mut self) {
        let cut_off = self.core.streams();
        self.core.abort();
        (self.core, self.id) = (TunnelCore::client(), None);
        if cut_off > 0 {
            let _ = self.tell.send(TunnelNotice::StreamsLost(cut_off)).await;
        }
    }
}

/// Waits for the end of the session; never returns if there is none.
async fn ended(carrying: &mut Option<Carrying>) {
    match carrying {
        Some(task) => {
            let _ = task.await;
        }
        None => std::future::pending().await,
    }
}

const NOTICES: usize = 64;
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How often somebody who waits for a session says so.
const HURRY_EVERY: Duration = Duration::from_secs(1);
/// How long a new stream waits before it looks again whether there is room for it.
const ROOM_PAUSE: Duration = Duration::from_millis(50);
/// How long the goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);
/// How long the daemon may take to answer the hello. A session may pause right after it was
/// established; the grace period is half of this.
const PATIENCE: Duration = Duration::from_secs(60);
