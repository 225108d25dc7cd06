//! Runs the effects of a session actor: replies, and work in tasks of its own.
//!
//! A task always reports its end to the actor: a panic ends the turn or the call, not the actor.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::TurnId;
use bowline_sbp::session::{Actor, Effect, Fact, Reply, RoundEnd, Work};
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::driver::{Driver, ReplyAndText, TaskReport, TurnWork};
use super::text::TextBuffer;
use super::work::{BusySignal, CallJob, RoundJob, RoundReport, TurnSlot, Workers};

impl Driver {
    pub(super) fn perform(&mut self, actor: &Actor, effect: Effect) {
        match effect {
            Effect::Reply { to, reply } => {
                let text = match &reply {
                    Reply::Accepted { turn } => Some(Arc::clone(&self.work(*turn, 1).text)),
                    _ => None,
                };
                if let Some(waiting) = self.replies.remove(&to) {
                    // The caller may have disconnected.
                    let _ = waiting.send(ReplyAndText { reply, text });
                }
            }
            Effect::StartRound { turn, attempt, round, spent_usd } => {
                self.start_round(actor, turn, attempt, round, spent_usd);
            }
            Effect::Replan { turn, attempt } => {
                let (workers, facts) = self.worker();
                let (session, last_seq) = (self.id, actor.machine().head().last_seq);
                let busy = self.busy_signal();
                let machine = actor.machine();
                let whose = (machine.user(), machine.agent_id().clone());
                tokio::spawn(async move {
                    let work = workers.replan(session, last_seq, turn, whose, busy);
                    let plan = AssertUnwindSafe(work).catch_unwind().await;
                    let plan = plan.unwrap_or_else(|_| Err(panicked()));
                    let _ = facts.send(TaskReport::fact(Fact::Replanned { turn, attempt, plan }));
                });
            }
            Effect::StopRound { turn } => {
                if let Some(work) = self.turns.get(&turn) {
                    work.cancel.cancel();
                }
            }
            Effect::RunCall { call, turn, work, definition } => {
                self.run_call(actor, call, turn, work, definition);
            }
            Effect::StopCall { call } => {
                if let Some(cancel) = self.calls.remove(&call) {
                    cancel.cancel();
                }
            }
            Effect::Pack { handoff, last_seq } => {
                let (workers, facts) = self.worker();
                let (session, id) = (self.id, handoff.id);
                tokio::spawn(async move {
                    let packed = workers.pack(session, last_seq, handoff);
                    let packed = AssertUnwindSafe(packed).catch_unwind();
                    let packed = packed.await.unwrap_or_else(|_| Err(panicked())).map(Box::new);
                    let _ = facts.send(TaskReport::fact(Fact::Packed { id, last_seq, packed }));
                });
            }
            Effect::DeviceTook(took) => {
                metrics::histogram!("bowline_tool_seconds").record(took.as_secs_f64());
            }
            Effect::End => self.over = true,
        }
    }

    fn start_round(
        &mut self,
        actor: &Actor,
        turn: TurnId,
        attempt: u32,
        round: u32,
        spent_usd: f64,
    ) {
        let machine = actor.machine();
        let Some((request, advanced)) = machine.request(turn) else { return };
        let last_seq = machine.head().last_seq;
        let live = machine.live();
        let (workers, facts) = self.worker();
        let store_is_busy = self.busy_signal();
        let history = self.history.take(last_seq);
        let quiet = self.own_ref.status().quiet_links.load(Ordering::Relaxed);
        let watched = self.own_ref.live.receiver_count() > quiet;
        let work = self.work(turn, attempt);
        let job = RoundJob {
            session: machine.id(),
            user: machine.user(),
            agent_id: machine.agent_id().clone(),
            turn,
            round,
            spent_usd,
            advanced,
            request,
            last_seq,
            history,
            surfaces: live.surfaces,
            watched,
            text: Arc::clone(&work.text),
            slot: work.slot.clone(),
            carry: work.carry.take(),
            cancel: work.cancel.clone(),
            store_is_busy,
        };
        let gate = self.sessions.gate.clone();
        tokio::spawn(async move {
            // Whoever may have lost its lease starts nothing that another replica may have begun.
            gate.opened().await;
            // A panic ends this turn, not the gateway.
            let ran = AssertUnwindSafe(workers.round(job)).catch_unwind().await;
            let report = ran.unwrap_or_else(|_| {
                metrics::counter!("bowline_panics_total").increment(1);
                let failure = panicked();
                let note = format!("This was not answered: {failure}. Send it again to retry.");
                let end = RoundEnd::Refused { asked: Vec::new(), failure, note };
                RoundReport { end, carry: None, history: None }
            });
            let report = Box::new(report);
            let _ = facts.send(Box::new(TaskReport::Round { turn, attempt, round, report }));
        });
    }

    fn run_call(
        &mut self,
        actor: &Actor,
        call: Uuid,
        turn: Option<TurnId>,
        work: Work,
        definition: Option<String>,
    ) {
        let Work::Task { tool, input } = work else { return };
        let (workers, facts) = self.worker();
        let machine = actor.machine();
        let asked = turn.and_then(|turn| machine.request(turn));
        let agent = asked.and_then(|(request, _)| request.agent_id.clone());
        let cancel = CancellationToken::new();
        self.calls.insert(call, cancel.clone());
        let job = CallJob {
            session: machine.id(),
            user: machine.user(),
            agent_id: agent.unwrap_or_else(|| machine.agent_id().clone()),
            tool,
            input,
            definition,
            cancel,
        };
        tokio::spawn(async move {
            let called = AssertUnwindSafe(workers.call(job)).catch_unwind().await;
            let result = called.unwrap_or_else(|_| Err(panicked().message));
            let _ = facts.send(TaskReport::fact(Fact::CallEnded { call, result }));
        });
    }

    pub(super) fn work(&mut self, turn: TurnId, attempt: u32) -> &mut TurnWork {
        let fresh = || TurnWork {
            text: Arc::new(TextBuffer::new(turn, attempt)),
            cancel: CancellationToken::new(),
            slot: TurnSlot::default(),
            carry: None,
            begun: Instant::now(),
            digest: None,
        };
        let work = self.turns.entry(turn).or_insert_with(fresh);
        if work.text.attempt < attempt {
            *work = TurnWork { digest: work.digest, ..fresh() };
        }
        work
    }

    fn worker(&self) -> (Arc<dyn Workers>, mpsc::UnboundedSender<Box<TaskReport>>) {
        (Arc::clone(&self.sessions.workers), self.own_ref.facts.clone())
    }

    fn busy_signal(&self) -> BusySignal {
        let facts = self.own_ref.facts.clone();
        BusySignal(Box::new(move || drop(facts.send(Box::new(TaskReport::Busy)))))
    }
}

fn panicked() -> Failure {
    Failure::new(Code::Internal, "internal error; the gateway's log says more")
}
