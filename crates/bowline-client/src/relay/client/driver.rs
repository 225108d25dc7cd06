//! Keeps a client connected to its daemon: tokens, connections, back-off and the pin.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::client::{Client, ClientInput};
use bowline_sbrp::handshake::{Trust, VerifiedIdentity};
use bowline_sbrp::id::SessionId;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::connection::{ClientConnection, ClientDisconnect, STOPPED};
use super::{ClientClosed, ClientConfig, ClientEvent};
use crate::relay::blocking::blocking;
use crate::relay::control_plane::ControlError;
use crate::relay::pins::KnownError;
use crate::relay::random::dice;
use crate::relay::reasons::LossReason;
use crate::relay::socket::RelaySocket;
use crate::relay::{RECONNECT, STEADY, address};

/// The client's task.
pub(super) struct ClientDriver {
    pub(super) config: ClientConfig,
    events: mpsc::Sender<ClientEvent>,
    /// Somebody waits for a session.
    hurry: Arc<Notify>,
    pub(super) stop: CancellationToken,
}

impl ClientDriver {
    pub(super) fn new(
        config: ClientConfig,
        events: mpsc::Sender<ClientEvent>,
        hurry: Arc<Notify>,
        stop: CancellationToken,
    ) -> Self {
        Self { config, events, hurry, stop }
    }

    pub(super) async fn run(self) {
        let closed = self.reconnect_loop().await;
        let _ = self.events.send(ClientEvent::Closed(closed)).await;
    }

    async fn reconnect_loop(&self) -> ClientClosed {
        let trust = match self.trust().await {
            Ok(trust) => trust,
            Err(error) => return error.into(),
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
                self.pause(retry_in).await;
            };
            if self.stop.run_until_cancelled(waiting).await.is_none() {
                return ClientClosed::Stopped;
            }
        }
    }

    /// Waits before the next attempt; not for long if somebody waits for it.
    async fn pause(&self, retry_in: Duration) {
        let hurried = async {
            sleep(HURRIED.min(retry_in)).await;
            self.hurry.notified().await;
        };
        tokio::select! {
            () = sleep(retry_in) => {}
            () = hurried => {}
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

    async fn trust(&self) -> Result<Trust, KnownError> {
        let ClientConfig { vouched, known, name, daemon, .. } = self.config.clone();
        match vouched {
            Some(fingerprint) => Ok(Trust::Fingerprint(fingerprint)),
            None => blocking(move || known.trust(&name, &daemon)).await,
        }
    }

    /// Pins a key. Fails if another one was pinned meanwhile.
    pub(super) async fn keep(&self, identity: VerifiedIdentity) -> Result<(), ClientClosed> {
        let ClientConfig { vouched, known, name, daemon, .. } = self.config.clone();
        let keep = move || known.keep(&name, &daemon, &identity, vouched.is_some());
        match blocking(keep).await {
            Ok(()) => Ok(()),
            Err(KnownError::OtherDaemon(other)) => Err(KnownError::OtherDaemon(other).into()),
            Err(error) => {
                tracing::warn!(%error, "the daemon's key was not kept");
                self.tell(ClientEvent::NotPinned(error)).await;
                Ok(())
            }
        }
    }
}

/// The shortest pause between two attempts for which somebody waits.
const HURRIED: Duration = Duration::from_secs(1);

/// Uses Tokio's clock, so that tests can advance it.
pub(super) fn now() -> std::time::Instant {
    Instant::now().into_std()
}
