//! The rows that commits write, with the writes of one commit folded: a turn that is accepted and ends in one
//! commit has no row, and its key has its result at once. So each table can be written by one statement.

use std::collections::BTreeMap;

use bowline_sbp::budget::{Day, Spent};
use bowline_sbp::session::{
    AskedRow, AttachmentRow, Commit, DeviceRow, GrantRow, IdempotencyKey, Placed, TurnRow, Write,
};
use uuid::Uuid;

use super::error::Attempt;
use super::rows::{corrupt, millis, uuid};

/// Rows of different sessions, each with the id of its session.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    pub(super) turns: Vec<NewTurn<'a>>,
    pub(super) keys: Vec<NewKey<'a>>,
    /// Turns whose rows, and turns whose keys are deleted.
    pub(super) ended: Vec<(Uuid, Uuid)>,
    pub(super) freed: Vec<(Uuid, Uuid)>,
    /// What is stored under the keys of turns.
    pub(super) results: Vec<(Uuid, Uuid, &'a str)>,
    pub(super) started: Vec<(Uuid, Uuid, i64)>,
    pub(super) left_open: Vec<(Uuid, Uuid, String)>,
    pub(super) advanced: Vec<(Uuid, Uuid)>,
    pub(super) entries: Vec<(Uuid, &'a Placed)>,
    pub(super) instructions: Vec<(Uuid, String)>,
    pub(super) asked: Vec<NewApproval<'a>>,
    pub(super) steps: Vec<ApprovalStep>,
    pub(super) grants: Vec<(Uuid, &'a GrantRow)>,
    pub(super) attached: Vec<(Uuid, &'a AttachmentRow)>,
    pub(super) detached: Vec<(Uuid, i64)>,
    pub(super) devices: Vec<(Uuid, &'a DeviceRow)>,
    pub(super) forgotten: Vec<(Uuid, &'a str)>,
    /// By session, day, user and key.
    pub(super) spent: BTreeMap<(Uuid, i64, Uuid, String), Spent>,
}

#[derive(Debug)]
pub(super) struct NewTurn<'a> {
    pub(super) session: Uuid,
    pub(super) row: &'a TurnRow,
    pub(super) started: bool,
    pub(super) attempt: i64,
    pub(super) advanced: bool,
    pub(super) at: i64,
}

#[derive(Debug)]
pub(super) struct NewKey<'a> {
    pub(super) session: Uuid,
    pub(super) turn: Uuid,
    pub(super) key: &'a IdempotencyKey,
    pub(super) result: Option<&'a str>,
    pub(super) at: i64,
}

#[derive(Debug)]
pub(super) struct NewApproval<'a> {
    pub(super) session: Uuid,
    pub(super) row: &'a AskedRow,
    pub(super) state: &'static str,
    pub(super) decision: Option<String>,
}

#[derive(Debug)]
pub(super) struct ApprovalStep {
    pub(super) session: Uuid,
    pub(super) id: Uuid,
    pub(super) state: &'static str,
    pub(super) decision: Option<String>,
}

impl<'a> Rows<'a> {
    /// Adds what a commit writes. Blobs, handoffs and deletions are not rows of this kind.
    pub(super) fn add(&mut self, commit: &'a Commit) -> Attempt<()> {
        let session = uuid(commit.session.as_bytes());
        let at = commit.head.updated_at;
        for write in &commit.writes {
            match write {
                Write::Accept { turn, key, .. } => {
                    self.accept(session, turn, key.as_ref(), millis(at));
                }
                Write::Start { turn, attempt } => {
                    self.start(session, uuid(turn.as_bytes()), i64::from(*attempt));
                }
                Write::LeaveOpen { turn, open } => {
                    let turn = uuid(turn.as_bytes());
                    self.left_open.retain(|(_, other, _)| *other != turn);
                    self.left_open.push((session, turn, open.to_json()));
                }
                Write::Append { entries, advances } => {
                    self.append(session, entries)?;
                    if let Some(turn) = advances {
                        self.advance(session, uuid(turn.as_bytes()));
                    }
                }
                Write::Spend { spender, spent } => {
                    let (day, user) = (Day::of(at).0, uuid(spender.user.as_bytes()));
                    let key = spender.key.as_ref().map(|key| key.as_str().to_owned());
                    for key in std::iter::once(String::new()).chain(key) {
                        let sum = self.spent.entry((session, day, user, key)).or_default();
                        add_spent(sum, spent);
                    }
                }
                Write::End { turn, keyed, result } => {
                    let turn = uuid(turn.as_bytes());
                    match result {
                        _ if !keyed => self.end(session, turn),
                        Some(result) => {
                            self.end(session, turn);
                            self.keep_result(session, turn, result);
                        }
                        None => self.end_and_free(session, turn),
                    }
                }
                Write::Forget { turn } => self.end_and_free(session, uuid(turn.as_bytes())),
                Write::Ask(row) => self.asked.push(NewApproval {
                    session,
                    row,
                    state: row.approval.state.as_str(),
                    decision: None,
                }),
                Write::StepApproval { id, state, decision } => {
                    let decision = decision.as_ref().map(serde_json::to_string).transpose();
                    let decision = decision.map_err(|_| corrupt("a decision that is not JSON"))?;
                    self.step(session, uuid(id.as_bytes()), state.as_str(), decision);
                }
                Write::Grant(row) => {
                    self.grants.retain(|(of, old)| {
                        *of != session || (&old.tool, &old.device) != (&row.tool, &row.device)
                    });
                    self.grants.push((session, row));
                }
                Write::Attach(row) => self.attached.push((session, row)),
                Write::Detach { epoch } => {
                    self.attached.retain(|(of, row)| *of != session || row.epoch != *epoch);
                    self.detached.push((session, *epoch as i64));
                }
                Write::Device(row) => {
                    self.devices
                        .retain(|(of, old)| *of != session || old.surface_id != row.surface_id);
                    self.devices.push((session, row));
                }
                Write::ForgetDevice { surface_id } => {
                    self.devices
                        .retain(|(of, old)| *of != session || old.surface_id != *surface_id);
                    self.forgotten.push((session, surface_id));
                }
                Write::Delivered { .. } | Write::HandOff(_) | Write::Delete => {}
            }
        }
        Ok(())
    }

    fn accept(
        &mut self,
        session: Uuid,
        row: &'a TurnRow,
        key: Option<&'a IdempotencyKey>,
        at: i64,
    ) {
        let turn = uuid(row.id.as_bytes());
        let TurnRow { started, attempt, advanced, .. } = *row;
        let attempt = i64::from(attempt);
        self.turns.push(NewTurn { session, row, started, attempt, advanced, at });
        if let Some(key) = key {
            self.keys.push(NewKey { session, turn, key, result: None, at });
        }
    }

    /// The row of a turn that is accepted in the same commit.
    fn new_turn(&mut self, session: Uuid, turn: Uuid) -> Option<&mut NewTurn<'a>> {
        let is_it =
            |new: &&mut NewTurn<'_>| new.session == session && uuid(new.row.id.as_bytes()) == turn;
        self.turns.iter_mut().rev().find(is_it)
    }

    fn start(&mut self, session: Uuid, turn: Uuid, attempt: i64) {
        if let Some(new) = self.new_turn(session, turn) {
            (new.started, new.attempt) = (true, attempt);
            return;
        }
        self.started.retain(|(_, other, _)| *other != turn);
        self.started.push((session, turn, attempt));
    }

    fn advance(&mut self, session: Uuid, turn: Uuid) {
        if let Some(new) = self.new_turn(session, turn) {
            new.advanced = true;
        } else if !self.advanced.contains(&(session, turn)) {
            self.advanced.push((session, turn));
        }
    }

    fn append(&mut self, session: Uuid, entries: &'a [Placed]) -> Attempt<()> {
        for placed in entries {
            self.entries.push((session, placed));
            if let Some(messages) = &placed.entry.instruction {
                let messages = serde_json::to_string(messages)
                    .map_err(|_| corrupt("an instruction that is not JSON"))?;
                self.instructions.retain(|(of, _)| *of != session);
                self.instructions.push((session, messages));
            }
        }
        Ok(())
    }

    fn end(&mut self, session: Uuid, turn: Uuid) {
        let before = self.turns.len();
        self.turns.retain(|new| new.session != session || uuid(new.row.id.as_bytes()) != turn);
        if self.turns.len() == before {
            self.ended.push((session, turn));
        }
    }

    fn keep_result(&mut self, session: Uuid, turn: Uuid, result: &'a str) {
        match self.keys.iter_mut().find(|key| key.turn == turn) {
            Some(key) => key.result = Some(result),
            None => self.results.push((session, turn, result)),
        }
    }

    fn end_and_free(&mut self, session: Uuid, turn: Uuid) {
        self.end(session, turn);
        let before = self.keys.len();
        self.keys.retain(|key| key.turn != turn);
        if self.keys.len() == before {
            self.freed.push((session, turn));
        }
    }

    fn step(&mut self, session: Uuid, id: Uuid, state: &'static str, decision: Option<String>) {
        let is_new =
            |new: &&mut NewApproval<'_>| uuid(new.row.approval.approval_id.as_bytes()) == id;
        if let Some(new) = self.asked.iter_mut().find(is_new) {
            new.state = state;
            new.decision = decision.or(new.decision.take());
        } else if let Some(step) = self.steps.iter_mut().find(|step| step.id == id) {
            step.state = state;
            step.decision = decision.or(step.decision.take());
        } else {
            self.steps.push(ApprovalStep { session, id, state, decision });
        }
    }
}

fn add_spent(sum: &mut Spent, spent: &Spent) {
    sum.turns = sum.turns.saturating_add(spent.turns);
    sum.model_calls = sum.model_calls.saturating_add(spent.model_calls);
    sum.prompt_tokens = sum.prompt_tokens.saturating_add(spent.prompt_tokens);
    sum.completion_tokens = sum.completion_tokens.saturating_add(spent.completion_tokens);
    sum.usd_micros = sum.usd_micros.saturating_add(spent.usd_micros);
    sum.exports = sum.exports.saturating_add(spent.exports);
}
