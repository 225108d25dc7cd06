//! One round of a turn: the history, the agent's memories and the available tools go to the model,
//! and its answer comes back. If the model calls tools that the gateway runs, the session actor
//! runs them and starts another round. The text of all rounds is one answer.

use std::sync::Arc;
use std::time::Instant;

use bowline_sbp::completion::Assembly;
use bowline_sbp::context::{self, Asked, LeftOut, Plan};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{AgentId, Seq};
use bowline_sbp::message::{EntryKind, Message};
use bowline_sbp::session::{LiveSurface, NewEntry, Origin, RoundEnd, TurnRequest};
use bowline_sbp::surface::SurfaceContext;
use serde_json::value::to_raw_value;

use super::Engine;
use super::generate::failed;
use super::tools::OfferedTools;
use crate::meters;
use crate::model::{Call, Model};
use crate::session::{Carry, History, RoundJob, RoundReport, TextBuffer};

/// A running round.
pub(super) struct Round<'a> {
    pub(super) engine: &'a Engine,
    pub(super) job: &'a RoundJob,
    pub(super) request: &'a TurnRequest,
    /// The log entries of the request's new messages.
    new: Vec<NewEntry>,
    /// For the turn's first entry: the answer that is superseded, and the new instruction.
    marks: Option<Marks>,
    /// What the model was not sent.
    pub(super) left_out: Option<LeftOut>,
    /// About how many tokens the model was sent.
    pub(super) sent_tokens: u64,
}

struct Marks {
    replaces: Option<Seq>,
    instruction: Option<Vec<Message>>,
}

/// How a round ended, and what the next round of the turn needs.
pub(super) type Ended = (RoundEnd, Option<Carry>);

impl Engine {
    /// Runs a round. The history is returned unchanged, for the actor's cache.
    pub(super) async fn run_round(&self, mut job: RoundJob) -> RoundReport {
        let history = match job.history.take() {
            Some(history) => Ok(history),
            None => self.read_history(&job).await,
        };
        let history = match history {
            Ok(history) => history,
            Err(failure) => {
                let note = format!("This was not answered: {failure}. Send it again to retry.");
                let asked = Vec::new();
                let end = RoundEnd::Refused { asked, failure, note };
                return RoundReport { end, carry: None, history: None };
            }
        };
        let carry = job.carry.take();
        let request = Arc::clone(&job.request);
        let (end, carry) = self.ask(&job, &request, &history, carry).await;
        RoundReport { end, carry, history: Some(history) }
    }

    async fn read_history(&self, job: &RoundJob) -> Result<History, Failure> {
        let read = || self.store.history(job.session);
        let log = self.patiently(&job.store_is_busy, read).await?;
        Ok(History::new(job.last_seq, log))
    }

    async fn ask(
        &self,
        job: &RoundJob,
        request: &TurnRequest,
        history: &History,
        carry: Option<Carry>,
    ) -> Ended {
        let running = job.advanced.then_some(job.turn);
        let asked =
            Asked { messages: &request.messages, caller: request.caller, mode: request.history };
        let plan = context::plan(history.log(), asked, running);
        let mut round = Round::new(self, job, request, &plan);
        job.text.set_seq(job.last_seq + round.new.len() as u64 + 1);
        // The model was served when the turn was accepted; a restart may have changed the
        // configuration.
        let model = match self.models.route(&request.model) {
            Ok(model) => model,
            Err(failure) => return round.give_up(failure),
        };
        if let Err(failure) = self.check_round(job).await {
            return round.over_budget(failure, carry, model.name());
        }
        let (assembly, recalled) = match carry {
            Some(Carry { assembly, recalled }) => (assembly, recalled),
            None => (Assembly::default(), round.recalled().await),
        };
        let tools = OfferedTools::offered(request, model, self.memory, &job.surfaces);
        let tools = tools.with_servers(&self.mcp, request).await;
        let who = match self.tool_context(job.user, &job.agent_id, &job.store_is_busy).await {
            Ok(who) => who,
            Err(failure) => return round.give_up(failure),
        };
        let judge = || tools.clone().judged(self, &who);
        let tools = match self.patiently(&job.store_is_busy, judge).await {
            Ok(tools) => tools,
            Err(failure) => return round.give_up(failure),
        };
        // In the last round, tool calls are not run.
        let last = job.round >= self.tools.max_rounds || self.tools.is_spent(job.spent_usd);
        let mut call = round.call(model, plan.prompt);
        call.notes.extend(recalled.iter().cloned());
        call.tools = tools.definitions();
        if last {
            last_round(&mut call);
        }
        let asked = Instant::now();
        let said = round.generate_fitting(model, call, assembly, &tools).await;
        meters::model(asked.elapsed());
        let mut said = match said {
            Ok(said) => said,
            Err(failure) => return round.give_up(failure),
        };
        let calls = std::mem::take(&mut said.calls);
        if last && !calls.is_empty() && said.assembly.text().is_empty() {
            let why = "the model reached the limit of tool rounds without an answer";
            return round.give_up(Failure::new(Code::Upstream, why));
        }
        if calls.is_empty() || last {
            let answered = round.answered(said, model.name());
            return (RoundEnd::Answered(Box::new(answered)), None);
        }
        round.calls_made(calls, said, (&tools, &who), recalled, model.name())
    }
}

impl<'a> Round<'a> {
    fn new(
        engine: &'a Engine,
        job: &'a RoundJob,
        request: &'a TurnRequest,
        plan: &Plan<'_>,
    ) -> Self {
        // The messages of an advanced turn are in the log already.
        let new = match job.advanced {
            true => Vec::new(),
            false => plan.new.iter().map(|message| NewEntry::message((*message).clone())).collect(),
        };
        let instruction = plan.instruction.as_ref();
        let instruction =
            instruction.map(|list| list.iter().map(|message| (*message).clone()).collect());
        let marks = Marks { replaces: plan.replaces, instruction };
        Self {
            engine,
            job,
            request,
            new,
            marks: (!job.advanced).then_some(marks),
            left_out: None,
            sent_tokens: 0,
        }
    }
}

impl Round<'_> {
    /// The round failed: a waiting caller gets the error, and the log gets a note.
    fn give_up(&mut self, failure: Failure) -> Ended {
        metrics::counter!("bowline_upstream_failures_total").increment(1);
        let note = format!("The model did not answer: {failure}. Send it again to retry.");
        (RoundEnd::Refused { asked: self.take_new(), failure, note }, None)
    }

    /// The model is not asked. What earlier rounds said is kept.
    fn over_budget(&mut self, failure: Failure, carry: Option<Carry>, model: &str) -> Ended {
        let assembly = carry.map(|carry| carry.assembly).unwrap_or_default();
        match failed(assembly, failure) {
            Ok(said) => (RoundEnd::Answered(Box::new(self.answered(said, model))), None),
            Err(failure) => {
                let note = format!("This was not answered: {failure}.");
                (RoundEnd::Refused { asked: self.take_new(), failure, note }, None)
            }
        }
    }

    /// The log entries of the new messages.
    pub(super) fn take_new(&mut self) -> Vec<NewEntry> {
        let new = std::mem::take(&mut self.new);
        new.into_iter().map(|entry| self.marked(entry)).collect()
    }

    /// An entry of this turn, to be appended after those that were marked before.
    pub(super) fn marked(&mut self, mut entry: NewEntry) -> NewEntry {
        entry.caller = self.request.caller;
        if entry.kind == EntryKind::Message {
            entry.author = self.request.author.as_ref().map(|author| author.name.clone());
        }
        if let Some(Marks { replaces, instruction }) = self.marks.take() {
            entry.replaces = replaces;
            entry.instruction = instruction;
        }
        entry
    }

    fn call<'p>(&self, model: &Model, prompt: Vec<&'p Message>) -> Call<'p> {
        let stream = self.request.stream
            || self.request.origin == Origin::Surface
            || model.always_streams()
            || self.job.watched;
        let (name, params) = (self.request.model.clone(), self.request.params.clone());
        let mut call = Call::plain(name, params, prompt, stream);
        if let Some(surface) = self.surface() {
            fit(&mut call, surface);
        }
        call
    }

    /// The surface that the answer is written for: of those whose turns are not rewritten by a
    /// translation, the one with the largest output (SBP-L4-02). The translation takes care of the
    /// others.
    fn surface(&self) -> Option<&SurfaceContext> {
        let translate = &self.engine.translate;
        let agent = self.job.agent_id.as_str();
        let rewritten =
            |surface: &&LiveSurface| translate.serves(agent, surface.context.device_type.as_str());
        let as_it_is = self.job.surfaces.iter().filter(|surface| !rewritten(surface));
        let room = |surface: &&LiveSurface| {
            (surface.context.max_output_tokens.unwrap_or(u32::MAX), surface.epoch)
        };
        as_it_is.max_by_key(room).map(|surface| &*surface.context)
    }

    /// The agent that takes this turn (SBP-L1-05).
    pub(super) fn agent(&self) -> &AgentId {
        self.request.agent_id.as_ref().unwrap_or(&self.job.agent_id)
    }

    /// That agent, if it is not the session's own.
    pub(super) fn other_agent(&self) -> Option<AgentId> {
        self.request.agent_id.clone().filter(|agent| *agent != self.job.agent_id)
    }

    pub(super) fn text(&self) -> &TextBuffer {
        &self.job.text
    }
}

/// Tells the model which device it writes for (SBP-L4-02). The caller's own token limit takes
/// precedence.
fn fit(call: &mut Call<'_>, surface: &SurfaceContext) {
    call.notes.extend(surface.note().map(|note| Message::text("system", &note)));
    let said = ["max_tokens", "max_completion_tokens"];
    if let Some(tokens) = surface.max_output_tokens
        && !call.params.iter().any(|(name, _)| said.contains(&name.as_str()))
    {
        let tokens = to_raw_value(&tokens).expect("a number serialises");
        call.params.push(("max_tokens".into(), tokens));
    }
}

/// Keeps the model from calling tools. `tool_choice: none` is used where all tools are the
/// gateway's, because a server may reject a conversation with tool calls and no tools. If the
/// caller has tools of its own, only the gateway's are left out.
fn last_round(call: &mut Call<'_>) {
    let theirs = ["tools", "tool_choice"];
    if call.params.iter().any(|(name, _)| theirs.contains(&name.as_str())) {
        call.tools = Arc::default();
    } else if !call.tools.is_empty() {
        let none = to_raw_value("none").expect("text serialises");
        call.params.push(("tool_choice".into(), none));
    }
}
