//! Taking turns on: what is asked for is on disk before anyone hears that it runs (G4).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_store::{Accepted, IdempotencyKey, NewSession, NewTurn, TurnSession};
use jiff::Timestamp;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::request::TurnRequest;
use super::{Begin, Engine, Submitted, Target, internal, stopping, unended};
use crate::auth::hash_token;
use crate::clock;
use crate::hub::{Done, Failure, LiveTurn};
use crate::lanes::{LaneFull, Ticket};

/// How often a turn that is neither running nor ended is looked for.
const MOST_LOOKS: u32 = 100;

/// A turn that was accepted, and all it needs to run.
#[derive(Debug)]
struct Begun {
    turn: Arc<LiveTurn>,
    request: Arc<TurnRequest>,
    ticket: Ticket,
    begin: Begin,
}

impl Engine {
    /// Takes a turn on. In a task of its own, which then runs it: a caller who hangs up in between
    /// cannot leave it lying.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        target: Target,
        request: TurnRequest,
        key: Option<IdempotencyKey>,
    ) -> Result<Submitted, Failure> {
        let (engine, request) = (Arc::clone(self), Arc::new(request));
        let (tell, told) = oneshot::channel();
        // Nobody may be there to hear it; the turn runs all the same.
        let tell = move |submitted| drop(tell.send(submitted));
        // On the heap: a task that starts and ends moves what it holds about.
        self.tasks.spawn(Box::pin(async move {
            engine.accept_and_run(target, request, key, tell).await;
        }));
        told.await.unwrap_or_else(|_| Err(internal()))
    }

    /// Accepts a turn, tells its caller, and runs it to its end.
    async fn accept_and_run(
        self: &Arc<Self>,
        target: Target,
        request: Arc<TurnRequest>,
        key: Option<IdempotencyKey>,
        tell: impl FnOnce(Result<Submitted, Failure>),
    ) {
        let waits = request.waits_for_all();
        let (submitted, begun) = match self.accept(target, request, key).await {
            Ok(accepted) => accepted,
            Err(failure) => return tell(Err(failure)),
        };
        let Some(Begun { turn, request, ticket, begin }) = begun else {
            return tell(Ok(submitted));
        };
        let mut run = pin!(self.run_in_lane(Arc::clone(&turn), request, ticket, begin));
        let over = waits && until_over(&turn, &mut run).await;
        tell(Ok(submitted));
        if !over {
            run.await;
        }
    }

    /// Refuses what nobody can answer before anything is stored.
    fn takes(&self, request: &TurnRequest) -> Result<(), Failure> {
        if self.stop.is_cancelled() {
            return Err(stopping());
        }
        self.models.route(&request.model)?;
        Ok(())
    }

    /// What became of the request, and the turn to be run if it is a new one.
    async fn accept(
        self: &Arc<Self>,
        target: Target,
        request: Arc<TurnRequest>,
        key: Option<IdempotencyKey>,
    ) -> Result<(Submitted, Option<Begun>), Failure> {
        self.takes(&request)?;
        let mut looks = 0;
        loop {
            let at = clock::now();
            let (session, token) = match &target {
                Target::New { agent_id } => {
                    let (new, token) = self.fresh_session(agent_id.clone(), at);
                    (TurnSession::New(new), Some(token))
                }
                Target::Existing { id, resume } => {
                    (TurnSession::Existing { id: *id, resume: *resume }, None)
                }
            };
            let session_id = match &session {
                TurnSession::New(new) => new.id,
                TurnSession::Existing { id, .. } => *id,
            };
            // A full lane still gives what was asked for before: only the store knows.
            let (ticket, full) = match self.lanes.enter(session_id, self.limits.waiting_turns) {
                Ok(ticket) => (ticket, false),
                Err(LaneFull) if key.is_none() => return Err(self.lane_full()),
                Err(LaneFull) => {
                    let ticket = self.lanes.enter(session_id, usize::MAX);
                    (ticket.map_err(|LaneFull| self.lane_full())?, true)
                }
            };
            let turn = NewTurn {
                id: TurnId(Uuid::now_v7()),
                session,
                request: request.to_json(),
                key: key.clone(),
                owner: self.instance,
                started: ticket.is_first(),
                at,
            };
            let turn_id = turn.id;
            match self.store.accept_turn(turn).await? {
                Accepted::Fresh { .. } if full => {
                    self.store.abandon_turn(turn_id, self.instance).await?;
                    return Err(self.lane_full());
                }
                Accepted::Fresh { session } => {
                    let turn = LiveTurn::new(turn_id, session.id, 1, request.tether);
                    // A turn that waits may find another session than it left.
                    let begin = Begin {
                        session: ticket.is_first().then(|| session.clone()),
                        advanced: false,
                        keyed: key.is_some(),
                    };
                    let turn = self.known(turn);
                    let running = Submitted::Running {
                        turn: Arc::clone(&turn),
                        session: Box::new(session),
                        token,
                    };
                    return Ok((running, Some(Begun { turn, request, ticket, begin })));
                }
                Accepted::Suspended { session } => {
                    return Ok((Submitted::Suspended { session: Box::new(session) }, None));
                }
                Accepted::Known { session, result: Some(result), .. } => {
                    let done = Done::from_json(&result).ok_or_else(internal)?;
                    let done = Arc::new(done);
                    return Ok((Submitted::Replayed { done, session: Box::new(session) }, None));
                }
                Accepted::Known { turn_id, session, result: None } => {
                    if let Some(turn) = self.active(turn_id) {
                        let session = Box::new(session);
                        return Ok((Submitted::Running { turn, session, token: None }, None));
                    }
                    // It ended between the look at the store and the look here: look again. One
                    // that nobody runs any more (a panic, a corrupt row) waits for a restart.
                    looks += 1;
                    if looks == MOST_LOOKS {
                        return Err(unended());
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// A session that is yet to be made, and its token.
    fn fresh_session(&self, agent_id: AgentId, at: Timestamp) -> (NewSession, String) {
        let id = SessionId(Uuid::now_v7());
        let token = self.access.token_for(id);
        let token_hash = hash_token(&token);
        let metadata = "{}".into();
        (NewSession { id, token_hash, listed: false, agent_id, metadata, at }, token)
    }
}

/// Runs a turn until those who wait for it can be told something. Gives whether it is over.
async fn until_over(turn: &LiveTurn, mut run: impl Future<Output = ()> + Unpin) -> bool {
    tokio::select! {
        biased;
        () = &mut run => true,
        _ = turn.ended() => false,
    }
}
