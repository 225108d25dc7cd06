//! A session that is created by its first turn.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{AgentId, SessionId, UserId};
use bowline_sbp::session::{Done, NewSession, Refusal, Submit, TokenHash};
use uuid::Uuid;

use super::handle::{Accepted, SessionHandle, refused};
use super::registry::LiveSessions;
use crate::clock;

/// How often an idempotency key is looked up while another request is using it.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

impl LiveSessions {
    /// Creates a session with its first turn. A repeated idempotency key gets the same session.
    pub(crate) async fn first_turn(
        self: &Arc<Self>,
        user: UserId,
        agent_id: AgentId,
        token_hash: impl Fn(SessionId) -> TokenHash,
        submit: Submit,
    ) -> Result<(Accepted, SessionId), Failure> {
        for look in 0..LOOKS {
            // A key that another request took is stored by then: the first look finds it at once.
            if look > 1 {
                tokio::time::sleep(PAUSE).await;
            }
            if let Some(known) = self.made_before(&submit).await? {
                return Ok(known);
            }
            let id = SessionId(Uuid::now_v7());
            let new = NewSession {
                id,
                token_hash: token_hash(id),
                listed: false,
                user,
                agent_id: agent_id.clone(),
                metadata: "{}".into(),
                at: clock::now(),
            };
            if let Some(accepted) = SessionHandle::make(self, new, submit.clone()).await? {
                return Ok((accepted, id));
            }
        }
        let message = "the gateway cannot make a session right now; try again";
        Err(Failure::new(Code::NotNow, message))
    }

    /// The result of the same request, if it was made before (G3).
    async fn made_before(
        self: &Arc<Self>,
        submit: &Submit,
    ) -> Result<Option<(Accepted, SessionId)>, Failure> {
        let Some(key) = &submit.key else { return Ok(None) };
        let Some((id, known)) = self.store.known(key.clone()).await? else { return Ok(None) };
        let (true, Some(turn)) = (known.same_body, known.turn_id) else {
            return Err(refused(Refusal::KeyReused));
        };
        if let Some(done) = known.result.as_deref().and_then(Done::from_json) {
            return Ok(Some((Accepted::Ended { outcome: Box::new(Ok(done)) }, id)));
        }
        let accepted = self.handle(id).join(turn).await?;
        Ok(accepted.map(|accepted| (accepted, id)))
    }
}
