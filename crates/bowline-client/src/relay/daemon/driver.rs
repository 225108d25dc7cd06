//! Keeps a daemon connected: registers, connects, and waits between attempts.
//!
//! A relay that cannot be reached, or that sends the daemon away, is told to the control plane, which
//! may name another one. That is tried at once. If its answer is lost, it may send clients elsewhere
//! already: once online, the daemon asks again until it knows where it belongs.

mod opening;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_sbrp::api::DeviceKey;
use bowline_sbrp::daemon::Daemon;
use bowline_sbrp::id::DaemonId;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::device_keys::keep_told;
use super::presence::{Assignment, Presence, Registrar, keep_fresh, outdated};
use super::sessions::DaemonSessions;
use super::{DaemonClosed, DaemonConfig, DaemonEvent};
use crate::relay::random::{self, dice};
use crate::relay::reasons::{LossReason, SessionEnd};
use crate::relay::socket::RelaySocket;
use crate::relay::{RECONNECT, REPLACED, RESTART, STEADY};

/// The daemon's task, before its id is known.
pub(super) struct DaemonDriver {
    config: DaemonConfig,
    sink: EventSink,
}

/// Sends events to the program, and receives its stop request.
struct EventSink {
    events: mpsc::Sender<DaemonEvent>,
    stop: CancellationToken,
}

impl EventSink {
    fn tell(&self, event: DaemonEvent) {
        // Events that do not fit the queue are dropped; sessions are not announced this way.
        let _ = self.events.try_send(event);
    }

    /// `None` if the daemon was stopped meanwhile.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(work).await
    }
}

impl DaemonDriver {
    pub(super) fn new(
        config: DaemonConfig,
        events: mpsc::Sender<DaemonEvent>,
        stop: CancellationToken,
    ) -> Self {
        Self { config, sink: EventSink { events, stop } }
    }

    pub(super) async fn run(self) {
        let Self { config, sink } = self;
        let events = sink.events.clone();
        let registrar = Registrar {
            control: config.control.clone(),
            key: config.identity.public(),
            name: config.name.clone(),
            // Without random bytes there is no handshake, either.
            process: random::bytes::<16>().ok().map(|bytes| URL_SAFE_NO_PAD.encode(bytes)),
            region: config.region.clone(),
        };
        let closed = match register(&registrar, &sink).await {
            Ok(presence) => {
                DaemonConnector::new(config, registrar, presence, sink).reconnect_loop().await
            }
            Err(closed) => closed,
        };
        let _ = events.send(DaemonEvent::Closed(closed)).await;
    }
}

/// Registers, with retries, until it succeeds or fails permanently.
async fn register(registrar: &Registrar, sink: &EventSink) -> Result<Presence, DaemonClosed> {
    let mut attempt = 0;
    loop {
        let asking = registrar.register(false);
        let answer = sink.unless_stopped(asking).await.ok_or(DaemonClosed::Stopped)?;
        let error = match answer {
            Ok(presence) => return Ok(presence),
            Err(error) if error.may_pass() => error,
            Err(error) => return Err(DaemonClosed::Control(error)),
        };
        let retry_in = RECONNECT.delay(attempt, dice());
        attempt = attempt.saturating_add(1);
        sink.tell(DaemonEvent::Lost { reason: LossReason::Control(error), retry_in });
        sink.unless_stopped(sleep(retry_in)).await.ok_or(DaemonClosed::Stopped)?;
    }
}

/// How many failed status checks a replaced daemon tolerates before it reconnects anyway.
const PATIENT_LOOKS: u32 = 20;

/// A registered daemon: connected, or about to reconnect.
struct DaemonConnector {
    id: DaemonId,
    registrar: Registrar,
    resumable: bool,
    replaced_wait: Duration,
    sessions: DaemonSessions,
    presence: watch::Sender<Presence>,
    /// Another process was connected as this daemon: the sessions at the relay belong to that one.
    outlived: bool,
    /// Whether the control plane says that another process has taken this one's place.
    replaced: watch::Sender<bool>,
    /// Relays that could not be reached, or sent the daemon away, since it was online last.
    unreachable: Vec<String>,
    /// The last request for another relay was not answered: the daemon may be assigned to one that it
    /// does not know.
    unanswered: bool,
    sink: EventSink,
    _keeping: AbortOnDropHandle<()>,
    _telling: Option<AbortOnDropHandle<()>>,
    _renewing: Option<AbortOnDropHandle<()>>,
}

/// How a connection ended.
enum DaemonDisconnect {
    Stopped,
    Lost(LossReason),
}

impl DaemonConnector {
    fn new(
        config: DaemonConfig,
        registrar: Registrar,
        presence: Presence,
        sink: EventSink,
    ) -> Self {
        let id = DaemonId::new(presence.registered.daemon_id.clone());
        sink.tell(DaemonEvent::Registered { daemon: id.clone() });
        let presence = watch::Sender::new(presence);
        let replaced = watch::Sender::new(false);
        let keeping = keep_fresh(registrar.clone(), presence.clone(), replaced.clone());
        let DaemonConfig {
            identity,
            resumable,
            most_sessions,
            liveness,
            replaced_wait,
            devices,
            ..
        } = config;
        let telling = devices.map(|book| {
            let events = sink.events.clone();
            let failed = move |error| {
                let _ = events.try_send(DaemonEvent::DevicesNotTold(error));
            };
            let (control, daemon, presence) =
                (registrar.control.clone(), id.clone(), presence.subscribe());
            AbortOnDropHandle::new(tokio::spawn(async move {
                let tell = |devices: Vec<DeviceKey>| {
                    let (control, daemon) = (&control, &daemon);
                    async move { control.set_devices(daemon, &devices).await }
                };
                keep_told(book, presence, tell, failed).await;
            }))
        });
        let machine = Daemon::new(id.clone(), identity, resumable, most_sessions);
        let fingerprint = registrar.key.fingerprint();
        Self {
            sessions: DaemonSessions::new(machine, fingerprint, liveness, sink.events.clone()),
            id,
            registrar,
            resumable,
            replaced_wait,
            presence,
            outlived: false,
            replaced,
            unreachable: Vec::new(),
            unanswered: false,
            sink,
            _keeping: AbortOnDropHandle::new(tokio::spawn(keeping)),
            _telling: telling,
            _renewing: None,
        }
    }

    async fn reconnect_loop(mut self) -> DaemonClosed {
        let mut attempt = 0;
        loop {
            let opened = match self.open().await {
                Ok(opened) => opened,
                Err(closed) => return self.close(closed),
            };
            let reason = match opened {
                Ok((socket, assignment)) => {
                    let since = Instant::now();
                    let ending = self.serve(socket, &assignment).await;
                    // A move is no failure.
                    let is_move = matches!(ending, DaemonDisconnect::Lost(LossReason::Moved));
                    if since.elapsed() >= STEADY || is_move {
                        attempt = 0;
                    }
                    match ending {
                        DaemonDisconnect::Stopped => return self.close(DaemonClosed::Stopped),
                        DaemonDisconnect::Lost(reason) => reason,
                    }
                }
                Err(reason) => reason,
            };
            let retry_in = RECONNECT.delay(attempt, dice());
            attempt = attempt.saturating_add(1);
            tracing::debug!(%reason, ?retry_in, "relay lost");
            // A relay that restarts or is drained closes all: that says nothing of another process.
            let closed_by_relay =
                matches!(reason, LossReason::Closed(code) if code != RESTART) || is_fenced(&reason);
            let replaced = reason == LossReason::Closed(REPLACED) || is_fenced(&reason);
            if reason == LossReason::Closed(RESTART) {
                self.cannot_reach_relay();
            }
            if is_fenced(&reason) {
                self.outlive();
            }
            self.sink.tell(DaemonEvent::Lost { reason, retry_in });
            if self.away(retry_in).await.is_none() {
                return self.close(DaemonClosed::Stopped);
            }
            if closed_by_relay && self.step_aside(replaced).await.is_none() {
                return self.close(DaemonClosed::Stopped);
            }
        }
    }

    /// The relay closed the connection in an orderly way. If the daemon is still online, another
    /// process uses its identity, and a reconnect would make the two replace each other for ever:
    /// the newer one stays connected, this one waits until it disconnects. `None` if stopped.
    async fn step_aside(&mut self, mut replaced: bool) -> Option<()> {
        let mut told = false;
        let mut unanswered = 0;
        loop {
            match self.sink.unless_stopped(self.registrar.is_online(&self.id)).await? {
                Some(false) => return Some(()),
                Some(true) => replaced = true,
                // The online status is unknown. A daemon not known to be replaced reconnects;
                // a replaced one keeps waiting, but not for ever.
                None if !replaced || unanswered == PATIENT_LOOKS => return Some(()),
                None => unanswered += 1,
            }
            let look_in = self.replaced_wait.mul_f64(0.75 + f64::from(dice()) / 2f64.powi(33));
            if !told {
                told = true;
                tracing::warn!("another process has this daemon's identity and is connected");
                self.sink.tell(DaemonEvent::Replaced { look_in });
                self.outlive();
            }
            self.away(look_in).await?;
        }
    }

    /// Another process has this one's place, and ended its sessions, as every newly started daemon
    /// does. This one has to register anew to take its place back.
    fn outlive(&mut self) {
        self.outlived = true;
        self.sessions.forget(&SessionEnd::Left);
    }

    /// Waits without a connection. `None` if stopped.
    async fn away(&mut self, time: Duration) -> Option<()> {
        let waiting = self.sessions.away(Instant::now() + time);
        self.sink.stop.run_until_cancelled(waiting).await
    }

    /// Serves one connection until it ends.
    async fn serve(
        &mut self,
        mut socket: RelaySocket,
        assignment: &Assignment,
    ) -> DaemonDisconnect {
        let outdated = outdated(&self.presence, &self.replaced, assignment);
        match self.sessions.serve(&mut socket, &self.sink.stop, outdated).await {
            Ok(()) => {
                socket.close().await;
                DaemonDisconnect::Stopped
            }
            Err(reason) => {
                match reason {
                    LossReason::Moved => socket.close().await,
                    _ => socket.abandon(),
                }
                self.sessions.connection_lost();
                DaemonDisconnect::Lost(reason)
            }
        }
    }

    /// Ends every session handle.
    fn close(mut self, closed: DaemonClosed) -> DaemonClosed {
        self.sessions.forget(&SessionEnd::Here);
        closed
    }
}

/// Whether another process has taken the daemon's place, and this one may not come back with its
/// token.
fn is_fenced(reason: &LossReason) -> bool {
    matches!(reason, LossReason::Replaced | LossReason::Refused(409))
}
