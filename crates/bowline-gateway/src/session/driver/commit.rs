//! Carries commits to the store, one at a time, and takes note of what they have stored.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::TurnId;
use bowline_sbp::session::{
    Actor, After, Commit, CommitError, Effect, Placed, Refusal, Reply, Write,
};

use super::{Driver, ReplyAndText};
use crate::meters;

/// The first and the longest pause before a failed commit is retried.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

impl Driver {
    /// Commits. If it is unknown whether the commit was stored, sends it again until it is known.
    /// `None`: the actor must end, because it does not own the session.
    pub(super) async fn commit(
        &mut self,
        actor: &mut Actor,
        commit: &Arc<Commit>,
    ) -> Option<Vec<Effect>> {
        loop {
            let result = self.sessions.store.commit(Arc::clone(commit)).await;
            let trouble = result.is_err();
            match actor.committed(result) {
                After::Effects(effects) => {
                    self.note_retries(actor, commit);
                    for (turn, status) in ended(commit) {
                        let begun = self.turns.get(&turn).map(|work| work.begun);
                        meters::turn(status, begun.map_or(Duration::ZERO, |begun| begun.elapsed()));
                    }
                    self.history.grow(appended(commit));
                    self.sessions.workers.stored(actor.machine().user(), commit);
                    self.retry = None;
                    return Some(effects);
                }
                After::Refused(effects) => {
                    let (first, longest) = PAUSE;
                    let pause = self.retry.map_or(first, |(_, pause)| (pause * 2).min(longest));
                    self.retry = Some((Instant::now() + pause, pause));
                    return Some(effects);
                }
                After::Again(_) => {
                    self.own_ref.status().trouble.store(trouble, Ordering::Relaxed);
                    tokio::time::sleep(PAUSE.0).await;
                }
                After::Ended(error) => {
                    tracing::info!(session = %self.id, %error, "a session actor ends after a failed commit");
                    self.owner_lost = error == CommitError::Fenced;
                    // Callers retry with the next owner. A fatal store error has no next owner, so
                    // they are refused.
                    if matches!(error, CommitError::Fatal(_)) {
                        for (_, waiting) in self.replies.drain() {
                            let reply = Reply::Refused(Refusal::StoreFailed);
                            let _ = waiting.send(ReplyAndText { reply, text: None });
                        }
                    }
                    return None;
                }
            }
        }
    }

    /// Registers accepted and ended turns of HTTP callers, which may send their requests again.
    fn note_retries(&mut self, actor: &Actor, commit: &Commit) {
        for write in &commit.writes {
            if let Write::Accept { turn, .. } = write {
                self.note_accepted(actor, turn.id, turn.found.is_none(), false);
            }
        }
        for (turn, _) in ended(commit) {
            if let Some(request) = self.turns.get(&turn).and_then(|work| work.digest) {
                let outcome = actor.machine().outcome(turn);
                self.sessions.retries.ended(request, turn, outcome);
            }
        }
    }

    pub(super) fn note_accepted(
        &mut self,
        actor: &Actor,
        turn: TurnId,
        made: bool,
        recovered: bool,
    ) {
        let Some((request, _)) = actor.machine().request(turn) else { return };
        let Some(digest) = request.digest else { return };
        self.work(turn, 1).digest = Some(digest);
        self.sessions.retries.accepted(digest, (self.id, turn), made, recovered);
    }
}

fn appended(commit: &Commit) -> impl Iterator<Item = &Placed> {
    let entries = commit.writes.iter().filter_map(|write| match write {
        Write::Append { entries, .. } => Some(entries),
        _ => None,
    });
    entries.flatten()
}

/// Turns that the commit ends, with their status.
fn ended(commit: &Commit) -> impl Iterator<Item = (TurnId, TurnStatus)> {
    let status = move |turn: TurnId| {
        let mut entries = commit.writes.iter().filter_map(|write| match write {
            Write::Append { entries, .. } => entries.iter().rfind(|placed| placed.turn_id == turn),
            _ => None,
        });
        entries.next_back().map_or(TurnStatus::Failed, |placed| placed.entry.status)
    };
    commit.writes.iter().filter_map(move |write| match write {
        Write::End { turn, .. } => Some((*turn, status(*turn))),
        Write::Forget { turn } => Some((*turn, TurnStatus::Failed)),
        _ => None,
    })
}
