//! Turns: accepted, run round by round, ended.

use std::sync::Arc;

use super::{Machine, RECENT, Step};
use crate::api::SbpInfo;
use crate::budget::{Spender, Spent, usd_micros};
use crate::error::{Code, Failure};
use crate::frame::TurnStatus;
use crate::id::{Seq, TurnId};
use crate::lifecycle::Status;
use crate::message::{EntryKind, Message};
use crate::session::commit::Write;
use crate::session::effect::{Effect, Refusal, Reply};
use crate::session::input::{CommandId, HandOff, Now};
use crate::session::live::LiveTurn;
use crate::session::log::NewEntry;
use crate::session::open_call::OpenCall;
use crate::session::request::{Origin, TurnRequest};
use crate::session::row::{IdempotencyKey, SnapshotKind, Tokens, TurnRow};
use crate::session::turn::{Answered, Done, Outcome, RoundEnd};

/// An item of the session's queue.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Turn(Box<Turn>),
    /// Waits for the turns before it. `packing`: its bundle is being built, at that log position
    /// and step count.
    HandOff {
        handoff: Box<HandOff>,
        waiters: Vec<CommandId>,
        packing: Option<(Seq, u64)>,
    },
}

impl Item {
    pub(super) fn turn(&self) -> Option<&Turn> {
        match self {
            Item::Turn(turn) => Some(turn),
            Item::HandOff { .. } => None,
        }
    }

    /// Whether a task of the gateway works on it.
    pub(super) fn runs(&self) -> bool {
        match self {
            Item::Turn(turn) => {
                matches!(turn.state, TurnState::Running { .. } | TurnState::Replanning)
            }
            Item::HandOff { packing, .. } => packing.is_some(),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) id: TurnId,
    pub(super) request: Arc<TurnRequest>,
    question: Option<Arc<str>>,
    model: Arc<str>,
    pub(super) key: Option<IdempotencyKey>,
    keyed: bool,
    /// The session's status before the turn; none if the turn created the session.
    found: Option<Status>,
    pub(super) attempt: u32,
    pub(super) advanced: bool,
    /// An earlier owner accepted it: its caller is no longer connected.
    recovered: bool,
    sender: Option<u64>,
    pub(super) state: TurnState,
    pub(super) waiters: Vec<CommandId>,
    /// Rounds so far, and their cost.
    pub(super) rounds: u32,
    pub(super) spent_usd: f64,
    pub(super) cancelled: bool,
    /// What its last owner left open; nothing if that owner crashed, or there was none.
    pub(super) open_calls: Vec<OpenCall>,
    /// How many of its runs ended by a stop in good order.
    pub(super) stops: u32,
}

#[derive(Debug, Clone)]
pub(super) enum TurnState {
    Waiting,
    /// A request to the model is in progress.
    Running {
        round: u32,
    },
    /// After a restart: [`Effect::Replan`] looks for calls without a result.
    Replanning,
    /// `open` tool calls have no result yet. `then`: the answer to commit when they are done.
    Acting {
        open: usize,
        then: Option<Box<Answered>>,
    },
}

impl Turn {
    /// A newly accepted turn.
    pub(super) fn accepted(
        id: TurnId,
        request: Arc<TurnRequest>,
        key: Option<IdempotencyKey>,
        found: Option<Status>,
        sender: Option<u64>,
        waiters: Vec<CommandId>,
    ) -> Self {
        Self {
            id,
            question: request.question().map(Arc::from),
            model: Arc::from(request.model.as_str()),
            request,
            keyed: key.is_some(),
            key,
            found,
            attempt: 1,
            advanced: false,
            recovered: false,
            sender,
            state: TurnState::Waiting,
            waiters,
            rounds: 0,
            spent_usd: 0.0,
            cancelled: false,
            open_calls: Vec::new(),
            stops: 0,
        }
    }

    /// A turn that an earlier owner accepted.
    pub(super) fn recovered(row: &TurnRow, request: TurnRequest) -> Self {
        let open = row.open_calls.as_ref();
        let of_last = open.filter(|open| open.attempt == row.attempt);
        Self {
            open_calls: of_last.map(|open| open.calls.clone()).unwrap_or_default(),
            stops: open.map_or(0, |open| open.stops),
            keyed: row.keyed,
            attempt: row.attempt,
            advanced: row.advanced,
            recovered: true,
            ..Self::accepted(row.id, Arc::new(request), None, row.found, None, Vec::new())
        }
    }

    pub(super) fn live(&self) -> LiveTurn {
        LiveTurn {
            id: self.id,
            attempt: self.attempt,
            running: self.runs(),
            tethered: self.request.tether,
            sender: self.sender,
            question: self.question.clone(),
            author: self.request.author.as_ref().map(|author| author.name.as_str().into()),
            model: Arc::clone(&self.model),
        }
    }

    /// The number of its runs without those that ended by a stop in good order.
    pub(super) fn tries(&self) -> u32 {
        self.attempt.saturating_sub(self.stops)
    }

    pub(super) fn runs(&self) -> bool {
        !matches!(self.state, TurnState::Waiting)
    }

    /// Whether the HTTP caller still waits and will receive the error.
    fn is_watched(&self) -> bool {
        self.request.origin == Origin::Http
            && self.attempt == 1
            && !self.advanced
            && !self.recovered
    }

    /// The new messages, as far as the request alone tells: those after its last assistant message.
    /// Empty if they are in the log already.
    fn asked(&self) -> Vec<NewEntry> {
        let messages = &self.request.messages;
        let answered = messages.iter().rposition(|message| message.role() == "assistant");
        let new = messages.iter().skip(answered.map_or(0, |at| at + 1));
        // System messages are the session's instruction, and this turn changes nothing.
        let new = new.filter(|message| !matches!(message.role(), "system" | "developer"));
        // Its caller has seen them: it may send them again, and they are not new then.
        let caller = self.request.caller;
        let entry =
            |message: &Message| NewEntry { caller, ..NewEntry::message(Message::clone(message)) };
        new.filter(|_| !self.advanced).map(entry).collect()
    }

    /// The log entry in place of an answer.
    fn note(&self, text: &str, status: TurnStatus) -> NewEntry {
        NewEntry {
            status,
            tethered: self.request.tether,
            ..NewEntry::new(EntryKind::Note, Message::text("system", text))
        }
    }
}

impl Machine {
    /// Starts the item at the front of the queue, unless it runs already.
    pub(super) fn start_next(&mut self, now: Now, step: &mut Step) {
        while !self.stopping && !self.gone {
            let (last_seq, step_count) = (self.head.last_seq, self.head.step_count);
            match self.queue.front_mut() {
                Some(Item::HandOff { handoff, packing, .. }) if packing.is_none() => {
                    *packing = Some((last_seq, step_count));
                    step.effect(Effect::Pack { handoff: HandOff::clone(handoff), last_seq });
                    return;
                }
                Some(Item::Turn(turn)) if !turn.runs() => {
                    if !self.head.status.is_open() {
                        let refusal = Refusal::Ended(self.head.status);
                        self.refuse_front(&refusal, now, step);
                        continue;
                    }
                    turn.state = TurnState::Running { round: 0 };
                    let (turn, attempt) = (turn.id, turn.attempt);
                    started(turn, attempt, step);
                    step.effect(Effect::StartRound { turn, attempt, round: 0, spent_usd: 0.0 });
                    return;
                }
                _ => return,
            }
        }
    }

    /// Ends the turn at the front, which can no longer run.
    pub(super) fn refuse_front(&mut self, refusal: &Refusal, now: Now, step: &mut Step) {
        if let Some(Item::Turn(turn)) = self.queue.pop_front() {
            let there = matches!(refusal, Refusal::HandedOver(_));
            let note = match there {
                true => format!("{refusal}. Send it there."),
                false => format!("This was not answered: {refusal}."),
            };
            let failure = Failure::new(Code::SessionConflict, refusal.to_string());
            self.give_up_unrun(*turn, failure, &note, TurnStatus::Failed, now, step);
        }
    }

    pub(super) fn round_ended(
        &mut self,
        id: TurnId,
        attempt: u32,
        round: u32,
        end: RoundEnd,
        now: Now,
        step: &mut Step,
    ) {
        let Some(turn) = self.front(id) else { return };
        let is_running = matches!(turn.state, TurnState::Running { round: now } if now == round);
        // A late report of an earlier attempt or round.
        if turn.attempt != attempt || !is_running {
            return;
        }
        match end {
            RoundEnd::Calls { entries, calls, cost_usd, tokens, then } => {
                turn.advanced = true;
                turn.rounds = round + 1;
                turn.spent_usd += cost_usd;
                let ends = then.is_some();
                turn.state = TurnState::Acting { open: calls.len(), then };
                let spender = turn.request.spender.clone();
                self.head.tokens += tokens;
                self.append(id, entries, true, now, step);
                // What the answer carries is counted with it.
                if !ends {
                    self.spend(spender, (tokens, cost_usd), 0, step);
                }
                self.take_snapshot(SnapshotKind::PreAction, now);
                let seq = self.head.last_seq;
                self.begin_calls(id, seq, calls, now, step);
            }
            RoundEnd::Answered(answered) => self.answered(*answered, now, step),
            RoundEnd::Refused { asked, failure, note } => {
                if let Some(Item::Turn(turn)) = self.queue.pop_front() {
                    self.give_up(*turn, asked, failure, &note, TurnStatus::Failed, now, step);
                }
                self.start_next(now, step);
            }
        }
    }

    /// If all calls of the turn have a result: starts the next round, or ends the turn.
    pub(super) fn calls_done(&mut self, id: TurnId, now: Now, step: &mut Step) {
        let stopping = self.stopping;
        let Some(turn) = self.acting(id) else { return };
        let TurnState::Acting { open: 0, then } = &mut turn.state else { return };
        if let Some(answered) = then.take() {
            return self.answered(*answered, now, step);
        }
        // While the gateway drains, the next round is left to the next process. That does not know what was
        // cancelled.
        if stopping && !turn.cancelled {
            return;
        }
        let round = turn.rounds;
        turn.state = TurnState::Running { round };
        let (attempt, spent_usd, cancelled) = (turn.attempt, turn.spent_usd, turn.cancelled);
        step.effect(Effect::StartRound { turn: id, attempt, round, spent_usd });
        // Cancelled while its tools ran: the round is stopped at once and only reports how the turn
        // ends.
        if cancelled {
            step.effect(Effect::StopRound { turn: id });
        }
    }

    /// Ends the turn at the front with its answer.
    fn answered(&mut self, answered: Answered, now: Now, step: &mut Step) {
        let Some(Item::Turn(turn)) = self.queue.pop_front() else { return };
        let Answered {
            asked,
            entry,
            tokens,
            unreported,
            completion,
            closing,
            routed_to,
            left_out,
            failure,
        } = answered;
        let (status, cost_usd) = (entry.status, turn.spent_usd + entry.cost_usd);
        let used = unreported.unwrap_or((tokens, entry.cost_usd));
        let mut entries = asked;
        entries.push(entry);
        self.head.tokens += tokens;
        self.append(turn.id, entries, false, now, step);
        self.spend(turn.request.spender.clone(), used, 1, step);
        let every = u64::from(turn.request.checkpoint_every.max(1));
        if self.head.step_count.is_multiple_of(every) {
            self.take_snapshot(SnapshotKind::Checkpoint, now);
        }
        let info = SbpInfo {
            cost_usd,
            model_routed_to: Some(routed_to),
            turn_id: Some(turn.id),
            seq: Some(self.head.last_seq),
            turn_status: status,
            left_out,
            ..self.info()
        };
        let done = Done { completion, info, closing };
        // A partial answer is not replayed under the idempotency key: a retry runs the turn again.
        let result = (turn.keyed && failure.is_none()).then(|| done.to_json());
        step.write(Write::End { turn: turn.id, keyed: turn.keyed, result });
        let outcome = failure.map_or(Ok(done), |failure| Err(failure.after_storing()));
        self.ended(*turn, outcome, step);
        self.start_next(now, step);
    }

    /// Counts a round, and perhaps the turn that it ends, for whoever sent the turn.
    fn spend(
        &self,
        spender: Option<Spender>,
        (tokens, cost_usd): (Tokens, f64),
        turns: u64,
        step: &mut Step,
    ) {
        let spent = Spent {
            turns,
            model_calls: 1,
            prompt_tokens: tokens.prompt,
            completion_tokens: tokens.completion,
            usd_micros: usd_micros(cost_usd),
            exports: 0,
        };
        let spender = spender.unwrap_or(Spender::user(self.user));
        step.write(Write::Spend { spender, spent });
    }

    /// The session's part of the `sbp` object of an answer.
    fn info(&self) -> SbpInfo {
        SbpInfo {
            session_id: self.id,
            session_token: None,
            snapshot_id: self.head.snapshot.map(|snapshot| snapshot.id),
            resume_available: false,
            resume_prompt: None,
            last_checkpoint: self.head.snapshot.map(|snapshot| snapshot.at),
            step_count: self.head.step_count,
            cost_usd: self.head.cost_usd,
            model_routed_to: None,
            turn_id: None,
            seq: None,
            turn_status: TurnStatus::Complete,
            left_out: None,
        }
    }

    /// Ends a turn without an answer. If its caller receives the error, nothing is stored (G4);
    /// otherwise the log gets the request's messages and a note.
    #[expect(clippy::too_many_arguments, reason = "all of them are needed to end a turn")]
    pub(super) fn give_up(
        &mut self,
        turn: Turn,
        asked: Vec<NewEntry>,
        failure: Failure,
        note: &str,
        status: TurnStatus,
        now: Now,
        step: &mut Step,
    ) {
        if turn.is_watched() {
            return self.forget(turn, failure, now, step);
        }
        let mut entries = asked;
        entries.push(turn.note(note, status));
        self.append(turn.id, entries, false, now, step);
        step.write(Write::End { turn: turn.id, keyed: turn.keyed, result: None });
        self.ended(turn, Err(failure.after_storing()), step);
    }

    /// [`Machine::give_up`] for a turn that was never run: the messages come from its request.
    pub(super) fn give_up_unrun(
        &mut self,
        turn: Turn,
        failure: Failure,
        note: &str,
        status: TurnStatus,
        now: Now,
        step: &mut Step,
    ) {
        let asked = turn.asked();
        self.give_up(turn, asked, failure, note, status, now, step);
    }

    /// Removes a failed turn without a trace. A session that it created is deleted.
    fn forget(&mut self, turn: Turn, failure: Failure, now: Now, step: &mut Step) {
        step.write(Write::Forget { turn: turn.id });
        let is_alone = self.queue.is_empty() && self.surfaces.is_empty();
        let found = turn.found;
        self.ended(turn, Err(failure), step);
        match found {
            _ if !is_alone => {}
            None if self.head.last_seq == 0 => {
                self.vanish(step);
                step.effect(Effect::End);
            }
            None => {}
            Some(found) if self.head.status == Status::Running => {
                self.head.status = found;
                self.head.updated_at = now.at;
            }
            Some(_) => {}
        }
    }

    fn ended(&mut self, turn: Turn, outcome: Outcome, step: &mut Step) {
        self.calls_of_ended(turn.id, step);
        let outcome = Arc::new(outcome);
        for to in turn.waiters {
            let outcome = Box::new(Outcome::clone(&outcome));
            step.reply(to, Reply::Ended { turn: turn.id, outcome });
        }
        self.recent.push_back((turn.id, outcome));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// Cancels turns. A waiting turn ends as a note, without its messages; a running one is
    /// stopped, and its partial answer is kept.
    pub(super) fn cancel(
        &mut self,
        turns: &[TurnId],
        running: bool,
        now: Now,
        step: &mut Step,
    ) -> Vec<TurnId> {
        let mut stopped = Vec::new();
        let mut waiting = Vec::new();
        for item in std::mem::take(&mut self.queue) {
            match item {
                Item::Turn(turn) if !turn.runs() && turns.contains(&turn.id) => waiting.push(turn),
                item => self.queue.push_back(item),
            }
        }
        for turn in waiting {
            let why = "the turn was cancelled before it began";
            let failure = Failure::new(Code::SessionConflict, why);
            let entry = turn.note("This was cancelled before it began.", TurnStatus::Cancelled);
            stopped.push(turn.id);
            self.append(turn.id, vec![entry], false, now, step);
            step.write(Write::End { turn: turn.id, keyed: turn.keyed, result: None });
            self.ended(*turn, Err(failure), step);
        }
        if let Some(Item::Turn(front)) = self.queue.front_mut()
            && front.runs()
            && (running || turns.contains(&front.id))
        {
            front.cancelled = true;
            let id = front.id;
            stopped.insert(0, id);
            step.effect(Effect::StopRound { turn: id });
            self.cancel_calls(id, now, step);
            // While the gateway stops, all calls may have ended before.
            self.calls_done(id, now, step);
        }
        stopped
    }
}

/// Records that the turn has started: in its `Accept`, if that is the last write of this step.
pub(super) fn started(id: TurnId, attempt: u32, step: &mut Step) {
    if let Some(Write::Accept { turn, .. }) = step.writes.last_mut()
        && turn.id == id
    {
        turn.started = true;
        return;
    }
    step.write(Write::Start { turn: id, attempt });
}
