//! Requests that a client sends again on its own, to another replica (G3).
//!
//! Each replica remembers the requests that came to it. That a caller is gone, or has closed its sending
//! side, is told to the others at once: the next try may come without saying that it is one. Whoever
//! says that it retries is looked for when it comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowline_bus::Lane;
use bowline_sbp::id::TurnId;
use bowline_sbp::session::RequestDigest;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::wire::{CallerLost, LookAt, Message, Tried};
use crate::session::Earlier;
use crate::session::registry::LiveSessions;

impl LiveSessions {
    /// A caller's connection broke before it was answered.
    pub(crate) fn caller_lost(self: &Arc<Self>, request: RequestDigest, turn: TurnId) {
        self.retries.lost(request, turn);
        // Callers drop this with their connection, which may be after the runtime has ended.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let sessions = Arc::clone(self);
        runtime.spawn(async move { sessions.tell_lost(request, turn).await });
    }

    /// Tells the other replicas when a caller closes its sending side: most that do are gone. Until
    /// the guard is dropped. None if this replica is alone, as far as it knows.
    pub(crate) fn watch_caller(
        self: &Arc<Self>,
        request: RequestDigest,
        turn: TurnId,
        half_closed: CancellationToken,
    ) -> Option<DropGuard> {
        // Where the store is shared there may be others, even if none was heard yet.
        if !self.store.is_shared() && !self.remote.has_peers.load(Ordering::Relaxed) {
            return None;
        }
        let (sessions, answered) = (Arc::clone(self), CancellationToken::new());
        let guard = answered.clone().drop_guard();
        tokio::spawn(async move {
            tokio::select! {
                () = half_closed.cancelled() => sessions.tell_lost(request, turn).await,
                () = answered.cancelled() => {}
            }
        });
        Some(guard)
    }

    async fn tell_lost(&self, request: RequestDigest, turn: TurnId) {
        let Some((session, made)) = self.retries.accepted_as(request, turn) else { return };
        let lost = Message::CallerLost(CallerLost { request, session, turn, made });
        let me = self.me();
        for replica in self.others().await {
            self.remote.send(me, replica, Lane::Control, &lost).await;
        }
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
