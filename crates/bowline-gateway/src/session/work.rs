//! Work that an actor has done outside of it: model rounds, tool calls, handoff bundles.
//!
//! A trait, so that `session` does not depend on models, tools or bundles. Each piece of work is a
//! task that reports its end to the actor.

use std::sync::{Arc, OnceLock};

use bowline_sbp::completion::Assembly;
use bowline_sbp::error::Failure;
use bowline_sbp::id::{AgentId, Seq, SessionId, TurnId, UserId};
use bowline_sbp::message::Message;
use bowline_sbp::session::{
    Commit, HandOff, LiveSurface, Packed, Replanned, RoundEnd, TurnRequest,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::history::History;
use super::text::TextBuffer;

/// One round of a turn: one call of the model.
#[derive(Debug)]
pub(crate) struct RoundJob {
    pub(crate) session: SessionId,
    /// Whose session it is.
    pub(crate) user: UserId,
    pub(crate) agent_id: AgentId,
    pub(crate) turn: TurnId,
    pub(crate) round: u32,
    pub(crate) spent_usd: f64,
    /// The turn's messages are in the log already.
    pub(crate) advanced: bool,
    pub(crate) request: Arc<TurnRequest>,
    /// The end of the log. Nothing else is appended during the round.
    pub(crate) last_seq: Seq,
    /// The log's messages, if they are cached.
    pub(crate) history: Option<History>,
    /// The attached surfaces.
    pub(crate) surfaces: Vec<LiveSurface>,
    /// A surface or stream watches the session.
    pub(crate) watched: bool,
    pub(crate) text: Arc<TextBuffer>,
    /// What is held for the turn until it ends.
    pub(crate) slot: TurnSlot,
    /// What earlier rounds of the same turn left.
    pub(crate) carry: Option<Carry>,
    pub(crate) cancel: CancellationToken,
    /// Reports that the store is busy: callers that wait for the turn are told, and the work goes
    /// on.
    pub(crate) store_is_busy: BusySignal,
}

/// Something that is held from the first round of a turn until the turn ends.
#[derive(Clone, Default)]
pub(crate) struct TurnSlot(Arc<OnceLock<Box<dyn Send + Sync>>>);

impl TurnSlot {
    pub(crate) fn is_taken(&self) -> bool {
        self.0.get().is_some()
    }

    pub(crate) fn take(&self, held: impl Send + Sync + 'static) {
        let _ = self.0.set(Box::new(held));
    }
}

impl std::fmt::Debug for TurnSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TurnSlot")
    }
}

/// See [`RoundJob::store_is_busy`].
pub(crate) struct BusySignal(pub(super) Box<dyn Fn() + Send + Sync>);

impl BusySignal {
    /// Nobody waits for it.
    pub(crate) fn none() -> Self {
        Self(Box::new(|| {}))
    }

    pub(crate) fn give(&self) {
        (self.0)();
    }
}

impl std::fmt::Debug for BusySignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BusySignal")
    }
}

/// What one round leaves for the next of the same turn.
#[derive(Debug)]
pub(crate) struct Carry {
    pub(crate) assembly: Assembly,
    /// Memories of the agent that match the question.
    pub(crate) recalled: Vec<Message>,
}

/// How a round ended.
#[derive(Debug)]
pub(crate) struct RoundReport {
    pub(crate) end: RoundEnd,
    pub(crate) carry: Option<Carry>,
    /// The log's messages, to be cached for the next round.
    pub(crate) history: Option<History>,
}

/// A tool call that the gateway makes itself.
#[derive(Debug)]
pub(crate) struct CallJob {
    pub(crate) session: SessionId,
    /// Whose session it is.
    pub(crate) user: UserId,
    /// The agent that takes the turn.
    pub(crate) agent_id: AgentId,
    pub(crate) tool: String,
    pub(crate) input: Value,
    /// The tool's definition that a person said yes to.
    pub(crate) definition: Option<String>,
    pub(crate) cancel: CancellationToken,
}

#[async_trait::async_trait]
pub(crate) trait Workers: std::fmt::Debug + Send + Sync + 'static {
    async fn round(&self, job: RoundJob) -> RoundReport;

    /// Plans the rest of a turn whose tool calls are in the log when a crash interrupted it.
    async fn replan(
        &self,
        session: SessionId,
        last_seq: Seq,
        turn: TurnId,
        whose: (UserId, AgentId),
        store_is_busy: BusySignal,
    ) -> Result<Replanned, Failure>;

    async fn call(&self, job: CallJob) -> Result<Value, String>;

    /// A commit of a session is stored.
    fn stored(&self, user: UserId, commit: &Commit);

    /// The bundle of a handoff, up to `last_seq`, and the messages for the next agent.
    async fn pack(
        &self,
        session: SessionId,
        last_seq: Seq,
        handoff: HandOff,
    ) -> Result<Packed, Failure>;
}
