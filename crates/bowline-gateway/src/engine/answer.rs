//! Turns what a model generated into log entries.

use bowline_sbp::completion::{ToolCall, Usage};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::message::{EntryKind, Message};
use bowline_sbp::session::{Answered, NewEntry, PlannedCall, RoundEnd, Tokens};

use super::generate::Generated;
use super::policy::ToolContext;
use super::round::{Ended, Round};
use super::tools::OfferedTools;
use crate::clock;
use crate::session::Carry;

/// A token of text has about so many bytes.
const BYTES_PER_TOKEN: u64 = 4;

impl Round<'_> {
    /// The turn's answer, complete or partial.
    pub(super) fn answered(&mut self, said: Generated, routed_to: &str) -> Answered {
        let Generated { assembly, verbatim, status, failure, held, .. } = said;
        let answer = verbatim.unwrap_or_else(|| assembly.finish());
        let model = answer.model.unwrap_or_else(|| self.request.model.clone());
        let cost_usd = self.engine.models.cost(&model, &answer.usage);
        let unreported = self.unreported(&model, &answer.usage, &answer.message);
        // A stopped turn without text is logged as a note, which models never see: they reject
        // empty messages.
        let said_nothing = || !answer.message.may_call() && answer.message.content().is_empty();
        let noted = status != TurnStatus::Complete && said_nothing();
        let closing = self.request.stream.then(|| {
            let held = held.and_then(|chunk| String::from_utf8(chunk.to_vec()).ok());
            held.unwrap_or_else(|| self.closing_chunk(&model))
        });
        let entry = NewEntry {
            model: Some(model),
            cost_usd,
            status,
            tethered: self.request.tether,
            agent_id: self.other_agent(),
            ..NewEntry::new(if noted { EntryKind::Note } else { EntryKind::Turn }, answer.message)
        };
        let asked = self.take_new();
        Answered {
            asked,
            entry: self.marked(entry),
            tokens: tokens(&answer.usage),
            unreported,
            completion: answer.completion,
            closing,
            routed_to: routed_to.to_owned(),
            left_out: self.left_out,
            failure,
        }
    }

    /// What an answer used and cost by estimate, if the server did not say. Whoever cancels an answer
    /// before its end does not get it for nothing.
    fn unreported(&self, model: &str, usage: &Usage, said: &Message) -> Option<(Tokens, f64)> {
        if usage.prompt_tokens + usage.completion_tokens > 0 || self.sent_tokens == 0 {
            return None;
        }
        let completion_tokens = (said.content().len() as u64).div_ceil(BYTES_PER_TOKEN);
        let prompt_tokens = self.sent_tokens;
        let usage = Usage { prompt_tokens, completion_tokens, ..*usage };
        Some((tokens(&usage), self.engine.models.cost(model, &usage)))
    }

    /// The model calls tools that the gateway runs. If calls of the caller's own tools remain, they
    /// end the turn, and the answer carries the cost of the round.
    pub(super) fn calls_made(
        &mut self,
        calls: Vec<ToolCall>,
        mut said: Generated,
        (tools, who): (&OfferedTools, &ToolContext),
        recalled: Vec<Message>,
        routed_to: &str,
    ) -> Ended {
        let ends = said.assembly.has_calls();
        let usage = if ends { Usage::default() } else { said.assembly.next_round() };
        let cost_usd = self.engine.models.cost(&self.request.model, &usage);
        let call = NewEntry {
            model: Some(self.request.model.clone()),
            cost_usd,
            agent_id: self.other_agent(),
            ..NewEntry::new(EntryKind::Action, ToolCall::message(&calls))
        };
        let mut entries = self.take_new();
        entries.push(self.marked(call));
        // The answer's log position comes after the calls and their results.
        let results = calls.len() as u64;
        self.text().set_seq(self.job.last_seq + entries.len() as u64 + results + 1);
        let plan = |(n, call)| -> PlannedCall {
            self.engine.plan(who, (self.job.session, self.job.turn), n, call, tools, false)
        };
        let calls = (0..).zip(calls).map(plan).collect();
        let (then, carry) = match ends {
            true => (Some(Box::new(self.answered(said, routed_to))), None),
            false => (None, Some(Carry { assembly: said.assembly, recalled })),
        };
        (RoundEnd::Calls { entries, calls, cost_usd, tokens: tokens(&usage), then }, carry)
    }

    /// A final chunk for a stream whose model sent none.
    fn closing_chunk(&self, model: &str) -> String {
        serde_json::json!({
            "id": format!("chatcmpl-{}", self.job.turn),
            "object": "chat.completion.chunk",
            "created": clock::now().as_second(),
            "model": model,
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        })
        .to_string()
    }
}

fn tokens(usage: &Usage) -> Tokens {
    Tokens { prompt: usage.prompt_tokens, completion: usage.completion_tokens }
}
