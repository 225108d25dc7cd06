//! Requests that a client sends again on its own, to another replica (G3).
//!
//! Each replica remembers the requests that came to it. That a connection broke is told to the
//! others at once: the next try may come without saying that it is one. Whoever says that it retries
//! is looked for when it comes.

use std::sync::Arc;

use bowline_bus::Lane;
use bowline_sbp::id::TurnId;
use bowline_sbp::session::RequestDigest;

use super::wire::{CallerLost, LookAt, Message, Tried};
use crate::session::Earlier;
use crate::session::registry::LiveSessions;

impl LiveSessions {
    /// A caller's connection broke before it was answered.
    pub(crate) fn caller_lost(self: &Arc<Self>, request: RequestDigest, turn: TurnId) {
        let Some((session, made)) = self.retries.lost(request, turn) else { return };
        // Callers drop this with their connection, which may be after the runtime has ended.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let sessions = Arc::clone(self);
        runtime.spawn(async move {
            let lost = Message::CallerLost(CallerLost { request, session, turn, made });
            let me = sessions.me();
            for replica in sessions.others().await {
                sessions.remote.send(me, replica, Lane::Control, &lost).await;
            }
        });
    }

    /// The turn of a request that came to this replica before, if a retry joins it.
    pub(super) fn tried_here(&self, request: RequestDigest) -> Option<Tried> {
        let Earlier { session, turn, made, .. } = self.retries.earlier(request, true)?;
        Some(Tried { session, turn, made })
    }

    /// The same of the other replicas.
    pub(crate) async fn tried_elsewhere(&self, request: RequestDigest) -> Option<Earlier> {
        let replicas = self.others().await;
        if replicas.is_empty() {
            return None;
        }
        let answers = self.ask(replicas, LookAt::Request(request)).await;
        let Tried { session, turn, made } = answers.into_iter().find_map(|answer| answer.tried)?;
        Some(Earlier { session, turn, made, outcome: None })
    }
}
