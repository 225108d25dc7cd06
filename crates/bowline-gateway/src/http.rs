//! The HTTP handlers: parse the request, ask the engine or the session actor, render the response.

mod answer;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod blobs;
mod body;
mod caller;
pub(crate) mod certify;
pub(crate) mod completions;
mod cors;
pub(crate) mod devices;
mod error;
pub(crate) mod federation;
pub(crate) mod forward;
#[doc(hidden)]
pub mod fuzz;
pub(crate) mod guard;
mod idempotency;
pub(crate) mod import;
pub(crate) mod mcp;
pub(crate) mod memory;
mod meter;
pub(crate) mod models;
mod named_model;
mod openapi;
pub(crate) mod ops;
pub(crate) mod origins;
mod passthrough;
pub(crate) mod peers;
mod refused_origins;
pub(crate) mod replicas;
mod retries;
pub(crate) mod roaming;
pub(crate) mod search;
pub(crate) mod session_token;
pub(crate) mod sessions;
pub(crate) mod shares;
pub(crate) mod spec;
mod sse;
pub(crate) mod stateful;
pub(crate) mod surfaces;
mod upload;
pub(crate) mod usage;
pub(crate) mod user_keys;
pub(crate) mod users;
mod view;

pub(crate) use self::body::credentials;
pub(crate) use self::error::ApiError;
pub use self::openapi::document;
pub use self::origins::BadOrigins;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bowline_sbp::access::Action;
use bowline_sbp::error::Failure;
use bowline_sbp::id::{AgentId, SessionId};
use bowline_sbp::session::Submit;
use bowline_store::Session;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{Credentials, hash_token};
use crate::config::{SessionMode, WireVersion};
use crate::engine::{Deed, Engine, Identity};
use crate::health::Health;
use crate::session::{Accepted, LiveSessions};
use crate::translate::Translation;

/// The state shared by all handlers.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) sessions: Arc<LiveSessions>,
    pub(crate) mode: SessionMode,
    pub(crate) default_model: String,
    pub(crate) wire_version: WireVersion,
    /// The profile of the protocol's public test suite.
    pub(crate) certify: bool,
    pub(crate) ready: AtomicBool,
    /// The gateway is stopping.
    pub(crate) stop: CancellationToken,
    /// Tasks of attached surfaces.
    pub(crate) surfaces: TaskTracker,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) health: Health,
    pub(crate) translation: Translation,
}

impl App {
    /// Creates a session with its first turn.
    async fn first_turn(
        &self,
        by: &Identity,
        agent_id: AgentId,
        submit: Submit,
    ) -> Result<(Accepted, SessionId), Failure> {
        let token_hash = |id| hash_token(&self.engine.access.token_for(id));
        let made = self.sessions.first_turn(by.user(), agent_id, token_hash, submit).await?;
        self.engine.audit.did(by, Deed::CreateSession, made.1);
        Ok(made)
    }
}

/// The session, if it exists and the caller may do that in it. Others do not learn whether it exists.
async fn find(
    engine: &Engine,
    id: SessionId,
    credentials: &Credentials,
    action: Action,
) -> Result<Session, ApiError> {
    Ok(engine.allow_in(credentials, id, action).await?.0)
}
