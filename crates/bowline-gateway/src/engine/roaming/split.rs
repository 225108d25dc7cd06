//! Splitting and changing hands: a session that shares another's history (SBP-L3-10, SBP-L3-11).

use std::sync::Arc;

use bowline_sbp::api::{Forked, HandedOff};
use bowline_sbp::error::Code;
use bowline_sbp::id::{AgentId, SessionId, SnapshotId, TurnId};
use bowline_sbp::message::Message;
use bowline_sbp::roaming_token::LONGEST_TTL;
use bowline_store::{
    Derived, Error, IdempotencyKey, NewEntry, NewExport, NewFork, NewHandoff, failpoint,
};
use jiff::SignedDuration;
use serde_json::json;
use uuid::Uuid;

use super::super::{Engine, internal};
use crate::auth::hash_token;
use crate::clock;
use crate::hub::Failure;

/// How often a session may move on while it is being handed over.
const MOST_TRIES: u32 = 5;

/// To whom a session goes, and with what words.
#[derive(Debug, Clone)]
pub(crate) struct Handoff {
    pub(crate) to_agent: AgentId,
    pub(crate) message: Option<String>,
    pub(crate) reason: Option<String>,
}

impl Engine {
    /// A session that begins where this one is, or was.
    pub(crate) async fn fork(
        &self,
        origin: SessionId,
        label: Option<String>,
        at_step: Option<u64>,
        key: Option<IdempotencyKey>,
    ) -> Result<Forked, Failure> {
        let id = SessionId(Uuid::now_v7());
        let fork = NewFork {
            id,
            token_hash: hash_token(&self.access.token_for(id)),
            origin,
            at_step,
            detail: json!({ "label": label }).to_string(),
            snapshot: SnapshotId(Uuid::now_v7()),
            key,
            at: clock::now(),
        };
        let Derived { session, point: (messages, step), .. } = self.store.fork(fork).await?;
        failpoint::pass_as("fork", "answer");
        metrics::counter!("bowline_forks_total").increment(1);
        let token = self.access.token_for(session.id);
        Ok(Forked {
            fork_session_id: session.id,
            session_token: token.clone(),
            fork_session_token: token,
            origin_session_id: origin,
            fork_label: label,
            fork_point_msg: messages,
            fork_point_step: step,
        })
    }

    /// Lets another agent go on. It waits for the running turn, and happens whole even if whoever
    /// asked for it hangs up.
    pub(crate) async fn hand_off(
        self: &Arc<Self>,
        source: SessionId,
        handoff: Handoff,
        key: Option<IdempotencyKey>,
    ) -> Result<HandedOff, Failure> {
        let engine = Arc::clone(self);
        let task = self.tasks.spawn(async move { engine.hand_over(source, handoff, key).await });
        task.await.unwrap_or_else(|_| Err(internal()))
    }

    async fn hand_over(
        &self,
        source: SessionId,
        handoff: Handoff,
        key: Option<IdempotencyKey>,
    ) -> Result<HandedOff, Failure> {
        let mut ticket = self.lanes.enter(source, usize::MAX).map_err(|_| self.lane_full())?;
        ticket.called().await;
        let mut tries = 0;
        let made = loop {
            match self.try_hand_over(source, &handoff, key.clone()).await {
                Err(failure) if failure.code == Code::SessionConflict && tries < MOST_TRIES => {
                    // Another process may have added to it; whoever handed it over has won.
                    match self.store.session(source).await? {
                        Some(session) if session.handed_to.is_none() => tries += 1,
                        _ => return Err(failure),
                    }
                }
                made => break made?,
            }
        };
        failpoint::pass_as("handoff", "answer");
        metrics::counter!("bowline_handoffs_total").increment(1);
        if let Some(channel) = self.hub.existing(source) {
            channel.handed_over(made.session.id, handoff.to_agent.clone());
        }
        let export_id = made.export_id.ok_or_else(internal)?;
        let token = self.access.token_for(made.session.id);
        Ok(HandedOff {
            session_id: made.session.id,
            new_session_id: made.session.id,
            session_token: token.clone(),
            new_session_token: token,
            from_session_id: source,
            source_session_id: source,
            to_agent_id: handoff.to_agent,
            export_id,
            origin_export_id: export_id,
        })
    }

    async fn try_hand_over(
        &self,
        source: SessionId,
        handoff: &Handoff,
        key: Option<IdempotencyKey>,
    ) -> Result<Derived, Failure> {
        let packed = self.store.pack(source).await?.ok_or(Error::NoSession)?;
        let (last_seq, from_agent) = (packed.session.last_seq, packed.session.agent_id.clone());
        let ttl = SignedDuration::from_secs(i64::from(LONGEST_TTL));
        // Used up as it is made: the record of it is enough.
        let export = self.bundle(packed, ttl, None, false).await?;
        let export = NewExport { bundle: Vec::new(), ..export };
        let id = SessionId(Uuid::now_v7());
        let bridge = Message::text("system", &bridge(&from_agent, handoff));
        let detail = json!({
            "from_agent_id": from_agent, "to_agent_id": handoff.to_agent,
            "handoff_message": handoff.message, "reason": handoff.reason,
        });
        let handoff = NewHandoff {
            id,
            token_hash: hash_token(&self.access.token_for(id)),
            to_agent: handoff.to_agent.clone(),
            source,
            last_seq,
            export,
            bridge: vec![NewEntry::message(bridge)],
            bridge_turn: TurnId(Uuid::now_v7()),
            detail: detail.to_string(),
            snapshot: SnapshotId(Uuid::now_v7()),
            key,
        };
        Ok(self.store.hand_off(handoff).await?)
    }
}

/// What the next agent is told.
fn bridge(from: &AgentId, handoff: &Handoff) -> String {
    let mut text = format!(
        "This conversation was handed over from agent {} to you, agent {}.",
        from.as_str(),
        handoff.to_agent.as_str()
    );
    if let Some(reason) = &handoff.reason {
        text.push_str(&format!("\nReason: {reason}"));
    }
    if let Some(message) = &handoff.message {
        text.push_str(&format!("\n{message}"));
    }
    text
}
