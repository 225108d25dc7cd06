//! Carries out what the daemon's machine decides: owns the connection, the clock and the dice.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bowline_sbrp::api::Registered;
use bowline_sbrp::control::SdkCode;
use bowline_sbrp::daemon::{Action, Daemon, Event, Progress};
use bowline_sbrp::frame::{Beat as PingBeat, Frame, Reason};
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::identity::Fingerprint;
use bowline_sbrp::reconnect;
use bowline_sbrp::sealed::Opened;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::presence::{Presence, Registrar, keep_fresh};
use super::{DaemonClosed, DaemonConfig, DaemonEvent};
use crate::relay::control_plane::ControlError;
use crate::relay::link::Link;
use crate::relay::pulse::{Beat, Pulse, Watch};
use crate::relay::random::{dice, ephemeral};
use crate::relay::session::{Mooring, Outgoing, Quay, Undelivered};
use crate::relay::why::{End, Why};
use crate::relay::{REPLACED, STEADY};

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
        let retry_in = reconnect::delay(attempt, dice());
        attempt = attempt.saturating_add(1);
        news.tell(DaemonEvent::Lost { why: Why::Control(error), retry_in });
        news.unless_stopped(sleep(retry_in)).await.ok_or(DaemonClosed::Stopped)?;
    }
}

/// A daemon that has an id, connected or on its way back.
struct Berthed {
    id: DaemonId,
    fingerprint: Fingerprint,
    registrar: Registrar,
    resumable: bool,
    watch: Watch,
    replaced_wait: Duration,
    machine: Daemon,
    moorings: BTreeMap<SessionId, Mooring>,
    quay: Quay,
    sent: mpsc::Receiver<Outgoing>,
    left: mpsc::UnboundedReceiver<SessionId>,
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
        let (quay, sent, left) = Quay::new();
        Self {
            fingerprint: registrar.key.fingerprint(),
            machine: Daemon::new(id.clone(), identity, resumable, most_sessions),
            id,
            registrar,
            resumable,
            watch,
            replaced_wait,
            moorings: BTreeMap::new(),
            quay,
            sent,
            left,
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
            let retry_in = reconnect::delay(attempt, dice());
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
        loop {
            match self.news.unless_stopped(self.registrar.is_online(&self.id)).await? {
                Ok(false) => return Some(()),
                Ok(true) => replaced = true,
                // Nobody can say. One that was not told to have been replaced goes on.
                Err(_) if !replaced => return Some(()),
                Err(_) => {}
            }
            let look_in = self.replaced_wait.mul_f64(0.75 + f64::from(dice()) / 2f64.powi(33));
            if !told {
                told = true;
                tracing::warn!("another process has this daemon's identity and is connected");
                self.news.tell(DaemonEvent::Replaced { look_in });
                self.forget();
            }
            self.away(look_in).await?;
        }
    }

    /// The other process has ended our sessions, as one that starts anew does.
    fn forget(&mut self) {
        self.outlived = true;
        for (session, mooring) in std::mem::take(&mut self.moorings) {
            mooring.end(End::Left);
            self.handle_offline(Event::Close { session, reason: Reason::StateLost });
        }
    }

    /// Waits without a connection; sessions may be ended meanwhile. None if stopped.
    async fn away(&mut self, time: Duration) -> Option<()> {
        let until = Instant::now() + time;
        loop {
            tokio::select! {
                () = self.news.stop.cancelled() => return None,
                () = sleep_until(until) => return Some(()),
                Some(session) = self.left.recv() => {
                    self.unmoor(session, End::Here);
                    self.handle_offline(Event::Close { session, reason: Reason::None });
                }
            }
        }
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
            let relay = relay_url.parse().map(|url| crate::relay::address::host(&url));
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
                    Err(_) => sleep(reconnect::delay(attempt, dice())).await,
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
        let why = match self.talk(&mut link).await {
            Ok(()) => {
                link.close().await;
                return Ending::Stopped;
            }
            Err(why) => why,
        };
        link.abandon();
        self.handle_offline(Event::LinkLost);
        Ending::Lost(why)
    }

    /// Ends well only when the daemon is stopped.
    async fn talk(&mut self, link: &mut Link) -> Result<(), Why> {
        let outbox = link.outbox();
        let mut pulse = Pulse::new(self.watch, now());
        self.handle(Event::LinkUp, link).await?;
        loop {
            let due = self.machine.deadline().map_or(pulse.due(), |at| at.min(pulse.due()));
            let sent = async {
                // Room first: a message that is taken out of the queue must not be lost.
                let room = outbox.reserve().await;
                (room, self.sent.recv().await)
            };
            tokio::select! {
                heard = link.hear() => {
                    pulse.heard(now());
                    if let Some(frame) = heard? {
                        self.handle(Event::Frame(frame), link).await?;
                    }
                }
                (room, outgoing) = sent => {
                    drop(room.map_err(|_| Why::Stuck)?);
                    if let Some(Outgoing { session, plaintext }) = outgoing {
                        self.handle(Event::Send { session, plaintext }, link).await?;
                    }
                }
                Some(session) = self.left.recv() => self.leave(session, link).await?,
                () = sleep_until(due.into()) => {
                    match pulse.check(now()) {
                        Beat::Fine => {}
                        Beat::Ask => link.say(Frame::Ping(PingBeat::default()).encode()).await?,
                        Beat::Silent => return Err(Why::Silent),
                    }
                    self.handle(Event::Tick, link).await?;
                }
                () = self.news.stop.cancelled() => {
                    return self.handle(Event::Stop, link).await;
                }
            }
        }
    }

    /// Hands an event to the machine, and carries out what it says, and what follows from that.
    async fn handle(&mut self, event: Event, link: &Link) -> Result<(), Why> {
        let mut events = VecDeque::from([event]);
        // Once the connection fails, the rest is carried out all the same: sessions outlive it.
        let mut said = Ok(());
        while let Some(event) = events.pop_front() {
            let actions = match self.machine.handle(event, now()) {
                Ok(actions) => actions,
                Err(impossible) => {
                    // A session that ended while something of it was on its way; or a relay that
                    // makes things up, which may not do more than this.
                    tracing::debug!(%impossible, "ignored");
                    continue;
                }
            };
            for action in actions {
                match action {
                    Action::Send(message) => {
                        if said.is_ok() {
                            said = link.say(message).await;
                        }
                    }
                    Action::Offer(session) => events.push_back(match ephemeral() {
                        Ok(ephemeral) => Event::Answer { session, ephemeral },
                        Err(_) => Event::Close { session, reason: Reason::Error },
                    }),
                    Action::Session(session, progress) => {
                        events.extend(self.progress(session, progress));
                    }
                    Action::Told(code) => {
                        tracing::debug!(code = %crate::relay::why::told(code), "the relay says");
                    }
                }
            }
        }
        said
    }

    /// The same without a connection: nothing can be sent, and the machine knows.
    fn handle_offline(&mut self, event: Event) {
        let actions = self.machine.handle(event, now()).unwrap_or_default();
        for action in actions {
            if let Action::Session(session, progress) = action {
                self.progress(session, progress);
            }
        }
    }

    /// What the program hears of a session, and what follows for the machine.
    fn progress(&mut self, session: SessionId, progress: Progress) -> Option<Event> {
        match progress {
            Progress::Established => self.established(session),
            Progress::Deliver(opened) => self.deliver(session, opened),
            Progress::Suspended => None,
            Progress::Resumed => {
                if let Some(mooring) = self.moorings.get(&session) {
                    mooring.resumed();
                }
                None
            }
            Progress::Refused(code) => self.give_up(session, Why::Sdk(code), Reason::Error),
            Progress::Ended(fault) => {
                self.unmoor(session, fault.map_or(End::Left, |code| End::Lost(Why::Sdk(code))));
                None
            }
        }
    }

    fn established(&mut self, id: SessionId) -> Option<Event> {
        let (session, mooring) = self.quay.moor(id, self.fingerprint);
        match self.news.events.try_send(DaemonEvent::SessionOpened(session)) {
            Ok(()) => {
                self.moorings.insert(id, mooring);
                None
            }
            // Nobody takes sessions on: better to turn the client away than to let it wait.
            Err(_) => Some(Event::Close { session: id, reason: Reason::Policy }),
        }
    }

    fn deliver(&mut self, session: SessionId, opened: Opened) -> Option<Event> {
        let Some(mooring) = self.moorings.get_mut(&session) else {
            return Some(Event::Close { session, reason: Reason::Error });
        };
        match mooring.deliver(opened) {
            Ok(()) => None,
            Err(Undelivered::Gap) => {
                self.give_up(session, Why::Sdk(SdkCode::SequenceError), Reason::Error)
            }
            Err(Undelivered::Full(_)) => self.give_up(session, Why::Unread, Reason::Policy),
        }
    }

    fn give_up(&mut self, session: SessionId, why: Why, reason: Reason) -> Option<Event> {
        tracing::debug!(%why, "session given up");
        self.unmoor(session, End::Lost(why));
        Some(Event::Close { session, reason })
    }

    /// The program dropped a handle. What it sent before goes out first.
    async fn leave(&mut self, session: SessionId, link: &Link) -> Result<(), Why> {
        while let Ok(Outgoing { session, plaintext }) = self.sent.try_recv() {
            self.handle(Event::Send { session, plaintext }, link).await?;
        }
        self.unmoor(session, End::Here);
        self.handle(Event::Close { session, reason: Reason::None }, link).await
    }

    fn unmoor(&mut self, session: SessionId, end: End) {
        if let Some(mooring) = self.moorings.remove(&session) {
            mooring.end(end);
        }
    }

    /// Every handle learns that it is over.
    fn close(mut self, closed: DaemonClosed) -> DaemonClosed {
        for (_, mooring) in std::mem::take(&mut self.moorings) {
            mooring.end(End::Here);
        }
        closed
    }
}

/// By Tokio's clock, so that tests can move it.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
