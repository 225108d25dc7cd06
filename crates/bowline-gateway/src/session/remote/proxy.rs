//! The task behind a session's slot while another live replica owns the session.
//!
//! It has the channels of an actor. Commands and facts go to the owner in their order, over a
//! numbered link; what the owner says of the session becomes this process's live state, and its text
//! fills buffers here. It ends when nothing here needs it, or when the owner is lost: then whoever
//! waits sends again, as after the end of an actor, and surfaces reconnect.
//!
//! Invariants
//! - A reply is given after the state that belongs to it is shown, and after all chunks of a turn that
//!   it says has ended.
//! - It belongs to one owner and one link. After a change of owner there is another proxy, or an actor.

mod arrivals;
mod texts;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_bus::Lane;
use bowline_sbp::session::{CommandId, Fact, Intake, LinkSender, Refusal, ReplicaId, Reply};
use tokio::sync::mpsc;

use self::texts::Copies;
use super::beat::TRUSTED;
use super::wire::{Item, LinkId, Message, ReplyTo, ToOwner, size_of};
use super::{ACKNOWLEDGE, Incoming, PACE, at, sender};
use crate::session::driver::{Driver, Envelope, ReplyAndText, TaskReport};
use crate::session::registry::LiveSessions;

/// Items that are not acknowledged; more wait in the inbox, and then with their senders.
const WINDOW: usize = 256;
/// After which the store is asked who owns the session, if the owner does not answer.
const DOUBT: Duration = Duration::from_secs(2);
/// After which commands are refused if the owner, although alive, does not answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the owner hears from a proxy that somebody needs, and from others, if its replica sends no
/// beats or text comes.
const ALIVE: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(3);
/// How long a proxy stays when nobody needs it. Shorter than an actor, whose history is worth
/// keeping: as long as it stays, so does the owner's actor.
const LINGER: Duration = Duration::from_secs(5);
/// After which what is missing is asked for again, at first.
const ASK_AGAIN: Duration = Duration::from_millis(100);

pub(super) struct Proxy<'a> {
    driver: &'a mut Driver,
    owner: ReplicaId,
    link: LinkId,
    items: LinkSender<Arc<Item>>,
    replies: Intake,
    /// Replies that wait for a state or for text, in order.
    held: Vec<(u64, Arc<ReplyTo>)>,
    /// Surfaces of this process that are attached.
    attached: BTreeSet<u64>,
    /// The version of the state that is shown.
    version: u64,
    texts: Copies,
    heard: Instant,
    /// Since when an answer is expected.
    expects: Instant,
    /// The owner was told that somebody here watches.
    watches: bool,
    /// When the owner was last sent something.
    sent: Option<Instant>,
    acknowledge: Option<Instant>,
    /// When the store is asked for the owner, while that does not answer.
    doubt: Option<Instant>,
    /// When something that is missing is asked for again, and how long the wait before that is.
    missing: Option<(Instant, Duration)>,
}

/// Why a proxy ends.
#[derive(PartialEq)]
enum End {
    Unneeded,
    OwnerLost,
}

/// Forgets a link when its proxy ends, however it ends.
struct Forgotten {
    sessions: Arc<LiveSessions>,
    link: LinkId,
}

impl Drop for Forgotten {
    fn drop(&mut self) {
        self.sessions.remote.forget(self.link);
    }
}

impl Driver {
    /// Stands for the session's actor at another replica, until that is lost or nobody here needs it.
    pub(in crate::session) async fn follow(&mut self, owner: ReplicaId) {
        let sessions = Arc::clone(&self.sessions);
        let (link, mut incoming) = sessions.remote.link_to(owner);
        let _forgotten = Forgotten { sessions: Arc::clone(&sessions), link };
        self.own_ref.status().role.set_proxy();
        let mut proxy = Proxy::new(self, owner, link);
        let end = proxy.run(&mut incoming).await;
        proxy.leave().await;
        self.owner_lost = end == End::OwnerLost;
    }
}

impl<'a> Proxy<'a> {
    fn new(driver: &'a mut Driver, owner: ReplicaId, link: LinkId) -> Self {
        let now = Instant::now();
        Self {
            driver,
            owner,
            link,
            items: sender(),
            replies: Intake::default(),
            held: Vec::new(),
            attached: BTreeSet::new(),
            version: 0,
            texts: Copies::default(),
            heard: now,
            expects: now,
            watches: false,
            sent: None,
            acknowledge: None,
            doubt: None,
            missing: None,
        }
    }

    async fn run(&mut self, incoming: &mut mpsc::Receiver<Incoming>) -> End {
        let mut linger = None;
        loop {
            self.give();
            self.texts.tidy(&self.driver.own_ref.live.borrow().state);
            let needed = self.is_needed();
            self.driver.own_ref.status().busy.store(needed, std::sync::atomic::Ordering::Relaxed);
            match (needed, self.driver.stopping) {
                (false, true) => return End::Unneeded,
                (false, false) => {
                    linger.get_or_insert(Instant::now() + LINGER);
                }
                (true, _) => linger = None,
            }
            self.flush().await;
            let alive = self.alive_at(needed);
            let timers = [
                self.items.deadline(),
                self.acknowledge,
                self.doubt,
                self.missing.map(|(at, _)| at),
                alive,
            ];
            let until = timers.into_iter().flatten().min();
            let driver = &mut *self.driver;
            let watched = driver.own_ref.live.receiver_count() > 0;
            tokio::select! {
                biased;
                message = incoming.recv() => {
                    let Some(message) = message else { return End::OwnerLost };
                    if !self.arrived(message) {
                        return End::OwnerLost;
                    }
                }
                Some(report) = driver.reports.recv() => self.report(*report),
                Some(envelope) = driver.inbox.recv(), if self.items.len() < WINDOW => {
                    self.pass_on(envelope);
                }
                // It may not be needed any more.
                () = driver.own_ref.live.closed(), if watched && needed => {}
                () = driver.identity.ended.cancelled() => return End::OwnerLost,
                () = driver.sessions.stop.cancelled(), if !driver.stopping => {
                    driver.stopping = true;
                }
                () = at(linger), if linger.is_some() => {
                    if driver.may_close().await {
                        return End::Unneeded;
                    }
                    linger = None;
                }
                () = at(until) => {
                    if self.doubt.is_some_and(|at| at <= Instant::now()) && self.is_lost().await {
                        return End::OwnerLost;
                    }
                }
            }
        }
    }

    /// Whether somebody here watches, or waits for something.
    fn is_needed(&self) -> bool {
        let driver = &*self.driver;
        driver.own_ref.live.receiver_count() > 0
            || !driver.replies.is_empty()
            || !self.items.is_empty()
            || !self.attached.is_empty()
            || !driver.inbox.is_empty()
            || !driver.reports.is_empty()
    }

    /// When the owner is to hear from this proxy again; none: now.
    fn alive_at(&self, needed: bool) -> Option<Instant> {
        let alive = self.sent? + if needed { ALIVE } else { IDLE };
        // The last piece of a text may have been lost.
        if !self.texts.is_empty() {
            return Some(alive);
        }
        let heard = self.driver.sessions.remote.heard_of(self.owner);
        Some(heard.map_or(alive, |heard| alive.max(heard + TRUSTED)))
    }

    /// How long the answer to what is missing may be on its way.
    fn answer_time(&self) -> Duration {
        ASK_AGAIN.max(self.items.round_trip() * 3 / 2).min(PACE.longest)
    }

    /// Some of what was missing came.
    fn came(&mut self) {
        let soon = Instant::now() + self.answer_time();
        if let Some((at, wait)) = &mut self.missing {
            (*at, *wait) = ((*at).min(soon), Duration::ZERO);
        }
    }

    /// Replies up to here were given. Until then the owner keeps what belongs to them.
    fn given(&self) -> u64 {
        self.held.first().map_or(self.replies.took(), |(number, _)| number - 1)
    }

    /// A handle sent a command.
    fn pass_on(&mut self, envelope: Box<Envelope>) {
        let Envelope { command, reply, forwarded } = *envelope;
        // Its sender takes this replica for the owner: without a reply it looks again.
        if forwarded {
            return;
        }
        let number = self.push(Item::Command(command));
        self.driver.replies.insert(CommandId(number), reply);
    }

    /// A surface reported something.
    fn report(&mut self, report: TaskReport) {
        let TaskReport::Fact(fact) = report else { return };
        if let Fact::SurfaceGone { epoch, .. } = &fact {
            self.attached.remove(epoch);
        }
        self.push(Item::Fact(fact));
    }

    fn push(&mut self, item: Item) -> u64 {
        let bytes = size_of(&item);
        self.items.push(Arc::new(item), bytes, Instant::now())
    }

    /// Sends what is to be sent.
    async fn flush(&mut self) {
        let now = Instant::now();
        let items = self.items.due(now);
        let alive = self.alive_at(self.is_needed()).is_none_or(|at| at <= now);
        let missing = self.missing.is_none_or(|(at, _)| at <= now);
        let behind = missing && self.is_behind();
        let read = if missing { self.missing_text(alive) } else { Vec::new() };
        let acknowledge = self.acknowledge.is_some_and(|until| until <= now);
        if missing {
            let more = behind || !read.is_empty() || !self.held.is_empty();
            self.missing = more.then(|| {
                let before = self.missing.map_or(Duration::ZERO, |(_, wait)| wait);
                let wait = (before * 2).clamp(self.answer_time(), PACE.longest);
                (now + wait, wait)
            });
        }
        let watches = self.driver.own_ref.live.receiver_count() > 0;
        let is_news = watches != self.watches;
        if items.is_empty() && !alive && !behind && read.is_empty() && !acknowledge && !is_news {
            return;
        }
        self.watches = watches;
        let asks = alive || behind || !read.is_empty();
        if asks || !items.is_empty() {
            // An answer is expected now.
            if self.doubt.is_none() {
                self.expects = now;
            }
            self.doubt.get_or_insert(now + DOUBT);
        }
        (self.sent, self.acknowledge) = (Some(now), None);
        self.send(items, (behind, asks), read, false).await;
    }

    async fn send(
        &self,
        items: Vec<(u64, Arc<Item>)>,
        (behind, asks): (bool, bool),
        read: Vec<super::wire::TextAt>,
        ends: bool,
    ) {
        let driver = &*self.driver;
        let message = Message::ToOwner(Box::new(ToOwner {
            session: driver.id,
            link: self.link,
            base: self.items.base(),
            items,
            took: self.given(),
            version: self.version,
            behind,
            asks,
            watches: self.watches,
            read,
            ends,
        }));
        let (me, remote) = (driver.identity.me, &driver.sessions.remote);
        remote.send(me, self.owner, Lane::Control, &message).await;
    }

    /// The owner has not answered for a while: whether the session has another one.
    async fn is_lost(&mut self) -> bool {
        let silent = self.heard.max(self.expects).elapsed();
        if silent >= PATIENCE {
            tracing::warn!(owner = %self.owner.0, "the owner of a session does not answer");
            for (_, waiting) in self.driver.replies.drain() {
                let reply = Reply::Refused(Refusal::Unreachable);
                let _ = waiting.send(ReplyAndText { reply, text: None });
            }
            return true;
        }
        self.doubt = Some(Instant::now() + DOUBT);
        match self.driver.sessions.store.owner(self.driver.id).await {
            Ok(owner) => owner != Some(self.owner),
            // Nobody can take it over, either.
            Err(_) => false,
        }
    }

    /// Says goodbye: the owner reports surfaces of this link as gone.
    async fn leave(&mut self) {
        self.texts.abandon();
        self.send(Vec::new(), (false, false), Vec::new(), true).await;
    }

    fn acknowledge_soon(&mut self) {
        self.acknowledge.get_or_insert(Instant::now() + ACKNOWLEDGE);
    }
}
