//! The task of one session's actor: an inbox in, commits to the store, effects out.
//!
//! All decisions are made by [`Actor`]; this carries them out. One commit is in flight at a time.
//! Inputs that arrive meanwhile go into the next commit together.
//!
//! Invariants
//! - Effects run after their commit, in order; watchers see the new state first.
//! - Tasks never wait to report: their channel is unbounded, and holds a few reports per running
//!   task.
//! - A panic ends the actor; the next one loads the session from disk.

mod boot;
mod commit;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::session::{
    Actor, Command, CommandId, Fact, Fence, Input, KnownKey, NewSession, Next, Now, Refusal,
    ReplicaId, Reply, RequestDigest,
};
use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::boot::Booted;
use super::history::Kept;
use super::live::{Live, Phase};
use super::registry::{ActorRef, Identity, LiveSessions};
use super::text::TextBuffer;
use super::work::{Carry, RoundReport, TurnSlot};
use crate::clock;

/// Inputs that go into one commit.
const BATCH: usize = 64;

/// A command and the channel for its reply.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) command: Command,
    pub(super) reply: oneshot::Sender<ReplyAndText>,
    /// It came from another replica, which takes this one for the owner: a proxy refuses it.
    pub(super) forwarded: bool,
}

impl Envelope {
    pub(super) fn new(command: Command) -> (Box<Self>, oneshot::Receiver<ReplyAndText>) {
        let (reply, answered) = oneshot::channel();
        (Box::new(Self { command, reply, forwarded: false }), answered)
    }
}

/// A reply, and the text buffer of the turn if one was accepted.
#[derive(Debug)]
pub(super) struct ReplyAndText {
    pub(super) reply: Reply,
    pub(super) text: Option<Arc<TextBuffer>>,
}

/// What tasks and sockets report.
#[derive(Debug)]
pub(super) enum TaskReport {
    Fact(Fact),
    Round {
        turn: TurnId,
        attempt: u32,
        round: u32,
        report: Box<RoundReport>,
    },
    /// The store is busy: callers that wait for the turn are told, and the turn goes on.
    Busy,
}

impl TaskReport {
    /// Boxed, as all reports are: a channel sets memory aside for 32 of them.
    pub(super) fn fact(fact: Fact) -> Box<Self> {
        Box::new(Self::Fact(fact))
    }
}

/// Whether the actor loads its session or creates it.
#[derive(Debug)]
pub(super) enum ActorStart {
    Load,
    Make(Box<NewSession>),
}

/// What belongs to one turn while it waits or runs.
#[derive(Debug)]
pub(super) struct TurnWork {
    pub(super) text: Arc<TextBuffer>,
    pub(super) cancel: CancellationToken,
    pub(super) slot: TurnSlot,
    pub(super) carry: Option<Carry>,
    pub(super) begun: Instant,
    pub(super) digest: Option<RequestDigest>,
}

/// Why the actor is to end.
enum WhyEnd {
    /// The session is idle: no turns, surfaces or calls.
    Idle,
    /// The session was deleted, or the process stops.
    Over,
    /// This replica was declared dead.
    Abandoned,
}

#[derive(Debug)]
pub(super) struct Driver {
    pub(super) sessions: Arc<LiveSessions>,
    pub(super) identity: Identity,
    pub(super) id: SessionId,
    pub(super) own_ref: ActorRef,
    pub(super) inbox: mpsc::Receiver<Box<Envelope>>,
    pub(super) reports: mpsc::UnboundedReceiver<Box<TaskReport>>,
    pub(super) replies: HashMap<CommandId, oneshot::Sender<ReplyAndText>>,
    pub(super) commands: u64,
    pub(super) turns: HashMap<TurnId, TurnWork>,
    pub(super) calls: HashMap<Uuid, CancellationToken>,
    pub(super) history: Kept,
    pub(super) stopping: bool,
    /// When a failed commit is retried, and the pause before that.
    pub(super) retry: Option<(Instant, Duration)>,
    pub(super) linger: Option<(Instant, OwnedSemaphorePermit)>,
    pub(super) over: bool,
    /// Another replica owns the session now.
    pub(super) owner_lost: bool,
}

impl Driver {
    pub(super) fn new(
        sessions: Arc<LiveSessions>,
        id: SessionId,
        own_ref: ActorRef,
        inbox: mpsc::Receiver<Box<Envelope>>,
        reports: mpsc::UnboundedReceiver<Box<TaskReport>>,
    ) -> Self {
        let history = Kept::new(Arc::clone(&sessions.histories), None);
        Self {
            identity: sessions.identity(),
            sessions,
            id,
            own_ref,
            inbox,
            reports,
            replies: HashMap::new(),
            commands: 0,
            turns: HashMap::new(),
            calls: HashMap::new(),
            history,
            stopping: false,
            retry: None,
            linger: None,
            over: false,
            owner_lost: false,
        }
    }

    pub(super) async fn run(mut self, boot: ActorStart) {
        let ran = AssertUnwindSafe(self.live(boot)).catch_unwind().await;
        let lease = ran.unwrap_or_else(|_| {
            metrics::counter!("bowline_panics_total").increment(1);
            None
        });
        // The actor panicked or lost its lease, so its watchers saw no reason. They find their
        // surface missing from the empty state, and reconnect.
        if self.owner_lost {
            self.own_ref.live.send_replace(Live::owner_lost());
        } else if lease.is_none() && !self.stopping {
            self.own_ref.live.send_replace(Live::none());
        }
        for (turn, work) in &self.turns {
            work.cancel.cancel();
            work.text.abandon();
            if let Some(request) = work.digest {
                self.sessions.retries.stopped(request, *turn);
            }
        }
        for cancel in self.calls.values() {
            cancel.cancel();
        }
        // Removed from the table before the reply channels are dropped: senders that retry must not
        // find this actor again.
        self.sessions.ended(self.id, &self.own_ref, lease);
    }

    /// Runs the actor, or its proxy. Returns the lease that it holds at its end.
    async fn live(&mut self, boot: ActorStart) -> Option<(ReplicaId, Fence)> {
        // Boxed, so that its memory is freed after booting.
        let mut actor = match Box::pin(self.boot(boot)).await {
            Booted::Actor(actor) => actor,
            Booted::OwnedBy(owner) => {
                Box::pin(self.follow(owner)).await;
                return None;
            }
            Booted::Nothing => return None,
        };
        loop {
            let inputs = match actor.has_work() && self.retry.is_none() {
                true => Vec::new(),
                false => match self.gather(&actor).await {
                    Ok(inputs) => inputs,
                    Err(WhyEnd::Idle) if self.may_close().await => break,
                    Err(WhyEnd::Idle) => continue,
                    Err(WhyEnd::Over) => break,
                    Err(WhyEnd::Abandoned) => {
                        self.owner_lost = true;
                        return None;
                    }
                },
            };
            let effects = match actor.take(inputs, Uuid::new_v4(), now) {
                Next::Effects(effects) => {
                    // No commit is left to retry.
                    self.retry = None;
                    if Box::pin(self.is_outdated(&actor, &effects)).await {
                        return None;
                    }
                    effects
                }
                Next::Commit(commit) => {
                    let effects = self.commit(&mut actor, &commit).await?;
                    if actor.lease().is_some() {
                        self.own_ref.status().role.set_owner();
                    }
                    effects
                }
            };
            self.publish(&actor);
            for effect in effects {
                self.perform(&actor, effect);
            }
            self.tidy(&actor);
            if self.over {
                break;
            }
        }
        actor.lease()
    }

    /// Waits for an input, then takes all that are queued, up to a batch.
    async fn gather(&mut self, actor: &Actor) -> Result<Vec<Input>, WhyEnd> {
        let mut inputs = Vec::new();
        // During a back-off, a deadline that has passed waits for the retry, too.
        let retry = self.retry.map(|(when, _)| when);
        let deadline = actor.deadline().map(|at| retry.map_or(at, |retry| at.max(retry)));
        if self.stopping && actor.machine().is_quiet() && !actor.has_work() {
            return Err(WhyEnd::Over);
        }
        // Others may look at an idle session as long as they like. When they all have gone, it is
        // time to think about ending.
        let watched = self.own_ref.live.receiver_count() > 0;
        let idle = actor.machine().is_idle()
            && !watched
            && !actor.has_work()
            && self.retry.is_none()
            && self.inbox.is_empty();
        if idle && self.linger.is_none() {
            let permit = Arc::clone(&self.sessions.lingering).try_acquire_owned();
            let Ok(permit) = permit else { return Err(WhyEnd::Idle) };
            self.linger = Some((Instant::now() + self.sessions.bounds.linger, permit));
        } else if !idle {
            self.linger = None;
        }
        tokio::select! {
            biased;
            Some(report) = self.reports.recv() => self.reported(*report, &mut inputs),
            Some(envelope) = self.inbox.recv() => self.asked(envelope, &mut inputs).await,
            () = at(deadline) => inputs.push(Input::Fact(Fact::Deadline)),
            () = at(retry) => {}
            () = at(self.linger.as_ref().map(|(when, _)| *when)) => return Err(WhyEnd::Idle),
            () = self.own_ref.live.closed(), if watched && actor.machine().is_idle() => {}
            () = self.identity.ended.cancelled() => return Err(WhyEnd::Abandoned),
            () = self.sessions.stop.cancelled(), if !self.stopping => {
                self.stopping = true;
                inputs.push(Input::Fact(Fact::Stop));
            }
        }
        while inputs.len() < BATCH {
            if let Ok(report) = self.reports.try_recv() {
                self.reported(*report, &mut inputs);
            } else if let Ok(envelope) = self.inbox.try_recv() {
                self.asked(envelope, &mut inputs).await;
            } else {
                break;
            }
        }
        Ok(inputs)
    }

    fn reported(&mut self, report: TaskReport, inputs: &mut Vec<Input>) {
        let fact = match report {
            TaskReport::Fact(fact) => fact,
            TaskReport::Busy => Fact::StoreBusy,
            TaskReport::Round { turn, attempt, round, report } => {
                let RoundReport { end, carry, history } = *report;
                if let Some(work) = self.turns.get_mut(&turn) {
                    work.carry = carry;
                }
                if let Some(history) = history {
                    self.history.put(history);
                }
                Fact::RoundEnded { turn, attempt, round, end }
            }
        };
        if let Fact::CallEnded { call, .. } = &fact {
            self.calls.remove(call);
        }
        inputs.push(Input::Fact(fact));
    }

    async fn asked(&mut self, envelope: Box<Envelope>, inputs: &mut Vec<Input>) {
        let known = match self.look_up(&envelope.command).await {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(%error, "cannot look up an idempotency key");
                let refused = Reply::Refused(Refusal::NotStored);
                let _ = envelope.reply.send(ReplyAndText { reply: refused, text: None });
                return;
            }
        };
        let Envelope { command, reply, .. } = *envelope;
        self.commands += 1;
        let id = CommandId(self.commands);
        self.replies.insert(id, reply);
        inputs.push(Input::Command { id, command: Box::new(command), known });
    }

    /// What the store has under a command's idempotency key. No commit is in flight meanwhile.
    async fn look_up(&self, command: &Command) -> bowline_store::Result<Option<KnownKey>> {
        let key = match command {
            Command::Submit(submit) => submit.key.as_ref(),
            Command::HandOff(handoff) => handoff.key.as_ref(),
            _ => None,
        };
        // Keys of requests that create a session were looked up before the actor was started.
        let Some(key) = key.filter(|key| !key.is_of_maker()) else { return Ok(None) };
        Ok(self.sessions.store.known(key.clone()).await?.map(|(_, known)| known))
    }

    /// Publishes the current state to watchers, if it has changed.
    fn publish(&mut self, actor: &Actor) {
        let state = actor.machine().live();
        let running = state.turns.first().filter(|turn| turn.running);
        let running = running.map(|turn| (turn.id, turn.attempt));
        let text = running.map(|(turn, attempt)| Arc::clone(&self.work(turn, attempt).text));
        self.own_ref.live.send_if_modified(|live| {
            let same = |a: &Arc<TextBuffer>, b: &Arc<TextBuffer>| Arc::ptr_eq(a, b);
            let same_text = match (&live.text, &text) {
                (None, None) => true,
                (Some(a), Some(b)) => same(a, b),
                _ => false,
            };
            if same_text && live.phase == Phase::Known && *live.state == state {
                return false;
            }
            *live = Live { phase: Phase::Known, state: Arc::new(state), text };
            true
        });
    }

    /// Drops the work of turns that have ended, and updates the status counters.
    fn tidy(&mut self, actor: &Actor) {
        let machine = actor.machine();
        self.turns.retain(|turn, _| machine.request(*turn).is_some());
        let status = self.own_ref.status();
        status.turns.store(machine.turns(), Ordering::Relaxed);
        let watched = self.own_ref.live.receiver_count() > 0;
        status.busy.store(watched || !machine.is_idle(), Ordering::Relaxed);
        status.trouble.store(actor.is_in_trouble(), Ordering::Relaxed);
    }

    /// The session is idle: closes the inbox, unless a command or a watcher came meanwhile.
    pub(super) async fn may_close(&mut self) -> bool {
        self.own_ref.status().busy.store(false, Ordering::Relaxed);
        let closing = self.sessions.closing(self.id);
        self.inbox.close();
        let mut left = Vec::new();
        while let Some(envelope) = self.inbox.recv().await {
            left.push(envelope);
        }
        // A surface that is about to attach subscribes before its command is in the inbox.
        let watched = self.own_ref.live.receiver_count() > 0;
        if left.is_empty() && !watched {
            return true;
        }
        let (own_ref, inbox) = self.own_ref.clone().with_inbox();
        (self.own_ref, self.inbox) = (own_ref, inbox);
        for envelope in left {
            // Cannot fail: the new inbox is as long as the old one.
            let _ = self.own_ref.commands.try_send(envelope);
        }
        self.sessions.reopened(self.id, &self.own_ref, &closing);
        self.linger = None;
        false
    }
}

fn now() -> Now {
    Now { instant: Instant::now(), at: clock::now(), fresh: Uuid::now_v7() }
}

/// Resolves at `when`; never if there is none.
async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
