//! Keeps a daemon connected: registers, opens connections, and waits between them.

use std::time::Duration;

use bowline_sbrp::api::Registered;
use bowline_sbrp::daemon::Daemon;
use bowline_sbrp::id::DaemonId;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::presence::{Presence, Registrar, keep_fresh};
use super::sessions::Sessions;
use super::{DaemonClosed, DaemonConfig, DaemonEvent};
use crate::relay::control_plane::ControlError;
use crate::relay::link::Link;
use crate::relay::random::dice;
use crate::relay::why::{End, Why};
use crate::relay::{RECONNECT, REPLACED, STEADY, address};

/// The daemon's task, before it knows its id.
pub(super) struct Driver {
    config: DaemonConfig,
    news: News,
}

/// What reaches the program, and what comes from it.
struct News {
    events: mpsc::Sender<DaemonEvent>,
    stop: CancellationToken,
}

impl News {
    fn tell(&self, event: DaemonEvent) {
        // News that nobody takes are left out; sessions are not told this way.
        let _ = self.events.try_send(event);
    }

    /// None if the daemon was stopped meanwhile.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(work).await
    }
}

impl Driver {
    pub(super) fn new(
        config: DaemonConfig,
        events: mpsc::Sender<DaemonEvent>,
        stop: CancellationToken,
    ) -> Self {
        Self { config, news: News { events, stop } }
    }

    pub(super) async fn run(self) {
        let Self { config, news } = self;
        let events = news.events.clone();
        let registrar = Registrar {
            control: config.control.clone(),
            key: config.identity.public(),
            name: config.name.clone(),
        };
        let closed = match register(&registrar, &news).await {
            Ok(presence) => Berthed::new(config, registrar, presence, news).stay().await,
            Err(closed) => closed,
        };
        let _ = events.send(DaemonEvent::Closed(closed)).await;
    }
}

/// Registers until it works, or never will.
async fn register(registrar: &Registrar, news: &News) -> Result<Presence, DaemonClosed> {
    let mut attempt = 0;
    loop {
        let asking = registrar.register(false);
        let answer = news.unless_stopped(asking).await.ok_or(DaemonClosed::Stopped)?;
        let error = match answer {
            Ok(presence) => return Ok(presence),
            Err(error) if error.may_pass() => error,
            Err(error) => return Err(DaemonClosed::Control(error)),
        };
        let retry_in = RECONNECT.delay(attempt, dice());
        attempt = attempt.saturating_add(1);
        news.tell(DaemonEvent::Lost { why: Why::Control(error), retry_in });
        news.unless_stopped(sleep(retry_in)).await.ok_or(DaemonClosed::Stopped)?;
    }
}

/// How often a replaced daemon looks in vain before it goes and sees.
const PATIENT_LOOKS: u32 = 20;

/// A daemon that has an id, connected or on its way back.
struct Berthed {
    id: DaemonId,
    registrar: Registrar,
    resumable: bool,
    replaced_wait: Duration,
    sessions: Sessions,
    presence: watch::Sender<Presence>,
    /// Another process was the daemon meanwhile: what the relay keeps is that one's.
    outlived: bool,
    news: News,
    _keeping: AbortOnDropHandle<()>,
    _upgrading: Option<AbortOnDropHandle<()>>,
}

/// How a connection ended.
enum Ending {
    Stopped,
    Lost(Why),
}

impl Berthed {
    fn new(config: DaemonConfig, registrar: Registrar, presence: Presence, news: News) -> Self {
        let id = DaemonId::new(presence.registered.daemon_id.clone());
        news.tell(DaemonEvent::Registered { daemon: id.clone() });
        let presence = watch::Sender::new(presence);
        let keeping = keep_fresh(registrar.control.clone(), id.clone(), presence.clone());
        let DaemonConfig { identity, resumable, most_sessions, watch, replaced_wait, .. } = config;
        let machine = Daemon::new(id.clone(), identity, resumable, most_sessions);
        let fingerprint = registrar.key.fingerprint();
        Self {
            sessions: Sessions::new(machine, fingerprint, watch, news.events.clone()),
            id,
            registrar,
            resumable,
            replaced_wait,
            presence,
            outlived: false,
            news,
            _keeping: AbortOnDropHandle::new(tokio::spawn(keeping)),
            _upgrading: None,
        }
    }

    async fn stay(mut self) -> DaemonClosed {
        let mut attempt = 0;
        loop {
            let opened = match self.open().await {
                Ok(opened) => opened,
                Err(closed) => return self.close(closed),
            };
            let why = match opened {
                Ok(link) => {
                    let since = Instant::now();
                    let ending = self.converse(link).await;
                    if since.elapsed() >= STEADY {
                        attempt = 0;
                    }
                    match ending {
                        Ending::Stopped => return self.close(DaemonClosed::Stopped),
                        Ending::Lost(why) => why,
                    }
                }
                Err(why) => why,
            };
            let retry_in = RECONNECT.delay(attempt, dice());
            attempt = attempt.saturating_add(1);
            tracing::debug!(%why, ?retry_in, "relay lost");
            let closed_by_relay = matches!(why, Why::Closed(_));
            let replaced = why == Why::Closed(REPLACED);
            self.news.tell(DaemonEvent::Lost { why, retry_in });
            if self.away(retry_in).await.is_none() {
                return self.close(DaemonClosed::Stopped);
            }
            if closed_by_relay && self.step_aside(replaced).await.is_none() {
                return self.close(DaemonClosed::Stopped);
            }
        }
    }

    /// The relay closed the connection in an orderly way. If the daemon is online all the same,
    /// another process has its identity, and coming back would start a fight: the newer one stays,
    /// this one waits until it is gone. None if stopped.
    async fn step_aside(&mut self, mut replaced: bool) -> Option<()> {
        let mut told = false;
        let mut unanswered = 0;
        loop {
            match self.news.unless_stopped(self.registrar.is_online(&self.id)).await? {
                Some(false) => return Some(()),
                Some(true) => replaced = true,
                // Nobody can say. One that was not told to have been replaced goes on; one that was
                // must not take that for leave to fight, nor stay away for ever.
                None if !replaced || unanswered == PATIENT_LOOKS => return Some(()),
                None => unanswered += 1,
            }
            let look_in = self.replaced_wait.mul_f64(0.75 + f64::from(dice()) / 2f64.powi(33));
            if !told {
                told = true;
                tracing::warn!("another process has this daemon's identity and is connected");
                self.news.tell(DaemonEvent::Replaced { look_in });
                // That one has ended our sessions, as one that starts anew does.
                self.outlived = true;
                self.sessions.forget(&End::Left);
            }
            self.away(look_in).await?;
        }
    }

    /// Waits without a connection. None if stopped.
    async fn away(&mut self, time: Duration) -> Option<()> {
        let waiting = self.sessions.away(Instant::now() + time);
        self.news.stop.run_until_cancelled(waiting).await
    }

    /// A connection, with a token that is good as far as we know.
    async fn open(&mut self) -> Result<Result<Link, Why>, DaemonClosed> {
        let (over, resumable) = {
            let presence = self.presence.borrow();
            (presence.is_over(), presence.resumable && !self.outlived)
        };
        if self.outlived || over {
            if let Err(why) = self.register_anew(resumable).await? {
                return Ok(Err(why));
            }
            self.outlived = false;
        }
        let Registered { relay_url, presence_token, .. } =
            self.presence.borrow().registered.clone();
        let opening = Link::open(&relay_url, &presence_token);
        let link = self.news.unless_stopped(opening).await.ok_or(DaemonClosed::Stopped)?;
        if let Err(Why::Refused(401 | 403)) = link {
            // The token may have been revoked, or the relay's keys changed.
            if let Err(why) = self.register_anew(resumable).await? {
                return Ok(Err(why));
            }
        }
        if link.is_ok() {
            let relay = relay_url.parse().map(|url| address::host(&url));
            self.news.tell(DaemonEvent::Online { relay: relay.unwrap_or(relay_url) });
            self.upgrade();
        }
        Ok(link)
    }

    /// From now on there are sessions to resume: the next connection needs a token that says so.
    fn upgrade(&mut self) {
        if !self.resumable || self.presence.borrow().resumable {
            return;
        }
        let (registrar, presence) = (self.registrar.clone(), self.presence.clone());
        let upgrading = async move {
            for attempt in 0.. {
                match registrar.register(true).await {
                    Ok(made) => {
                        presence.send_replace(made);
                        return;
                    }
                    Err(error) if !error.may_pass() => return,
                    Err(_) => sleep(RECONNECT.delay(attempt, dice())).await,
                }
            }
        };
        self._upgrading = Some(AbortOnDropHandle::new(tokio::spawn(upgrading)));
    }

    async fn register_anew(&self, resumable: bool) -> Result<Result<(), Why>, DaemonClosed> {
        let asking = self.registrar.register(resumable);
        match self.news.unless_stopped(asking).await.ok_or(DaemonClosed::Stopped)? {
            Ok(presence) if presence.registered.daemon_id == self.id.as_str() => {
                self.presence.send_replace(presence);
                Ok(Ok(()))
            }
            // Another id would be another daemon: handshakes are bound to it.
            Ok(_) => Err(DaemonClosed::Control(ControlError::Unreadable)),
            Err(error) if error.may_pass() => Ok(Err(Why::Control(error))),
            Err(error) => Err(DaemonClosed::Control(error)),
        }
    }

    /// One connection, from its beginning to its end.
    async fn converse(&mut self, mut link: Link) -> Ending {
        match self.sessions.talk(&mut link, &self.news.stop).await {
            Ok(()) => {
                link.close().await;
                Ending::Stopped
            }
            Err(why) => {
                link.abandon();
                self.sessions.link_lost();
                Ending::Lost(why)
            }
        }
    }

    /// Every handle learns that it is over.
    fn close(mut self, closed: DaemonClosed) -> DaemonClosed {
        self.sessions.forget(&End::Here);
        closed
    }
}
