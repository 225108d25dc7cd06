//! A turn's end, in the log and then in the open.

use std::sync::Arc;

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::SnapshotId;
use bowline_sbp::message::Message;
use bowline_store::{EntryKind, Finish, NewEntry, Session, Snapshot, SnapshotKind};
use jiff::Timestamp;
use uuid::Uuid;

use super::generate::Round;
use super::info;
use super::request::Origin;
use super::run::{Ended, Run};
use crate::clock;
use crate::hub::{Done, Failure};

/// A turn's end, for the log and for those who wait.
struct Conclusion {
    finish: Finish,
    done: Arc<Done>,
    /// What it added to the conversation.
    said: Option<Message>,
    /// Why it is not complete.
    failure: Option<Failure>,
}

impl Run<'_> {
    /// There is no answer: a caller who waits sees the error, others find it in the log.
    pub(super) async fn give_up(&mut self, failure: Failure) -> Result<Ended, Failure> {
        metrics::counter!("bowline_upstream_failures_total").increment(1);
        let text = format!("The model did not answer: {failure}. Send it again to retry.");
        self.refuse(&text, failure).await
    }

    /// The turn ends with nothing but the reason.
    pub(super) async fn refuse(&mut self, note: &str, failure: Failure) -> Result<Ended, Failure> {
        if self.request.origin == Origin::Http && self.turn.attempt == 1 && !self.advanced {
            // Nothing is stored (G4).
            let abandon = || self.engine.store.abandon_turn(self.turn.id, self.engine.instance);
            self.engine.patiently(self.turn, abandon).await?;
        } else {
            self.note(note, TurnStatus::Failed).await?;
        }
        Err(failure)
    }

    /// Writes an answer, whole or partial, and then says so.
    pub(super) async fn keep(&mut self, round: Round, routed_to: &str) -> Result<Ended, Failure> {
        let Conclusion { finish, done, said, failure } = self.conclude(round, routed_to);
        self.finish(finish).await?;
        failure.map_or_else(|| Ok((done, said)), Err)
    }

    /// What is to be written, and what is then to be said. Apart from the writing, so that what is
    /// only needed here is not kept through it.
    fn conclude(&mut self, round: Round, routed_to: &str) -> Conclusion {
        let Round { assembly, verbatim, status, failure, held, .. } = round;
        let answer = Round::answer(assembly, verbatim);
        let model = answer.model.unwrap_or_else(|| self.request.model.clone());
        let cost_usd = self.engine.models.cost(&model, &answer.usage);
        // A stopped turn that said nothing is for the reader: models reject empty messages.
        let said_nothing = || !answer.message.may_call() && answer.message.content().is_empty();
        let noted = status != TurnStatus::Complete && said_nothing();
        let entry = NewEntry {
            model: Some(model.clone()),
            cost_usd,
            status,
            tethered: self.request.tether,
            agent_id: self.request.agent_id.clone(),
            ..NewEntry::new(if noted { EntryKind::Note } else { EntryKind::Turn }, answer.message)
        };
        let (at, checkpoint) = (clock::now(), SnapshotId(Uuid::now_v7()));
        let mut info = info(&self.after(&entry, checkpoint, at));
        info.cost_usd = self.spent_usd + cost_usd;
        info.model_routed_to = Some(routed_to.to_owned());
        info.turn_id = Some(self.turn.id);
        info.seq = self.turn.seq();
        info.turn_status = status;
        let closing = self.request.stream.then(|| {
            let held = held.and_then(|chunk| String::from_utf8(chunk.to_vec()).ok());
            held.unwrap_or_else(|| self.closing_chunk(&model))
        });
        let done = Done { completion: answer.completion, info, closing };
        // A partial answer is not a result to be given again: a retry runs anew.
        let result = (self.keyed && failure.is_none()).then(|| done.to_json());
        let said = Some(entry.message.clone()).filter(|_| entry.kind == EntryKind::Turn);
        let finish = self.ending(entry, checkpoint, result, at);
        Conclusion { finish, done: Arc::new(done), said, failure }
    }

    /// The session as it will be once `entry` is in: known before it is written, because the
    /// lane is ours.
    fn after(&self, entry: &NewEntry, checkpoint: SnapshotId, at: Timestamp) -> Session {
        let mut session = self.session.clone();
        session.last_seq = self.turn.seq().unwrap_or_default();
        session.step_count += u64::from(entry.kind == EntryKind::Turn);
        if session.step_count.is_multiple_of(u64::from(self.request.checkpoint_every)) {
            let kind = SnapshotKind::Checkpoint;
            session.snapshot = Some(Snapshot { id: checkpoint, kind, seq: session.last_seq, at });
        }
        session
    }

    /// Records what became of the turn instead of an answer.
    pub(super) async fn note(&mut self, text: &str, status: TurnStatus) -> Result<(), Failure> {
        let note = NewEntry {
            status,
            tethered: self.request.tether,
            ..NewEntry::new(EntryKind::Note, Message::text("system", text))
        };
        let finish = self.ending(note, SnapshotId(Uuid::now_v7()), None, clock::now());
        self.finish(finish).await
    }

    /// The end of the turn, as it goes into the log.
    fn ending(
        &mut self,
        last: NewEntry,
        checkpoint: SnapshotId,
        result: Option<String>,
        at: Timestamp,
    ) -> Finish {
        let mut entries = self.take_new();
        entries.push(last);
        Finish {
            turn_id: self.turn.id,
            owner: self.engine.instance,
            entries,
            checkpoint,
            checkpoint_every: self.request.checkpoint_every,
            result,
            at,
        }
    }

    /// Writes the end of the turn, for as long as it takes: until then the answer exists only
    /// here. Whoever waits is told at the first failure; the writing goes on.
    async fn finish(&mut self, finish: Finish) -> Result<(), Failure> {
        let write = || self.engine.store.finish_turn(finish.clone());
        let seq = self.engine.patiently(self.turn, write).await?;
        self.channel.committed(seq);
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
