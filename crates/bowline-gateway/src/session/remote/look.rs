//! The live states of sessions, whichever replica owns them.
//!
//! Whoever only looks does not attach to a session and starts nothing: lists of sessions, tools of
//! attached devices, "is anything to be cancelled". The replicas that own something are asked, and
//! one that does not answer in time is left out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_bus::Lane;
use bowline_sbp::id::{SessionId, UserId};
use bowline_sbp::session::{LiveState, ReplicaId};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::wire::{Look, LookAt, Message, Seen, StateAt};
use crate::session::registry::LiveSessions;

/// After which a replica that has not answered is asked again, and how often it is asked.
const AGAIN: Duration = Duration::from_millis(250);
const TIMES: u32 = 4;

impl LiveSessions {
    /// The live state of a session; none if nothing lives in it.
    pub(crate) async fn look(&self, id: SessionId) -> Option<Arc<LiveState>> {
        if let Some(state) = self.sure_of(id) {
            return Some(state);
        }
        match self.store.owner(id).await {
            Ok(Some(owner)) if owner != self.me() => {
                states(self.ask(vec![owner], LookAt::Sessions(vec![id])).await).remove(&id)
            }
            _ => self.look_at(id),
        }
    }

    /// The live states of those of the sessions in which something lives.
    pub(crate) async fn look_many(
        &self,
        ids: impl Iterator<Item = SessionId>,
    ) -> HashMap<SessionId, Arc<LiveState>> {
        let (mut seen, mut others) = (HashMap::new(), Vec::new());
        for id in ids {
            match self.sure_of(id) {
                Some(state) => drop(seen.insert(id, state)),
                None => others.push(id),
            }
        }
        let replicas = if others.is_empty() { Vec::new() } else { self.others().await };
        if !replicas.is_empty() {
            let answers = self.ask(replicas, LookAt::Sessions(others.clone())).await;
            seen.extend(states(answers));
        }
        for id in others {
            if let Some(state) = self.look_at(id) {
                seen.entry(id).or_insert(state);
            }
        }
        seen
    }

    /// The user's sessions in which something lives.
    pub(crate) async fn look_at_user(&self, user: UserId) -> HashMap<SessionId, Arc<LiveState>> {
        let mut seen: HashMap<_, _> = self.look_at_all().into_iter().collect();
        seen.retain(|_, state| state.user == user);
        let replicas = self.others().await;
        if !replicas.is_empty() {
            seen.extend(states(self.ask(replicas, LookAt::User(user)).await));
        }
        seen
    }

    /// The other replicas that are alive.
    pub(super) async fn others(&self) -> Vec<ReplicaId> {
        let me = self.me();
        let known = self.store.replicas().await.unwrap_or_default();
        known.into_iter().map(|lease| lease.id).filter(|id| *id != me).collect()
    }

    /// Asks replicas. Returns the answers that came in time.
    pub(super) async fn ask(&self, replicas: Vec<ReplicaId>, at: LookAt) -> Vec<Seen> {
        let (me, id) = (self.me(), Uuid::new_v4());
        let (answers, mut answered) = mpsc::channel(replicas.len() * TIMES as usize);
        let _asking = Asking { sessions: self, id };
        self.remote.routes().looks.insert(id, answers);
        let mut missing: HashSet<_> = replicas.into_iter().collect();
        let mut seen = Vec::new();
        for _ in 0..TIMES {
            let look = Message::Look(Look { id, at: at.clone() });
            for replica in &missing {
                self.remote.send(me, *replica, Lane::Control, &look).await;
            }
            let until = tokio::time::Instant::now() + AGAIN;
            while !missing.is_empty()
                && let Ok(Some((from, answer))) =
                    tokio::time::timeout_at(until, answered.recv()).await
            {
                if missing.remove(&from) {
                    seen.push(answer);
                }
            }
            if missing.is_empty() {
                break;
            }
        }
        seen
    }
}

fn states(answers: Vec<Seen>) -> HashMap<SessionId, Arc<LiveState>> {
    let now = Instant::now();
    let states = answers.into_iter().flat_map(|answer| answer.states);
    states.map(|(id, state)| (id, state.into_state(now))).collect()
}

/// A question that is out; answers to it are taken until it is dropped.
struct Asking<'a> {
    sessions: &'a LiveSessions,
    id: Uuid,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.sessions.remote.routes().looks.remove(&self.id);
    }
}

/// Tells another replica what lives in the sessions that this one owns.
pub(super) async fn answer(sessions: Arc<LiveSessions>, from: ReplicaId, look: Look) {
    let mut tried = None;
    let owned: Vec<_> = match look.at {
        LookAt::Request(request) => {
            tried = sessions.tried_here(request);
            Vec::new()
        }
        LookAt::Sessions(ids) => {
            ids.into_iter().filter_map(|id| Some((id, sessions.owned(id)?))).collect()
        }
        LookAt::User(user) => {
            let mut all = sessions.owned_all();
            all.retain(|(_, state)| state.user == user);
            all
        }
    };
    let now = Instant::now();
    let states = owned.into_iter().map(|(id, state)| (id, StateAt::new(0, state, now))).collect();
    let seen = Message::Seen(Seen { id: look.id, states, tried });
    sessions.remote.send(sessions.me(), from, Lane::Control, &seen).await;
}
