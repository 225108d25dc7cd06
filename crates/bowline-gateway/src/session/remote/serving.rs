//! The owner's end of one link: what a proxy of another replica sends goes into the inbox of the
//! session's actor; replies, states and text go back.
//!
//! Nothing is decided here. States are coalesced: the newest is sent, and text is what gathered while
//! the message before it was sent.
//!
//! Invariants
//! - Commands of one proxy reach the actor in their order, each once.
//! - A reply is sent with a state at least as new, and with the text that its turn has by then.
//! - When a link ends, however it ends, the surfaces that it attached are reported as gone.

mod text;

use std::collections::{BTreeSet, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bowline_bus::Lane;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::SessionId;
use bowline_sbp::session::{
    Arrival, Command, Fact, Intake, LinkSender, LiveState, Refusal, ReplicaId, Reply,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};

use self::text::Texts;
use super::wire::{Item, LinkId, Message, ReplyTo, StateAt, TextAt, ToEdge, ToOwner, size_of};
use super::{ACKNOWLEDGE, CUT_OFF, Incoming, PACE, SILENCE, at, sender};
use crate::session::driver::{Envelope, ReplyAndText, TaskReport};
use crate::session::live::{Live, Phase};
use crate::session::registry::{ActorRef, Identity, LiveSessions};

const OF_LATER_RELEASE: &str = "the gateway process that runs the session is of an earlier release and cannot do this; try again \
     when all of them are upgraded";

/// The number of a command, and what its actor replied; none if it ended without a reply.
type Answered = (u64, Option<ReplyAndText>);

pub(super) struct Serving {
    sessions: Arc<LiveSessions>,
    identity: Identity,
    session: SessionId,
    edge: ReplicaId,
    link: LinkId,
    actor: ActorRef,
    live: watch::Receiver<Live>,
    items: Intake,
    replies: LinkSender<Arc<ReplyTo>>,
    asked: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// The surfaces that were attached over this link.
    epochs: BTreeSet<u64>,
    /// The newest state of the session, while its actor lived.
    state: Option<Arc<LiveState>>,
    /// Counts the states of this link: the newest, and the newest that was sent.
    version: u64,
    shown: u64,
    shown_at: Instant,
    /// The newest that has arrived at the edge, and how often the one after it was sent again.
    seen: u64,
    repetitions: u32,
    texts: Texts,
    /// Somebody at the edge watches the session.
    watches: bool,
    /// Commands whose turn is streamed, if it is accepted.
    streams: HashSet<u64>,
    /// When what arrived is acknowledged at the latest.
    acknowledge: Option<Instant>,
    heard: Instant,
    /// The actor has ended. Replies that it gave are still delivered.
    is_over: bool,
}

/// Why a link ends.
#[derive(PartialEq)]
enum End {
    /// The proxy is gone.
    EdgeGone,
    /// The session's actor is not here, or not any more.
    NotMine,
}

impl Serving {
    /// Serves a link until it ends.
    pub(super) async fn run(
        sessions: Arc<LiveSessions>,
        edge: ReplicaId,
        first: Box<ToOwner>,
        incoming: mpsc::Receiver<Incoming>,
    ) {
        let (link, session) = (first.link, first.session);
        let end = match actor_of(&sessions, session).await {
            Some(actor) => {
                let mut serving = Self::new(Arc::clone(&sessions), edge, (session, link), actor);
                // A panic ends this link only, and its surfaces are still reported.
                let served = AssertUnwindSafe(serving.serve(first, incoming)).catch_unwind().await;
                let end = served.unwrap_or_else(|_| {
                    metrics::counter!("bowline_panics_total").increment(1);
                    End::NotMine
                });
                for epoch in std::mem::take(&mut serving.epochs) {
                    // Their replica has stopped, or is lost: they are expected at another one.
                    serving.report(Fact::SurfaceGone { epoch, restarts: true });
                }
                end
            }
            None => End::NotMine,
        };
        sessions.remote.served(link);
        if end == End::NotMine {
            not_mine(sessions, edge, vec![link]).await;
        }
    }

    fn new(
        sessions: Arc<LiveSessions>,
        edge: ReplicaId,
        (session, link): (SessionId, LinkId),
        actor: ActorRef,
    ) -> Self {
        let mut live = actor.live.subscribe();
        live.mark_changed();
        actor.status().quiet_links.fetch_add(1, Ordering::Relaxed);
        Self {
            identity: sessions.identity(),
            sessions,
            session,
            edge,
            link,
            actor,
            live,
            items: Intake::default(),
            replies: sender(),
            asked: FuturesUnordered::new(),
            epochs: BTreeSet::new(),
            state: None,
            version: 0,
            shown: 0,
            shown_at: Instant::now(),
            seen: 0,
            repetitions: 0,
            texts: Texts::default(),
            watches: false,
            streams: HashSet::new(),
            acknowledge: None,
            heard: Instant::now(),
            is_over: false,
        }
    }

    async fn serve(&mut self, first: Box<ToOwner>, mut incoming: mpsc::Receiver<Incoming>) -> End {
        if let Some(end) = self.take(*first).await {
            return end;
        }
        loop {
            if self.actor.status().role.is_proxy() {
                return End::NotMine;
            }
            self.flush().await;
            if self.is_over && self.asked.is_empty() && self.replies.is_empty() {
                return End::NotMine;
            }
            let silent = Some(self.heard_at() + SILENCE);
            let until = [self.replies.deadline(), self.acknowledge, self.state_due(), silent];
            let until = until.into_iter().flatten().min();
            tokio::select! {
                biased;
                // First: an actor that ends has replied before.
                Some((command, answer)) = self.asked.next() => match answer {
                    Some(answer) => self.answered(command, answer),
                    None => self.is_over = true,
                },
                message = incoming.recv() => {
                    let ends = match message {
                        Some(Incoming::ToOwner(message)) => self.take(*message).await,
                        Some(Incoming::ToEdge(_) | Incoming::Text(_)) => None,
                        Some(Incoming::Dead) | None => Some(End::EdgeGone),
                    };
                    if let Some(end) = ends {
                        return end;
                    }
                }
                // `see` takes note of it.
                _ = self.live.changed() => self.live.mark_changed(),
                () = self.texts.grew() => {}
                () = self.actor.commands.closed(), if !self.is_over => {
                    self.is_over = !self.reopened().await;
                }
                () = self.identity.ended.cancelled() => return End::NotMine,
                () = at(until) => {
                    if self.heard_at().elapsed() >= SILENCE {
                        tracing::info!(edge = %self.edge.0, "a replica with surfaces is silent");
                        return End::EdgeGone;
                    }
                }
            }
        }
    }

    /// Takes what the proxy sent. Returns why the link ends, if it does.
    async fn take(&mut self, message: ToOwner) -> Option<End> {
        let now = Instant::now();
        if now - self.heard > CUT_OFF {
            self.replies.heard_again();
        }
        self.heard = now;
        self.replies.acknowledged(message.took, now);
        self.texts.acknowledged(self.replies.base());
        if message.version > self.seen {
            (self.seen, self.repetitions) = (message.version.min(self.version), 0);
        }
        if message.behind {
            // The state that was sent did not arrive.
            self.shown = 0;
        }
        if message.asks || message.behind || !message.items.is_empty() {
            self.acknowledge.get_or_insert(now + ACKNOWLEDGE);
        }
        self.watch(message.watches);
        message.read.iter().for_each(|at| self.texts.again(*at));
        for (number, item) in message.items {
            if self.items.arrived(number, message.base) != Arrival::Take {
                continue;
            }
            match Arc::unwrap_or_clone(item) {
                Item::Fact(fact) => {
                    if let Fact::SurfaceGone { epoch, .. } = &fact {
                        self.epochs.remove(epoch);
                    }
                    self.report(fact);
                }
                // Its sender is of a later release, and may wait for a reply.
                Item::Unknown => {
                    let failure = Failure::new(Code::NotNow, OF_LATER_RELEASE);
                    let reply = Reply::Refused(Refusal::Failed(failure));
                    self.answered(number, ReplyAndText { reply, text: None });
                }
                Item::Command(command) => {
                    if self.is_over || !self.pass_on(number, command).await {
                        return Some(End::NotMine);
                    }
                }
            }
        }
        message.ends.then_some(End::EdgeGone)
    }

    /// When the edge was last heard, on this link or in a beat.
    fn heard_at(&self) -> Instant {
        let beat = self.sessions.remote.heard_of(self.edge);
        beat.map_or(self.heard, |beat| beat.max(self.heard))
    }

    /// When the state that was sent is sent again, unless the edge says that it has it.
    fn state_due(&self) -> Option<Instant> {
        let usual = PACE.first.max(self.replies.round_trip() * 3 / 2);
        let wait = usual.saturating_mul(2_u32.saturating_pow(self.repetitions)).min(PACE.longest);
        (self.seen < self.shown).then(|| self.shown_at + wait)
    }

    fn watch(&mut self, watches: bool) {
        let quiet = &self.actor.status().quiet_links;
        match (self.watches, watches) {
            (false, true) => {
                quiet.fetch_sub(1, Ordering::Relaxed);
            }
            (true, false) => {
                quiet.fetch_add(1, Ordering::Relaxed);
            }
            (false, false) | (true, true) => {}
        }
        self.watches = watches;
        self.texts.watch(watches);
    }

    /// Puts a command into the actor's inbox. False if the actor has ended.
    async fn pass_on(&mut self, number: u64, command: Command) -> bool {
        let streams = match &command {
            Command::Submit(submit) => submit.request.stream,
            Command::Join { .. } => true,
            _ => false,
        };
        if streams {
            self.streams.insert(number);
        }
        let (mut envelope, answered) = Envelope::new(command);
        envelope.forwarded = true;
        self.asked.push(Box::pin(async move { (number, answered.await.ok()) }));
        match self.actor.commands.send(envelope).await {
            Ok(()) => true,
            Err(unsent) => {
                self.reopened().await && self.actor.commands.send(unsent.0).await.is_ok()
            }
        }
    }

    /// Whether the actor, which has closed its inbox, goes on with another one.
    async fn reopened(&mut self) -> bool {
        let again = self.sessions.reopening(self.session, &self.actor).await;
        again.map(|actor| self.actor = actor).is_some()
    }

    fn report(&self, fact: Fact) {
        let _ = self.actor.facts.send(TaskReport::fact(fact));
    }

    /// The actor replied to a command.
    fn answered(&mut self, command: u64, answer: ReplyAndText) {
        let ReplyAndText { reply, text } = answer;
        // Watchers see the state before the reply is given, so this one is new enough.
        self.see();
        let number = self.replies.base() + self.replies.len() as u64;
        let text = match (&reply, text) {
            (Reply::Attached(attached), _) => {
                self.epochs.insert(attached.epoch);
                None
            }
            (Reply::Accepted { .. }, Some(text)) => {
                let (turn, attempt) = (text.turn, text.attempt);
                if self.streams.contains(&command) {
                    self.texts.follow_chunks(text);
                }
                Some(TextAt { turn, attempt, chunks: 0, bytes: 0 })
            }
            (Reply::Ended { turn, .. }, _) => self.texts.ends(*turn, number),
            _ => None,
        };
        self.streams.remove(&command);
        let reply = ReplyTo { command, version: self.version, text, reply };
        let bytes = size_of(&reply);
        self.replies.push(Arc::new(reply), bytes, Instant::now());
    }

    /// Takes note of a newer state.
    fn see(&mut self) {
        if !self.live.has_changed().unwrap_or_default() {
            return;
        }
        let live = self.live.borrow_and_update();
        if live.phase == Phase::Known {
            self.version += 1;
            self.state = Some(Arc::clone(&live.state));
            self.texts.tidy(&live.state);
            self.texts.runs(live.text.as_ref());
        }
    }

    /// Sends what is to be sent.
    async fn flush(&mut self) {
        self.see();
        let now = Instant::now();
        let replies = self.replies.due(now);
        let again = self.state_due().is_some_and(|at| at <= now);
        self.repetitions = self.repetitions.saturating_add(u32::from(again));
        let is_new = self.version > self.shown || again;
        let acknowledge = self.acknowledge.is_some_and(|until| until <= now);
        let text = self.texts.pieces(self.link);
        let (me, remote) = (self.identity.me, &self.sessions.remote);
        // Before the reply that says that the turn has ended.
        for (lane, piece) in text {
            remote.send(me, self.edge, lane, &Message::Text(Box::new(piece))).await;
        }
        if is_new || acknowledge || !replies.is_empty() {
            let state = self.state.clone().filter(|_| is_new);
            let state = state.map(|state| StateAt::new(self.version, state, now));
            (self.shown, self.acknowledge) = (self.version, None);
            if is_new {
                self.shown_at = now;
            }
            let message = Message::ToEdge(Box::new(ToEdge {
                link: self.link,
                took: self.items.took(),
                base: self.replies.base(),
                replies,
                state,
                not_mine: false,
            }));
            remote.send(me, self.edge, Lane::Control, &message).await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.watch(true);
    }
}

/// The session's actor here, started if nobody owns the session.
async fn actor_of(sessions: &Arc<LiveSessions>, id: SessionId) -> Option<ActorRef> {
    if sessions.owned(id).is_none() {
        let owner = sessions.store.owner(id).await.ok()?;
        let is_other = owner.is_some_and(|owner| owner != sessions.me());
        if is_other || sessions.stop.is_cancelled() {
            return None;
        }
    }
    Some(sessions.actor(id).await)
}

/// Tells proxies that their sessions are not here.
pub(super) async fn not_mine(sessions: Arc<LiveSessions>, edge: ReplicaId, links: Vec<LinkId>) {
    for link in links {
        let message = Message::ToEdge(Box::new(ToEdge {
            link,
            took: 0,
            base: 1,
            replies: Vec::new(),
            state: None,
            not_mine: true,
        }));
        sessions.remote.send(sessions.me(), edge, Lane::Control, &message).await;
    }
}
