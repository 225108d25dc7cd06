//! Waiting for a person's leave to call a tool.
//!
//! The question is on disk before anyone sees it, and so is the answer before anything is done
//! about it: a restart in between asks no second time, and makes no call twice. The wait ends by a
//! verdict, by the question's expiry, which is a no, by the end of the turn, or by that of the
//! gateway, in which case the next one goes on waiting.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_sbp::approval::{Approval, State, Step};
use bowline_sbp::id::{ApprovalId, Seq, SessionId, TurnId};
use bowline_store::{NewApproval, Result};
use serde_json::Value;
use tokio::sync::Notify;
use uuid::Uuid;

use super::Engine;
use crate::clock;
use crate::hub::Channel;

/// What came of a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Someone agreed, and the call is marked as made: make it now.
    Granted,
    /// Someone agreed, and the call may have been made by a process that is gone.
    MadeBefore,
    /// No, for this reason.
    Refused(&'static str),
    /// The gateway stops; the question stays.
    Stopping,
}

/// The most questions of one session that are open at once (G9).
const MOST: usize = 64;
/// The largest input that a person is asked about, as JSON: more could not be looked at.
const LARGEST_INPUT: usize = 64 << 10;

/// Those who wait in this process.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<ApprovalId, (SessionId, Arc<Notify>)>>);

impl Waiting {
    fn enter(&self, session: SessionId, id: ApprovalId) -> Waiter<'_> {
        let wake = Arc::new(Notify::new());
        self.lock().insert(id, (session, Arc::clone(&wake)));
        Waiter { waiting: self, id, wake }
    }

    fn is_full(&self, session: SessionId) -> bool {
        self.lock().values().filter(|(known, _)| *known == session).count() >= MOST
    }

    fn wake(&self, id: ApprovalId) {
        if let Some((_, wake)) = self.lock().get(&id) {
            wake.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ApprovalId, (SessionId, Arc<Notify>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiter<'a> {
    waiting: &'a Waiting,
    id: ApprovalId,
    wake: Arc<Notify>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.id);
    }
}

impl Engine {
    /// The question whether that tool may be called with that input.
    pub(super) fn question(
        &self,
        session_id: SessionId,
        turn_id: TurnId,
        place: (Seq, u32),
        tool: &str,
        input: Value,
    ) -> NewApproval {
        let (id, at) = (ApprovalId(Uuid::now_v7()), clock::now());
        let expires_at = at + self.tools.approval_timeout;
        let tool = tool.to_owned();
        NewApproval { id, session_id, turn_id, place, tool, input, at, expires_at }
    }

    /// Asks, and waits for what people say.
    pub(crate) async fn leave(
        &self,
        question: NewApproval,
        channel: &Channel,
        cancelled: impl Future<Output = ()>,
    ) -> Leave {
        let mut cancelled = pin!(cancelled);
        const UNASKED: Leave =
            Leave::Refused("nobody could be asked: the database is not available");
        if self.waiting.is_full(question.session_id) {
            return Leave::Refused("too many calls wait for the user's leave already");
        }
        if question.input.to_string().len() > LARGEST_INPUT {
            return Leave::Refused("the input is too large for a person to look at");
        }
        let Ok(approval) = self.store.ask_approval(question).await else { return UNASKED };
        match approval.state {
            State::Used => return Leave::MadeBefore,
            State::Pending => metrics::counter!("bowline_approvals_total").increment(1),
            _ => {}
        }
        // Known before anyone is asked, so that no answer comes too early.
        let waiter = self.waiting.enter(approval.session_id, approval.approval_id);
        let step = async |step| {
            let (session, id) = (approval.session_id, approval.approval_id);
            let stands = self.store.step_approval(session, id, step, clock::now()).await;
            stands.ok().flatten()
        };
        channel.asked(approval.clone());
        // What is on disk counts: someone may have answered while nobody waited.
        let Some(mut stands) = step(Step::Use).await else { return UNASKED };
        while stands.state == State::Pending {
            let end = tokio::select! {
                () = waiter.wake.notified() => Step::Use,
                () = tokio::time::sleep(left(&approval)) => Step::Expire,
                () = &mut cancelled => Step::Deny,
                () = self.stop.cancelled() => return Leave::Stopping,
            };
            let Some(ended) = step(end).await else { return UNASKED };
            stands = ended;
        }
        // Someone agreed in the instant in which the wait ended.
        if stands.state == State::Approved {
            let Some(used) = step(Step::Use).await else { return UNASKED };
            stands = used;
        }
        channel.asked(stands.clone());
        match stands.state {
            State::Used => Leave::Granted,
            State::Expired => Leave::Refused("nobody agreed to the call in time"),
            _ => Leave::Refused("the user does not allow this call"),
        }
    }

    /// A person's verdict. Gives how the approval stands: of two verdicts the first counts.
    pub(crate) async fn decide(
        &self,
        session: SessionId,
        id: ApprovalId,
        approved: bool,
    ) -> Result<Option<Approval>> {
        let step = if approved { Step::Approve } else { Step::Deny };
        let stands = self.store.step_approval(session, id, step, clock::now()).await?;
        self.waiting.wake(id);
        Ok(stands)
    }
}

/// How long a question may still be answered.
fn left(approval: &Approval) -> Duration {
    let left = clock::now().duration_until(approval.expires_at);
    Duration::try_from(left).unwrap_or_default()
}
