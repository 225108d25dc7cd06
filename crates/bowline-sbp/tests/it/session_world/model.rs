//! The simulated language model: a round ends at random, unless it was cancelled.

use std::sync::Arc;

use bowline_sbp::completion::ToolCall;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::TurnId;
use bowline_sbp::message::{EntryKind, Message};
use bowline_sbp::session::{Answered, NewEntry, Now, RoundEnd, Tokens, TurnRequest};

use super::tools::{self, TOOLS};
use crate::random::Random;

/// A turn ends after this many rounds.
const MOST_ROUNDS: u32 = 2;

/// A running round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) turn: TurnId,
    pub(super) attempt: u32,
    pub(super) round: u32,
    pub(super) request: Arc<TurnRequest>,
    /// The turn's question is already in the log.
    pub(super) advanced: bool,
    pub(super) stopped: bool,
}

impl Round {
    pub(super) fn end(&self, random: &mut Random, now: Now) -> RoundEnd {
        let failed = || Failure::new(Code::Upstream, "the model failed");
        match random.below(100) {
            _ if self.stopped => self.answered(TurnStatus::Cancelled, None),
            0..45 if self.round < MOST_ROUNDS => self.calls(random, now),
            80..90 => RoundEnd::Refused {
                asked: Vec::new(),
                failure: failed(),
                note: "The model failed.".into(),
            },
            90.. => self.answered(TurnStatus::Failed, Some(failed())),
            _ => self.answered(TurnStatus::Complete, None),
        }
    }

    fn answered(&self, status: TurnStatus, failure: Option<Failure>) -> RoundEnd {
        RoundEnd::Answered(Box::new(self.answer(status, failure, self.asked())))
    }

    fn answer(
        &self,
        status: TurnStatus,
        failure: Option<Failure>,
        asked: Vec<NewEntry>,
    ) -> Answered {
        let text = format!("answer {} of {}", self.attempt, self.turn);
        let message = Message::text("assistant", &text);
        let entry = NewEntry {
            status,
            cost_usd: 0.25,
            tethered: true,
            ..NewEntry::new(EntryKind::Turn, message)
        };
        Answered {
            asked,
            entry,
            tokens: Tokens::default(),
            completion: text,
            closing: None,
            routed_to: "offline".into(),
            left_out: None,
            unreported: None,
            failure,
        }
    }

    fn asked(&self) -> Vec<NewEntry> {
        let messages = self.request.messages.iter().filter(|_| !self.advanced);
        messages.cloned().map(NewEntry::message).collect()
    }

    fn calls(&self, random: &mut Random, now: Now) -> RoundEnd {
        let many = 1 + random.below(3);
        let calls: Vec<_> = (0..many)
            .map(|n| ToolCall {
                id: format!("{}-{}-{}-{n}", self.turn, self.attempt, self.round),
                name: TOOLS[random.below(TOOLS.len())].name.into(),
                arguments: "{}".into(),
            })
            .collect();
        let mut entries = self.asked();
        entries.push(NewEntry::new(EntryKind::Action, ToolCall::message(&calls)));
        let then = random.percent(10);
        let then = then.then(|| Box::new(self.answer(TurnStatus::Complete, None, Vec::new())));
        let planned = calls.into_iter().zip(0..);
        let calls =
            planned.map(|(call, n)| tools::plan(random, self.turn, n, call, false, now)).collect();
        RoundEnd::Calls { entries, calls, cost_usd: 0.25, tokens: Tokens::default(), then }
    }
}
