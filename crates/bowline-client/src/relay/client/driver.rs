//! Keeps a client connected to its daemon: tokens, connections, back-off and the pin.

use bowline_sbrp::client::{Client, ClientInput};
use bowline_sbrp::handshake::{Trust, VerifiedIdentity};
use bowline_sbrp::id::SessionId;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::connection::{ClientConnection, ClientDisconnect, STOPPED};
use super::{ClientClosed, ClientConfig, ClientEvent};
use crate::relay::control_plane::ControlError;
use crate::relay::pins::PinError;
use crate::relay::random::dice;
use crate::relay::reasons::LossReason;
use crate::relay::socket::RelaySocket;
use crate::relay::{RECONNECT, STEADY, address};

/// The client's task.
pub(super) struct ClientDriver {
    pub(super) config: ClientConfig,
    events: mpsc::Sender<ClientEvent>,
    pub(super) stop: CancellationToken,
}

impl ClientDriver {
    pub(super) fn new(
        config: ClientConfig,
        events: mpsc::Sender<ClientEvent>,
        stop: CancellationToken,
    ) -> Self {
        Self { config, events, stop }
    }

    pub(super) async fn run(self) {
        let closed = self.reconnect_loop().await;
        let _ = self.events.send(ClientEvent::Closed(closed)).await;
    }

    async fn reconnect_loop(&self) -> ClientClosed {
        let trust = match self.trust().await {
            Ok(trust) => trust,
            Err(error) => return ClientClosed::Pins(error),
        };
        let mut machine = Client::new(self.config.daemon.clone(), trust);
        let mut first_use = trust == Trust::FirstUse;
        let mut attempt = 0;
        loop {
            let _ = machine.handle(ClientInput::Connect, now());
            let since = Instant::now();
            let ending = match self.stop.run_until_cancelled(self.dial()).await {
                None => STOPPED,
                Some(Err(reason)) => {
                    let _ = machine.handle(ClientInput::Unreachable, now());
                    reason.into()
                }
                Some(Ok((session, relay, socket))) => {
                    let connection =
                        ClientConnection::new(self, &mut machine, session, relay, &mut first_use);
                    connection.run(socket).await
                }
            };
            let reason = match ending {
                ClientDisconnect::Final(closed) => return closed,
                ClientDisconnect::Lost(reason) => reason,
            };
            if since.elapsed() >= STEADY {
                attempt = 0;
            }
            let retry_in = RECONNECT.delay(attempt, dice());
            attempt = attempt.saturating_add(1);
            tracing::debug!(%reason, ?retry_in, "session lost");
            let waiting = async {
                self.tell(ClientEvent::Lost { reason, retry_in }).await;
                sleep(retry_in).await;
            };
            if self.stop.run_until_cancelled(waiting).await.is_none() {
                return ClientClosed::Stopped;
            }
        }
    }

    /// Requests a new token and connects with it (SBRP-CLIENT-04).
    async fn dial(&self) -> Result<(SessionId, String, RelaySocket), LossReason> {
        let opened = self.config.control.open_session(&self.config.daemon).await?;
        let session = opened.session_id.parse();
        let session = session.map_err(|_| ControlError::Unreadable)?;
        let socket = RelaySocket::open(&opened.relay_url, &opened.token).await?;
        let relay = opened.relay_url.parse().map(|url| address::host(&url));
        Ok((session, relay.unwrap_or_default(), socket))
    }

    pub(super) async fn tell(&self, event: ClientEvent) {
        // If the receiver is gone, the handle was dropped, which also stopped this task.
        let _ = self.events.send(event).await;
    }

    async fn trust(&self) -> Result<Trust, PinError> {
        if let Some(approved) = self.config.approved {
            return Ok(approved);
        }
        let (pins, daemon) = (self.config.pins.clone(), self.config.daemon.clone());
        blocking(move || pins.trust(&daemon)).await
    }

    pub(super) async fn keep(&self, identity: VerifiedIdentity) {
        let (pins, daemon) = (self.config.pins.clone(), self.config.daemon.clone());
        if let Err(error) = blocking(move || pins.keep(&daemon, &identity)).await {
            tracing::warn!(%error, "the daemon's key was not kept");
            self.tell(ClientEvent::NotPinned(error)).await;
        }
    }
}

/// Runs file access on a blocking thread, so that a slow disk does not block other tasks.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Uses Tokio's clock, so that tests can advance it.
pub(super) fn now() -> std::time::Instant {
    Instant::now().into_std()
}
