//! One turn, from the front of its lane to its end in the log.
//!
//! A turn is one or more rounds: the model speaks, and if it calls tools that are the gateway's to
//! run, they are run and it is asked again. What the rounds say is one answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::completion::{Assembly, Usage};
use bowline_sbp::conversation::{Interrupted, interrupted};
use bowline_sbp::error::Code;
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::AgentId;
use bowline_sbp::message::{Message, already_stored};
use bowline_sbp::surface::SurfaceContext;
use bowline_store::{Error, NewEntry, Session};
use futures_util::FutureExt;
use serde_json::value::to_raw_value;
use tokio::sync::watch;

use super::histories::History;
use super::request::{Origin, TurnRequest};
use super::tools::Tools;
use super::{Begin, Engine, internal, stopping};
use crate::hub::{Channel, Done, Failure, LiveTurn};
use crate::lanes::Ticket;
use crate::meters;
use crate::model::{Call, Model};

/// A turn is run again once after a crash; a second crash ends it (SBP-L2-13).
const MOST_ATTEMPTS: u32 = 2;
/// How far the log is looked through for what a turn has done before a restart.
const LOOK_BACK: u32 = 1000;

impl Engine {
    /// Waits for the lane, runs the turn, and tells everyone how it ended.
    pub(super) async fn run_in_lane(
        self: &Arc<Self>,
        turn: Arc<LiveTurn>,
        request: Arc<TurnRequest>,
        mut ticket: Ticket,
        begin: Begin,
    ) {
        let begun = Instant::now();
        let runs =
            ticket.is_first() || Box::pin(self.wait_for_lane(&turn, &mut ticket, &begin)).await;
        let outcome = if runs {
            // A panic ends this turn, not the gateway.
            let ran = AssertUnwindSafe(self.run(&turn, request, begin)).catch_unwind().await;
            ran.unwrap_or_else(|_| {
                metrics::counter!("bowline_panics_total").increment(1);
                if let Some(channel) = self.hub.existing(turn.session) {
                    channel.dropped();
                }
                Err(internal())
            })
        } else {
            Err(stopping())
        };
        let ours = matches!(&outcome, Err(failure) if failure.code == Code::Internal);
        let outcome = match ours && self.is_gone(&turn).await {
            true => Err(Error::NoSession.into()),
            false => outcome,
        };
        let status = match &outcome {
            Ok(done) => done.info.turn_status,
            Err(_) => TurnStatus::Failed,
        };
        meters::turn(status, begun.elapsed());
        self.lock_active().remove(&turn.id);
        turn.end(outcome);
        drop(ticket);
    }

    /// Waits for those who came before. Gives whether the turn is to run now.
    async fn wait_for_lane(&self, turn: &LiveTurn, ticket: &mut Ticket, begin: &Begin) -> bool {
        let mut troubles = self.troubles.subscribe();
        loop {
            tokio::select! {
                () = ticket.called() => break true,
                // A turn that has not started stays on disk and is taken up by the next start.
                () = self.stop.cancelled(), if begin.session.is_none() => break false,
                // Whoever is before it cannot write. It runs when they can; nobody has to wait
                // for that without a word.
                Ok(_) = troubles.wait_for(|troubles| *troubles > 0), if turn.outcome().is_none() => {
                    turn.end(Err(Error::Unavailable("others wait for the disk".into()).into()));
                }
            }
        }
    }

    /// A session that was deleted took its turns with it; that is no mistake of ours.
    async fn is_gone(&self, turn: &LiveTurn) -> bool {
        matches!(self.store.session(turn.session).await, Ok(None))
    }

    /// Asks the store for as long as it takes: a turn that was accepted is not left lying because
    /// the disk was busy for a moment. Whoever waits is told at the first failure.
    pub(super) async fn patiently<T, F>(
        &self,
        turn: &LiveTurn,
        ask: impl Fn() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = bowline_store::Result<T>>,
    {
        let mut pause = Duration::from_millis(100);
        let mut trouble = None;
        loop {
            match ask().await {
                Err(error @ Error::Unavailable(_)) if !self.stop.is_cancelled() => {
                    turn.end(Err(error.into()));
                    trouble.get_or_insert_with(|| Trouble::new(&self.troubles));
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                answered => return answered.map_err(Failure::from),
            }
        }
    }

    async fn run(
        &self,
        turn: &Arc<LiveTurn>,
        mut request: Arc<TurnRequest>,
        begin: Begin,
    ) -> Result<Arc<Done>, Failure> {
        let session = match begin.session {
            Some(session) => session,
            None => {
                self.patiently(turn, || self.store.start_turn(turn.id, self.instance)).await?;
                let session = self.patiently(turn, || self.store.session(turn.session)).await?;
                session.ok_or(Failure::from(Error::NoSession))?
            }
        };
        if request.agent_id.as_ref() == Some(&session.agent_id) {
            Arc::make_mut(&mut request).agent_id = None;
        }
        let mut history = match self.histories.take(turn.session, session.last_seq) {
            _ if session.last_seq == 0 => History::default(),
            Some(history) => history,
            None => self.patiently(turn, || self.store.history(turn.session)).await?.into(),
        };
        // What an advanced turn was asked is in the log already.
        let new = if begin.advanced {
            Vec::new()
        } else {
            let known = already_stored(history.messages(), &request.messages);
            request.messages[known..].to_vec()
        };
        let before = (history.messages().len(), session.last_seq);
        new.iter().cloned().for_each(|message| history.push(message));
        turn.set_seq(session.last_seq + new.len() as u64 + 1);

        let channel = self.hub.channel(turn.session);
        let mut run = Run {
            engine: self,
            turn,
            request,
            session,
            new,
            advanced: begin.advanced,
            keyed: begin.keyed,
            spent_usd: 0.0,
            channel: &channel,
        };
        // On the heap: it is most of a turn, and would be copied with each future around it.
        let ended = Box::pin(run.carry_out(&mut history)).await;
        match &ended {
            Ok((_, said)) => {
                said.iter().cloned().for_each(|message| history.push(message));
                let last_seq = turn.seq().unwrap_or_default();
                self.histories.put(turn.session, last_seq, history);
            }
            // The log has more than it had before, and less than was tried: it is read anew.
            Err(_) if run.advanced => {}
            Err(_) => {
                history.truncate(before.0);
                self.histories.put(turn.session, before.1, history);
            }
        }
        let ended = ended.map(|(done, _)| done);
        if ended.is_err() {
            // Whatever surfaces saw of it is either in the log by now, or came to nothing.
            channel.dropped();
        }
        ended
    }
}

/// A turn that cannot be written, for as long as it cannot.
struct Trouble<'a>(&'a watch::Sender<usize>);

impl<'a> Trouble<'a> {
    fn new(troubles: &'a watch::Sender<usize>) -> Self {
        troubles.send_modify(|count| *count += 1);
        Self(troubles)
    }
}

impl Drop for Trouble<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A turn being run, and all it needs.
pub(super) struct Run<'a> {
    pub(super) engine: &'a Engine,
    pub(super) turn: &'a Arc<LiveTurn>,
    pub(super) request: Arc<TurnRequest>,
    /// The session as the log has it. Nothing else appends to it meanwhile: the lane is ours.
    pub(super) session: Session,
    /// The messages that the turn adds and the log does not have yet.
    pub(super) new: Vec<Message>,
    /// Something of this turn is in the log.
    pub(super) advanced: bool,
    /// Its caller may ask for its result again.
    pub(super) keyed: bool,
    /// What earlier rounds cost.
    pub(super) spent_usd: f64,
    pub(super) channel: &'a Channel,
}

/// How a turn ended, and what it added to the conversation, if anything.
pub(super) type Ended = (Arc<Done>, Option<Message>);

/// Lets the model know for what device it writes (SBP-L4-02). A caller who says itself how long the
/// answer may be is not overruled.
fn fit(call: &mut Call, surface: &SurfaceContext) {
    call.notes.extend(surface.note().map(|note| Message::text("system", &note)));
    let said = ["max_tokens", "max_completion_tokens"];
    if let Some(tokens) = surface.max_output_tokens
        && !call.params.iter().any(|(name, _)| said.contains(&name.as_str()))
    {
        let tokens = to_raw_value(&tokens).expect("a number serialises");
        call.params.push(("max_tokens".into(), tokens));
    }
}

impl Run<'_> {
    /// What the turn adds to the log before its end, as entries.
    pub(super) fn take_new(&mut self) -> Vec<NewEntry> {
        // Room for the answer, which mostly follows.
        let mut entries = Vec::with_capacity(self.new.len() + 1);
        entries.extend(self.new.drain(..).map(NewEntry::message));
        entries
    }

    /// What most turns never come to is on the heap: a future is as large as all it may wait for
    /// together, and is copied as often as it is passed on.
    async fn carry_out(&mut self, history: &mut History) -> Result<Ended, Failure> {
        if self.turn.attempt > MOST_ATTEMPTS && !Box::pin(self.awaits_approval(history)).await? {
            let text = "This turn was interrupted twice by a restart of the gateway and was given \
                        up. Send it again to have it answered.";
            Box::pin(self.note(text, TurnStatus::Interrupted)).await?;
            return Err(Failure::new(Code::Internal, text));
        }
        if let Some((note, failure)) = self.in_vain() {
            return Box::pin(self.refuse(&note, failure)).await;
        }
        // Served when it was accepted; a restart may have changed that.
        let model = match self.engine.models.route(&self.request.model) {
            Ok(model) => model,
            Err(failure) => return Box::pin(self.give_up(failure)).await,
        };
        self.channel.begin(self.turn);
        let mut rounds = 0;
        // A crash may have come between a call and its result.
        if self.advanced {
            Box::pin(self.act_again(history)).await?;
            rounds = Box::pin(self.rounds_before()).await?;
        }
        let recalled = self.recalled().await;
        let mut assembly = Assembly::default();
        let round = loop {
            // A device may have come or gone meanwhile.
            let link = self.channel.now().link;
            let surface = link.as_ref().filter(|link| !link.translated).map(|link| &link.surface);
            let mut call = self.call(model, history, surface);
            call.notes.extend(recalled.clone());
            let tools = Tools::offered(&self.request, model, self.engine.memory, link);
            let tools =
                tools.with_servers(&self.engine.mcp, &self.engine.tools, &self.request).await;
            // Time to come to an end: tools that are asked for all the same are not run.
            let rules = &self.engine.tools;
            let last = rounds >= rules.max_rounds || rules.is_spent(self.spent_usd);
            rounds += 1;
            call.tools = tools.definitions();
            if last {
                self.last_round(&mut call);
            }
            let asked = Instant::now();
            let round = self.generate(model, call, assembly, &tools).await;
            meters::model(asked.elapsed());
            let mut round = match round {
                Ok(round) => round,
                Err(failure) => return Box::pin(self.give_up(failure)).await,
            };
            let calls = std::mem::take(&mut round.calls);
            if last && !calls.is_empty() && round.assembly.text().is_empty() {
                let why = "the model went on calling tools and said nothing";
                return Box::pin(self.give_up(Failure::new(Code::Upstream, why))).await;
            }
            if calls.is_empty() || last {
                break round;
            }
            // Calls that are left are the caller's: they end the turn, and it pays for the round.
            let ends = round.assembly.has_calls();
            let usage = if ends { Usage::default() } else { round.assembly.next_round() };
            Box::pin(self.log_calls(&calls, usage, history)).await?;
            Box::pin(self.act(calls, &tools, history)).await?;
            if ends {
                break round;
            }
            assembly = round.assembly;
        };
        self.keep(round, model.name()).await
    }

    /// Why nobody is asked at all, for the log and for the caller.
    fn in_vain(&self) -> Option<(String, Failure)> {
        // It may have waited while the session was handed over.
        if let Some(successor) = self.session.handed_to {
            let failure = Failure::from(Error::HandedOver(successor));
            return Some((format!("{failure}. Send it there."), failure));
        }
        if !self.session.status.is_open() {
            let failure = Failure::from(Error::Ended(self.session.status));
            return Some((format!("This was not answered: {failure}."), failure));
        }
        None
    }

    /// What a turn that goes on after a restart has had: its rounds, and what they cost.
    async fn rounds_before(&mut self) -> Result<u32, Failure> {
        let (id, after) = (self.session.id, self.session.last_seq + 1);
        let read = || self.engine.store.entries_before(id, after, LOOK_BACK);
        let entries = self.engine.patiently(self.turn, read).await?;
        let ours = entries.iter().filter(|entry| entry.turn_id == self.turn.id);
        let calls = ours.filter(|entry| entry.message.role() == "assistant");
        self.spent_usd = calls.clone().map(|entry| entry.cost_usd).sum();
        Ok(u32::try_from(calls.count()).unwrap_or(u32::MAX))
    }

    /// The model has to answer now. It is told so in the way of its kind, where its tools are all
    /// ours; a server may refuse a conversation with calls in it and no tools beside it.
    fn last_round(&self, call: &mut Call) {
        let theirs = ["tools", "tool_choice"];
        if call.params.iter().any(|(name, _)| theirs.contains(&name.as_str())) {
            call.tools = Arc::default();
        } else if !call.tools.is_empty() {
            let none = to_raw_value("none").expect("text serialises");
            call.params.push(("tool_choice".into(), none));
        }
    }

    /// A turn that waits for a person is no turn that brings the gateway down, however often that is
    /// started anew meanwhile.
    async fn awaits_approval(&self, history: &History) -> Result<bool, Failure> {
        let Interrupted { calls, results } = interrupted(history.messages());
        if calls.is_empty() || !self.advanced {
            return Ok(false);
        }
        let seq = self.session.last_seq - results;
        let ask = || self.engine.store.awaits_approval(self.turn.id, seq);
        self.engine.patiently(self.turn, ask).await
    }

    fn call(&self, model: &Model, history: &History, surface: Option<&SurfaceContext>) -> Call {
        let stream = self.request.stream
            || self.request.origin == Origin::Surface
            || model.always_streams()
            || self.channel.is_watched();
        let (name, params) = (self.request.model.clone(), self.request.params.clone());
        let mut call = Call::plain(name, params, Arc::clone(history.messages()), stream);
        if let Some(surface) = surface {
            fit(&mut call, surface);
        }
        call
    }

    /// Who takes this turn (SBP-L1-05).
    pub(super) fn agent(&self) -> &AgentId {
        self.request.agent_id.as_ref().unwrap_or(&self.session.agent_id)
    }
}
