//! One turn, from the front of its lane to its end in the log.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbp::completion::{Answer, Assembly, as_chunk};
use bowline_sbp::error::Code;
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::SnapshotId;
use bowline_sbp::message::{Message, already_stored};
use bowline_store::{EntryKind, Error, Finish, NewEntry, Session, Snapshot};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;
use uuid::Uuid;

use super::histories::History;
use super::request::{Origin, TurnRequest};
use super::{Engine, info, internal, stopping};
use crate::clock;
use crate::hub::{Channel, Done, Failure, LiveTurn, Outcome};
use crate::lanes::Ticket;
use crate::model::{Call, Model, Reply};

/// A turn is run again once after a crash; a second crash ends it (SBP-L2-13).
const MOST_ATTEMPTS: u32 = 2;
/// How much larger than its text a streamed answer may be: every word travels in its own JSON.
const CHUNK_OVERHEAD: usize = 64;

impl Engine {
    /// Waits for the lane, runs the turn, and tells everyone how it ended.
    pub(super) async fn run_in_lane(
        self: Arc<Self>,
        turn: Arc<LiveTurn>,
        request: TurnRequest,
        mut ticket: Ticket,
        now: Option<Session>,
    ) {
        let begun = Instant::now();
        let runs = tokio::select! {
            () = ticket.called() => true,
            // A turn that has not started stays on disk and is taken up by the next start.
            () = self.stop.cancelled(), if now.is_none() => false,
        };
        let outcome = if runs {
            // A panic ends this turn, not the gateway.
            let run = AssertUnwindSafe(self.run(&turn, request, now)).catch_unwind();
            run.await.unwrap_or_else(|_| {
                metrics::counter!("bowline_panics_total").increment(1);
                if let Some(channel) = self.hub.existing(turn.session) {
                    channel.dropped();
                }
                Err(internal())
            })
        } else {
            Err(stopping())
        };
        let outcome = self.explained(&turn, outcome).await;
        let status = match &outcome {
            Ok(done) => done.info.turn_status,
            Err(_) => TurnStatus::Failed,
        };
        metrics::counter!("bowline_turns_total", "status" => status.as_str()).increment(1);
        metrics::histogram!("bowline_turn_seconds").record(begun.elapsed().as_secs_f64());
        self.lock_active().remove(&turn.id);
        turn.end(outcome);
        drop(ticket);
    }

    /// A session that was deleted took its turns with it; that is no mistake of ours.
    async fn explained(&self, turn: &LiveTurn, outcome: Outcome) -> Outcome {
        let ours = matches!(&outcome, Err(failure) if failure.code == Code::Internal);
        if ours && matches!(self.store.session(turn.session).await, Ok(None)) {
            return Err(Error::NoSession.into());
        }
        outcome
    }

    /// Asks the store for as long as it takes: a turn that was accepted is not left lying because
    /// the disk was busy for a moment. Whoever waits is told at the first failure.
    async fn patiently<T, F>(&self, turn: &LiveTurn, ask: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = bowline_store::Result<T>>,
    {
        let mut pause = Duration::from_millis(100);
        loop {
            match ask().await {
                Err(error @ Error::Unavailable(_)) if !self.stop.is_cancelled() => {
                    turn.end(Err(error.into()));
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
                answered => return answered.map_err(Failure::from),
            }
        }
    }

    async fn run(
        &self,
        turn: &Arc<LiveTurn>,
        request: TurnRequest,
        now: Option<Session>,
    ) -> Result<Arc<Done>, Failure> {
        let session = match now {
            Some(session) => session,
            None => {
                self.patiently(turn, || self.store.start_turn(turn.id, self.instance)).await?;
                let session = self.patiently(turn, || self.store.session(turn.session)).await?;
                session.ok_or(Failure::from(Error::NoSession))?
            }
        };
        let mut history = match self.histories.take(turn.session, session.last_seq) {
            _ if session.last_seq == 0 => History::default(),
            Some(history) => history,
            None => self.patiently(turn, || self.store.history(turn.session)).await?.into(),
        };
        let known = already_stored(history.messages(), &request.messages);
        let new = request.messages[known..].to_vec();
        let before = (history.messages().len(), session.last_seq);
        new.iter().cloned().for_each(|message| history.push(message));
        turn.set_seq(session.last_seq + new.len() as u64 + 1);

        let channel = self.hub.channel(turn.session);
        let run = Run { engine: self, turn, request, session, new, channel: &channel };
        let ended = run.carry_out(Arc::clone(history.messages())).await;
        let last_seq = match &ended {
            Ok((_, said)) => {
                said.iter().cloned().for_each(|message| history.push(message));
                turn.seq().unwrap_or_default()
            }
            Err(_) => {
                history.truncate(before.0);
                before.1
            }
        };
        self.histories.put(turn.session, last_seq, history);
        let ended = ended.map(|(done, _)| done);
        if ended.is_err() {
            // Whatever surfaces saw of it is either in the log by now, or came to nothing.
            channel.dropped();
        }
        ended
    }
}

/// A turn being run, and all it needs.
struct Run<'a> {
    engine: &'a Engine,
    turn: &'a Arc<LiveTurn>,
    request: TurnRequest,
    /// The session before the turn. Nothing else appends to it meanwhile: the lane is ours.
    session: Session,
    /// The messages that the turn adds.
    new: Vec<Message>,
    channel: &'a Channel,
}

/// How a turn ended, and what it added to the conversation, if anything.
type Ended = (Arc<Done>, Option<Message>);

/// What a model gave before it ended, was stopped, or failed.
struct Generated {
    answer: Answer,
    status: TurnStatus,
    /// Why it is not complete.
    failure: Option<Failure>,
    /// The last chunk, kept back until the turn is on disk.
    held: Option<Bytes>,
}

impl Run<'_> {
    async fn carry_out(self, history: Arc<Vec<Message>>) -> Result<Ended, Failure> {
        if self.turn.attempt > MOST_ATTEMPTS {
            let text = "This turn was interrupted twice by a restart of the gateway and was given \
                        up. Send it again to have it answered.";
            self.note(text, TurnStatus::Interrupted).await?;
            return Err(Failure::new(Code::Internal, text));
        }
        // Served when it was accepted; a restart may have changed that.
        let model = match self.engine.models.route(&self.request.model) {
            Ok(model) => model,
            Err(failure) => return self.give_up(failure).await,
        };
        self.channel.begin(self.turn);
        let call = Call {
            model: self.request.model.clone(),
            params: self.request.params.clone(),
            messages: history,
            stream: self.request.stream
                || self.request.origin == Origin::Surface
                || model.always_streams()
                || self.channel.is_watched(),
        };
        let asked = Instant::now();
        let generated = self.generate(model, call).await;
        metrics::histogram!("bowline_model_seconds").record(asked.elapsed().as_secs_f64());
        match generated {
            Ok(generated) => self.keep(generated, model.name()).await,
            Err(failure) => self.give_up(failure).await,
        }
    }

    /// There is no answer: a caller who waits sees the error, others find it in the log.
    async fn give_up(&self, failure: Failure) -> Result<Ended, Failure> {
        metrics::counter!("bowline_upstream_failures_total").increment(1);
        if self.request.origin == Origin::Http && self.turn.attempt == 1 {
            // Nothing is stored (G4).
            let abandon = || self.engine.store.abandon_turn(self.turn.id, self.engine.instance);
            self.engine.patiently(self.turn, abandon).await?;
        } else {
            let text = format!("The model did not answer: {failure}. Send it again to retry.");
            self.note(&text, TurnStatus::Failed).await?;
        }
        Err(failure)
    }

    /// Has the model speak until it ends, fails, or someone says stop.
    async fn generate(&self, model: &Model, call: Call) -> Result<Generated, Failure> {
        let mut assembly = Assembly::default();
        let mut held = None;
        let reply = tokio::select! {
            reply = model.call(call) => reply?,
            () = self.turn.cancelled() => return Ok(stopped(assembly, None)),
        };
        let mut chunks = match reply {
            Reply::Chunks(chunks) => chunks,
            Reply::Whole(completion) => return self.whole(completion),
        };
        let hide_usage = !self.request.wants_usage();
        let mut begun = false;
        let mut received = 0;
        loop {
            let next = tokio::select! {
                next = chunks.next() => next,
                () = self.turn.cancelled() => return Ok(stopped(assembly, None)),
            };
            let chunk = match next {
                None => break,
                Some(Ok(chunk)) => chunk,
                Some(Err(failure)) if begun => return Ok(stopped(assembly, Some(failure))),
                Some(Err(failure)) => return Err(failure),
            };
            let read = std::str::from_utf8(&chunk).ok().and_then(|text| assembly.push(text).ok());
            let Some(added) = read else {
                let failure = nonsense("a chunk cannot be read");
                return if begun { Ok(stopped(assembly, Some(failure))) } else { Err(failure) };
            };
            received += chunk.len();
            let limit = self.engine.limits.answer;
            if assembly.text().len() > limit || received > limit.saturating_mul(CHUNK_OVERHEAD) {
                let failure = Failure::new(Code::Upstream, "the answer is over the size limit");
                return Ok(stopped(assembly, Some(failure)));
            }
            begun = true;
            // The caller did not ask for a count of tokens; we did.
            if hide_usage && !added.speaks {
                continue;
            }
            // From the finishing chunk on, one is kept back: it will carry `sbp`.
            let ready = if assembly.has_finished() { held.replace(chunk) } else { Some(chunk) };
            // Chunks are kept only for someone who reads them.
            self.publish(ready.filter(|_| self.request.stream), &added.text);
        }
        if !begun {
            return Err(nonsense("it is empty"));
        }
        let answer = assembly.finish();
        Ok(Generated { answer, status: TurnStatus::Complete, failure: None, held })
    }

    /// A model that answers all at once.
    fn whole(&self, completion: String) -> Result<Generated, Failure> {
        let answer = Answer::read(completion).map_err(nonsense)?;
        self.publish(None, &answer.message.content());
        let held = self.request.stream.then(|| as_chunk(&answer.completion)).flatten();
        let held = held.map(Bytes::from);
        Ok(Generated { answer, status: TurnStatus::Complete, failure: None, held })
    }

    fn publish(&self, chunk: Option<Bytes>, text: &str) {
        if chunk.is_some() || !text.is_empty() {
            self.turn.push(chunk, text);
            self.channel.grew();
        }
    }

    /// Writes an answer, whole or partial, and then says so.
    async fn keep(&self, generated: Generated, routed_to: &str) -> Result<Ended, Failure> {
        let Generated { answer, status, failure, held } = generated;
        let model = answer.model.unwrap_or_else(|| self.request.model.clone());
        let cost_usd = self.engine.models.cost(&model, &answer.usage);
        let silent = answer.message.content().is_empty()
            && !answer.message.as_json().contains("\"tool_calls\"");
        let entry = NewEntry {
            // A stopped turn that said nothing is for the reader: models reject empty messages.
            kind: if silent && status != TurnStatus::Complete {
                EntryKind::Note
            } else {
                EntryKind::Turn
            },
            message: answer.message,
            model: Some(model.clone()),
            cost_usd,
            status,
            tethered: self.request.tether,
        };
        let (at, checkpoint) = (clock::now(), SnapshotId(Uuid::now_v7()));
        let mut info = info(&self.after(&entry, checkpoint, at));
        info.cost_usd = cost_usd;
        info.model_routed_to = Some(routed_to.to_owned());
        info.turn_id = Some(self.turn.id);
        info.seq = self.turn.seq();
        info.turn_status = status;
        let closing = held.and_then(|chunk| String::from_utf8(chunk.to_vec()).ok());
        let closing = closing.unwrap_or_else(|| self.closing_chunk(&model));
        let done = Done { completion: answer.completion, info, closing: Some(closing) };
        // A partial answer is not a result to be given again: a retry runs anew.
        let result = failure.is_none().then(|| done.to_json());
        let said = Some(entry.message.clone()).filter(|_| entry.kind == EntryKind::Turn);
        self.finish(entry, checkpoint, result, at).await?;
        failure.map_or_else(|| Ok((Arc::new(done), said)), Err)
    }

    /// The session as it will be once `entry` is in: known before it is written, because the
    /// lane is ours.
    fn after(&self, entry: &NewEntry, checkpoint: SnapshotId, at: Timestamp) -> Session {
        let mut session = self.session.clone();
        session.last_seq = self.turn.seq().unwrap_or_default();
        session.step_count += u64::from(entry.kind == EntryKind::Turn);
        if session.step_count.is_multiple_of(u64::from(self.request.checkpoint_every)) {
            session.snapshot = Some(Snapshot { id: checkpoint, seq: session.last_seq, at });
        }
        session
    }

    /// Records what became of the turn instead of an answer.
    async fn note(&self, text: &str, status: TurnStatus) -> Result<(), Failure> {
        let note = NewEntry {
            kind: EntryKind::Note,
            message: Message::text("system", text),
            model: None,
            cost_usd: 0.0,
            status,
            tethered: self.request.tether,
        };
        self.finish(note, SnapshotId(Uuid::now_v7()), None, clock::now()).await
    }

    /// Writes the end of the turn, for as long as it takes: until then the answer exists only
    /// here. Whoever waits is told at the first failure; the writing goes on.
    async fn finish(
        &self,
        last: NewEntry,
        checkpoint: SnapshotId,
        result: Option<String>,
        at: Timestamp,
    ) -> Result<(), Failure> {
        let messages = self.new.iter().cloned().map(NewEntry::message);
        let finish = Finish {
            turn_id: self.turn.id,
            owner: self.engine.instance,
            entries: messages.chain([last]).collect(),
            checkpoint,
            checkpoint_every: self.request.checkpoint_every,
            result,
            at,
        };
        let write = || self.engine.store.finish_turn(finish.clone());
        let session = self.engine.patiently(self.turn, write).await?;
        self.channel.committed(session.last_seq);
        Ok(())
    }

    /// A last chunk for a stream whose model did not send one.
    fn closing_chunk(&self, model: &str) -> String {
        serde_json::json!({
            "id": format!("chatcmpl-{}", self.turn.id),
            "object": "chat.completion.chunk",
            "created": clock::now().as_second(),
            "model": model,
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        })
        .to_string()
    }
}

fn stopped(assembly: Assembly, failure: Option<Failure>) -> Generated {
    let status = if failure.is_some() { TurnStatus::Failed } else { TurnStatus::Cancelled };
    Generated { answer: assembly.finish(), status, failure, held: None }
}

fn nonsense(what: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Upstream, format!("the upstream's answer makes no sense: {what}"))
}
