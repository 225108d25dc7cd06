//! Fork and handoff: a new session that shares another's history (SBP-L3-10, SBP-L3-11).

use bowline_sbp::api::{Forked, HandedOff};
use bowline_sbp::error::Failure;
use bowline_sbp::id::{AgentId, ExportId, Seq, SessionId, SnapshotId, TurnId};
use bowline_sbp::message::Message;
use bowline_sbp::roaming_token::LONGEST_TTL;
use bowline_sbp::session::{Command, HandOff, Packed, Refusal, Reply};
use bowline_sbp::title;
use bowline_store::{Derived, Error, IdempotencyKey, MemoryOwner, NewEntry, NewFork, failpoint};
use jiff::SignedDuration;
use serde_json::json;
use uuid::Uuid;

use super::super::{Engine, internal};
use super::export::ALL_MEMORIES;
use super::remembered;
use crate::auth::hash_token;
use crate::clock;
use crate::session::{SessionHandle, refused};

/// The parameters of a handoff.
#[derive(Debug, Clone)]
pub(crate) struct Handoff {
    pub(crate) to_agent: AgentId,
    pub(crate) message: Option<String>,
    pub(crate) reason: Option<String>,
    /// Include the agent's memories.
    pub(crate) memory: bool,
}

impl Engine {
    /// Forks a session at its end, or at an earlier step.
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
            title: label.as_deref().and_then(|label| title::given(label).ok().flatten()),
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

    /// Hands the session off to another agent. It waits for the turns before it, and completes even
    /// if the caller disconnects.
    pub(crate) async fn hand_off(
        &self,
        session: &SessionHandle,
        handoff: Handoff,
        key: Option<IdempotencyKey>,
    ) -> Result<HandedOff, Failure> {
        if let Some(made) = self.handed_off_before(session.id(), &handoff, key.as_ref()).await? {
            return Ok(made);
        }
        let (id, export_id) = (SessionId(Uuid::now_v7()), ExportId(Uuid::now_v7()));
        let command = HandOff {
            id,
            export_id,
            token_hash: hash_token(&self.access.token_for(id)),
            to_agent: handoff.to_agent.clone(),
            message: handoff.message.clone(),
            reason: handoff.reason.clone(),
            memory: handoff.memory,
            key: key.clone(),
        };
        let (id, export_id) = match session.call(Command::HandOff(command)).await? {
            Reply::HandedOff { id, export_id } => (id, export_id),
            // The handoff was committed, and the first reply was lost.
            Reply::Refused(Refusal::HandedOver(successor)) if successor == id => (id, export_id),
            Reply::Refused(refusal) => {
                // The same request may have been committed a moment ago (G3).
                let before = self.handed_off_before(session.id(), &handoff, key.as_ref()).await?;
                return before.ok_or_else(|| refused(refusal));
            }
            _ => return Err(internal()),
        };
        failpoint::pass_as("handoff", "answer");
        metrics::counter!("bowline_handoffs_total").increment(1);
        Ok(self.handed_off(session.id(), id, handoff.to_agent, export_id))
    }

    async fn handed_off_before(
        &self,
        source: SessionId,
        handoff: &Handoff,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<HandedOff>, Failure> {
        let Some(key) = key else { return Ok(None) };
        let Some((made, _)) = self.store.made_under(key.clone()).await? else { return Ok(None) };
        let export_id = made.export_id.ok_or_else(internal)?;
        let to_agent = handoff.to_agent.clone();
        Ok(Some(self.handed_off(source, made.session.id, to_agent, export_id)))
    }

    fn handed_off(
        &self,
        source: SessionId,
        id: SessionId,
        to_agent_id: AgentId,
        export_id: ExportId,
    ) -> HandedOff {
        let token = self.access.token_for(id);
        HandedOff {
            session_id: id,
            new_session_id: id,
            session_token: token.clone(),
            new_session_token: token,
            from_session_id: source,
            source_session_id: source,
            to_agent_id,
            export_id,
            origin_export_id: export_id,
        }
    }

    /// The bundle of a handoff, and the messages for the next agent. Called when the handoff is
    /// first in the session's queue: nothing is appended until it is committed.
    pub(in crate::engine) async fn pack_handoff(
        &self,
        session: SessionId,
        last_seq: Seq,
        handoff: HandOff,
    ) -> Result<Packed, Failure> {
        let mut packed = self.store.pack(session).await?.ok_or(Error::NoSession)?;
        // A turn queued behind the handoff may have been cancelled meanwhile: its note is not
        // handed over.
        packed.entries.retain(|entry| entry.seq <= last_seq);
        let from_agent = packed.session.agent_id.clone();
        let memories = match handoff.memory {
            true => {
                let of = MemoryOwner { user: packed.session.user, agent: from_agent.clone() };
                self.store.memories(of, None, ALL_MEMORIES).await?
            }
            false => Vec::new(),
        };
        let ttl = SignedDuration::from_secs(i64::from(LONGEST_TTL));
        let export = self.bundle(packed, ttl, None, handoff.memory, None).await?;
        let told = bridge(&from_agent, &handoff);
        let heading = format!("What agent {} remembered when it handed over", from_agent.as_str());
        let memories = memories.iter().rev().map(|memory| memory.text.as_str());
        let told = [Some(told), remembered::told(&heading, memories)];
        let message = |text: String| NewEntry::message(Message::text("system", &text));
        let detail = json!({
            "from_agent_id": from_agent, "to_agent_id": handoff.to_agent,
            "handoff_message": handoff.message, "reason": handoff.reason,
        });
        Ok(Packed {
            cid: export.cid,
            with_memory: export.with_memory,
            message_count: export.message_count,
            expires_at: export.expires_at,
            bridge: told.into_iter().flatten().map(message).collect(),
            bridge_turn: TurnId(Uuid::now_v7()),
            snapshot: SnapshotId(Uuid::now_v7()),
            detail: detail.to_string(),
        })
    }
}

/// The system message for the next agent.
fn bridge(from: &AgentId, handoff: &HandOff) -> String {
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
