//! The turn engine: takes turns on, runs them to their end, and knows no sockets.
//!
//! A turn is on disk before anyone hears that it runs, and its answer before anyone is told (G4).
//! Who asked may go away at any moment: the turn goes on (SBP-L1-10, SBP-L2-11). Only the engine
//! appends to sessions.

mod act;
mod approvals;
mod device;
mod generate;
mod histories;
mod keep;
mod recall;
mod recover;
mod request;
mod roaming;
mod run;
mod submit;
mod tools;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_sbp::api::SbpInfo;
use bowline_sbp::error::Code;
use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_sbp::lifecycle::Change;
use bowline_store::{InstanceId, Session, Store};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::histories::Histories;
pub(crate) use self::recall::{REMEMBERED, words};
pub(crate) use self::request::{Origin, TurnRequest};
pub(crate) use self::roaming::{Handoff, Keyring, Source};
use crate::auth::{self, Access, hash_token};
use crate::clock;
use crate::config::{self, Config, Remember};
use crate::gateway::AtWork;
use crate::hub::{Done, Failure, Hub, LiveTurn};
use crate::lanes::Lanes;
use crate::limits::Limits;
use crate::mcp::Servers;
use crate::model::Models;

/// Runs turns.
#[derive(Debug)]
pub(crate) struct Engine {
    pub store: Arc<dyn Store>,
    pub hub: Arc<Hub>,
    pub models: Models,
    pub mcp: Servers,
    pub access: Access,
    pub limits: Limits,
    pub instance: InstanceId,
    pub keys: Keyring,
    memory: Remember,
    pub tools: config::Tools,
    /// The agents that sessions may be given to; any, if none is listed.
    agents: Vec<AgentId>,
    lanes: Arc<Lanes>,
    histories: Histories,
    /// Calls that wait for a person's leave.
    waiting: approvals::Waiting,
    /// Turns accepted here that have not ended.
    active: Mutex<HashMap<TurnId, Arc<LiveTurn>>>,
    /// How many turns wait for the disk to take them.
    troubles: watch::Sender<usize>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The session a turn goes to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// A new one.
    New { agent_id: AgentId },
    /// This one; `resume` also if it is suspended.
    Existing { id: SessionId, resume: bool },
}

/// What is known of a turn before it runs.
#[derive(Debug, Default)]
struct Begin {
    /// The session, if the turn runs at once and the store knows it.
    session: Option<Session>,
    /// Something of it is in the log already.
    advanced: bool,
    /// Its caller may ask for its result again.
    keyed: bool,
}

/// What became of a request for a turn.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// It runs, or waits for its turn. `token`: the session's, if it was made for this.
    Running { turn: Arc<LiveTurn>, session: Box<Session>, token: Option<String> },
    /// It ran before, under the same key.
    Replayed { done: Arc<Done>, session: Box<Session> },
    /// The session is suspended and nobody said to resume it (SBP-L2-15).
    Suspended { session: Box<Session> },
}

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        models: Models,
        mcp: Servers,
        access: Access,
        keys: Keyring,
        config: &Config,
        stop: CancellationToken,
    ) -> Self {
        let limits = config.limits.clone();
        let histories = Histories::new(limits.history_memory);
        Self {
            store,
            histories,
            waiting: approvals::Waiting::default(),
            hub: Arc::default(),
            models,
            mcp,
            access,
            limits,
            instance: InstanceId(Uuid::new_v4()),
            keys,
            memory: config.memory.remember,
            tools: config.tools.clone(),
            agents: config.agents.known.clone(),
            lanes: Arc::default(),
            active: Mutex::default(),
            troubles: watch::Sender::new(0),
            tasks: TaskTracker::new(),
            stop,
        }
    }

    /// The session that a token opens: the one it names, or one that was made with it.
    pub(crate) async fn session_by_token(&self, token: &str) -> Result<Option<Session>, Failure> {
        if let Some(id) = auth::named_by(token)
            && let Some(session) = self.store.session(id).await?
            && auth::opens(token, &session)
        {
            return Ok(Some(session));
        }
        Ok(self.store.session_by_token(hash_token(token)).await?)
    }

    /// Makes the turn known to whoever asks for it again.
    fn known(&self, turn: LiveTurn) -> Arc<LiveTurn> {
        let turn = Arc::new(turn);
        self.lock_active().insert(turn.id, Arc::clone(&turn));
        turn
    }

    fn active(&self, turn: TurnId) -> Option<Arc<LiveTurn>> {
        self.lock_active().get(&turn).cloned()
    }

    fn lock_active(&self) -> MutexGuard<'_, HashMap<TurnId, Arc<LiveTurn>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the session's running turn, if there is one.
    pub(crate) fn cancel(&self, session: SessionId) -> Option<TurnId> {
        let turn = self.hub.existing(session)?.now().live?;
        turn.cancel();
        Some(turn.id)
    }

    /// Forgets a session. Its surface is let go, its running turn stopped.
    pub(crate) async fn delete(&self, session: SessionId) -> Result<bool, Failure> {
        let existed = self.store.delete_session(session).await?;
        self.histories.forget(session);
        if let Some(channel) = self.hub.existing(session) {
            channel.deleted();
            if let Some(turn) = channel.now().live {
                turn.cancel();
            }
        }
        Ok(existed)
    }

    /// Moves a session along its lifecycle by its owner's word.
    pub(crate) async fn change(
        &self,
        session: SessionId,
        change: Change,
    ) -> Result<Session, Failure> {
        Ok(self.store.change_status(session, change, clock::now()).await?)
    }

    /// Whether sessions may be given to this agent.
    pub(crate) fn knows(&self, agent: &AgentId) -> bool {
        self.agents.is_empty() || self.agents.contains(agent)
    }

    /// Whether turns that ran wait for the disk to take them.
    pub(crate) fn is_in_trouble(&self) -> bool {
        *self.troubles.borrow() > 0
    }

    /// What it holds for turns and for those who watch them.
    pub(crate) fn at_work(&self) -> AtWork {
        let turns = self.tasks.len().max(self.lock_active().len());
        AtWork { surfaces: 0, turns, lanes: self.lanes.len(), sessions: self.hub.len() }
    }

    /// Waits until no turn is under way. New ones are refused from the stop on.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lane_full(&self) -> Failure {
        Failure::new(
            Code::SessionConflict,
            format!(
                "{} turns already wait in this session; wait for one to end, or cancel it",
                self.limits.waiting_turns
            ),
        )
    }
}

/// Where a session stands, as the `sbp` object of an answer says it.
pub(crate) fn info(session: &Session) -> SbpInfo {
    SbpInfo {
        session_id: session.id,
        session_token: None,
        snapshot_id: session.snapshot.map(|snapshot| snapshot.id),
        resume_available: false,
        resume_prompt: None,
        last_checkpoint: session.snapshot.map(|snapshot| snapshot.at),
        step_count: session.step_count,
        cost_usd: session.cost_usd,
        model_routed_to: None,
        turn_id: None,
        seq: None,
        turn_status: Default::default(),
    }
}

fn stopping() -> Failure {
    let mut failure = Failure::new(Code::NotNow, "the gateway is stopping; try again soon");
    failure.retry_after = Some(1);
    failure
}

fn unended() -> Failure {
    Failure::new(
        Code::Internal,
        "this turn was accepted before and did not end; the gateway's next start takes it up",
    )
}

fn internal() -> Failure {
    Failure::new(Code::Internal, "the gateway made a mistake; its log says more")
}

impl From<bowline_store::Error> for Failure {
    /// The one table from the store's words to the caller's.
    fn from(error: bowline_store::Error) -> Self {
        use bowline_store::Error::*;
        let code = match &error {
            NoSession => Code::SessionNotFound,
            TokenTaken | Ended(_) | Illegal(_) | HandedOver(_) | MovedOn => Code::SessionConflict,
            NoStep(_) | MemoryFull(_) | TooManyDevices(_) => Code::InvalidRequest,
            Revoked => Code::Forbidden,
            NoExport => Code::TokenInvalid,
            Consumed => Code::TokenConsumed,
            KeyReused => Code::KeyReused,
            Unavailable(_) | Closed => Code::NotNow,
            Superseded | Fatal(_) | Corrupt(_) => Code::Internal,
        };
        let message = match &error {
            NoSession => "there is no such session here".into(),
            // The words of a database are for the log.
            Unavailable(_) | Fatal(_) | Corrupt(_) | Closed => {
                tracing::error!(%error, "the store failed");
                "the gateway cannot store right now, and whether this was stored is unknown; try \
                 again with the same Idempotency-Key"
                    .into()
            }
            _ => error.to_string(),
        };
        Failure::new(code, message)
    }
}
