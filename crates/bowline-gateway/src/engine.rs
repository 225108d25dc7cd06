//! Runs the parts of a turn: model rounds, tool calls, handoff bundles. It knows no sockets and
//! writes no session: results go to the session actor.

mod answer;
mod audit;
mod blobs;
mod budgets;
mod calls;
mod fitting;
mod generate;
mod identity;
mod pairing;
mod pins;
mod policy;
mod recall;
mod replicas;
mod roaming;
mod round;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use bowline_federation::OwnKeys;
use bowline_sbp::access::CredentialKind;
use bowline_sbp::api::SbpInfo;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::AgentId;
use bowline_store::{Error, Session, Store};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub(crate) use self::audit::{Audit, Deed};
use self::budgets::Budgets;
pub(crate) use self::calls::planned_for_host;
pub use self::identity::BadScopes;
pub(crate) use self::identity::{
    Identity, LONGEST_NAME, NewKey, UserKeys, fits_in_name, scopes_for,
};
use self::pairing::Pairing;
pub use self::pairing::{Offer, OfferRefused, PairRefused, PairingText};
use self::pins::Pins;
pub(crate) use self::recall::words;
pub(crate) use self::replicas::Followed;
pub(crate) use self::roaming::{
    ABANDONED, Arriving, Handoff, Import, Keyring, NotReserved, ShownForBundle, Source,
    end_stale_actor, given_nothing,
};
use crate::auth::{self, Access, Denied, hash_token};
use crate::config::{self, Config, Remember};
use crate::federation::Federation;
use crate::limits::Limits;
use crate::mcp::Servers;
use crate::model::{Models, Windows};
use crate::session::BusySignal;

#[derive(Debug)]
pub(crate) struct Engine {
    pub store: Arc<dyn Store>,
    pub models: Models,
    pub mcp: Servers,
    pub access: Access,
    pub users: UserKeys,
    pub pairing: Pairing,
    budgets: Budgets,
    pub audit: Audit,
    pub limits: Limits,
    pub keys: Keyring,
    /// Signs bundles, and roaming tokens with federation.
    pub signer: Arc<OwnKeys>,
    /// Whether that is in the store, where it may be replaced.
    signer_is_stored: bool,
    /// None if it is not enabled.
    pub federation: Option<Arc<Federation>>,
    memory: Remember,
    pub tools: config::ToolsConfig,
    pub pins: Pins,
    translate: config::Translate,
    windows: Windows,
    /// The agents that sessions may be assigned to; any, if the list is empty.
    agents: Vec<AgentId>,
    stop: CancellationToken,
}

/// In whose name the gateway signs.
#[derive(Debug)]
pub(crate) struct Signed {
    pub(crate) keys: Arc<OwnKeys>,
    /// Whether they are in the store, for all replicas.
    pub(crate) is_stored: bool,
    pub(crate) federation: Option<Arc<Federation>>,
}

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        models: Models,
        mcp: Servers,
        access: Access,
        (keys, signed): (Keyring, Signed),
        config: &Config,
        stop: CancellationToken,
    ) -> Self {
        let audit = Audit::new(&config.audit, Arc::clone(&store));
        Self {
            store,
            models,
            mcp,
            access,
            users: UserKeys::new(),
            pairing: Pairing::default(),
            budgets: Budgets::new(&config.budgets),
            audit,
            limits: config.limits.clone(),
            keys,
            signer: signed.keys,
            signer_is_stored: signed.is_stored,
            federation: signed.federation,
            memory: config.memory.remember,
            tools: config.tools.clone(),
            pins: Pins::default(),
            translate: config.translate.clone(),
            windows: Windows::new(config.context.clone()),
            agents: config.agents.known.clone(),
            stop,
        }
    }

    /// The session that a token opens: the one it names, or the one that was created with it.
    pub(crate) async fn session_by_token(&self, token: &str) -> Result<Option<Session>, Denied> {
        if let Some(id) = auth::named_by(token)
            && let Some(session) = self.store.session(id).await?
            && self.access.opens(token, &session)
        {
            return self.if_enabled(session).await;
        }
        match self.store.session_by_token(hash_token(token)).await? {
            Some(session) if self.access.opens(token, &session) => self.if_enabled(session).await,
            _ => Ok(None),
        }
    }

    /// Until when what somebody showed for a session is valid; none: always.
    pub(crate) fn expires_at(&self, identity: &Identity, session: &Session) -> Option<Timestamp> {
        let of_token = match identity.credential.kind {
            CredentialKind::Session(_) => self.access.token_expires_at(session),
            _ => None,
        };
        [identity.expires_at(), of_token].into_iter().flatten().min()
    }

    /// The session, unless its user is disabled.
    async fn if_enabled(&self, session: Session) -> Result<Option<Session>, Denied> {
        match self.by_session_token(&session).await {
            Ok(_) => Ok(Some(session)),
            Err(Denied::Store(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Whether sessions may be assigned to this agent.
    pub(crate) fn knows(&self, agent: &AgentId) -> bool {
        self.agents.is_empty() || self.agents.contains(agent)
    }

    /// Reads from the store, with retries and back-off for as long as it takes: an accepted turn
    /// must not fail because the disk was busy. `busy` is signalled at every failure.
    async fn patiently<T, F>(&self, busy: &BusySignal, read: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = bowline_store::Result<T>>,
    {
        let mut pause = Duration::from_millis(100);
        loop {
            match read().await {
                Err(Error::Unavailable(_)) if !self.stop.is_cancelled() => {
                    busy.give();
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                answered => return answered.map_err(Failure::from),
            }
        }
    }
}

/// A session's state as the `sbp` object of a response.
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
        left_out: None,
    }
}

fn internal() -> Failure {
    Failure::new(Code::Internal, "internal error; the gateway's log says more")
}
