//! Who calls: credentials, the session that a token opens, the agent that is named.

use std::borrow::Cow;

use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use bowline_sbp::context::CallerTag;
use bowline_sbp::error::Code;
use bowline_sbp::id::AgentId;
use bowline_store::Session;

use super::error::ApiError;
use crate::auth::{Credentials, Denied, SHORTEST_TOKEN, TOKEN_PREFIX, sha256};
use crate::engine::{Engine, Identity};

/// Names the agent that takes the turn (SBP-L1-05).
pub(super) const AGENT_ID: &str = "x-agent-id";

/// The caller, as identified by the request's headers.
pub(super) struct Caller {
    pub(super) credentials: Credentials,
    /// Who asks at the gateway; an error if the credentials are only for a session.
    identity: Result<Identity, Denied>,
    /// The session that its token opens, and who shows that token.
    pub(super) session: Option<Box<(Session, Identity)>>,
    /// The token came as a bearer key. An SDK cannot send `sbp`, so this also resumes a suspended
    /// session (SBP-L2-15).
    pub(super) as_bearer: bool,
}

impl Caller {
    pub(super) async fn identify(
        engine: &Engine,
        credentials: Credentials,
    ) -> Result<Self, ApiError> {
        let bearer = credentials.bearer.as_deref();
        let as_bearer = credentials.session_token.as_deref().is_none_or(|t| bearer == Some(t));
        let credentials = token_as_session(engine, credentials);
        let session = match &credentials.session_token {
            None => None,
            Some(token) => engine.opened_by(&credentials, token).await?,
        };
        match session {
            Some(session) => {
                let identity = engine.identify(&credentials).await;
                let session = Some(Box::new(session));
                Ok(Self { credentials, identity, session, as_bearer })
            }
            // What looked like a token may be the key of another service; an open gateway accepts
            // any key.
            None if as_bearer && !credentials.session_token.as_deref().is_some_and(is_ours) => {
                let bearer = credentials.bearer.clone().or(credentials.session_token.clone());
                let credentials = Credentials { bearer, session_token: None, ..credentials };
                let identity = Ok(engine.identify(&credentials).await?);
                Ok(Self { credentials, identity, session: None, as_bearer })
            }
            // An API key may create a session, even with an unknown session token beside it.
            None => match engine.identify(&credentials).await {
                Ok(identity) if !as_bearer => {
                    Ok(Self { credentials, identity: Ok(identity), session: None, as_bearer })
                }
                Err(denied @ Denied::Exceeded(_)) => Err(denied.into()),
                _ => Err(Denied::Wrong.into()),
            },
        }
    }

    /// Who asks at the gateway.
    pub(super) fn identity(&self) -> Result<&Identity, Denied> {
        self.identity.as_ref().map_err(Clone::clone)
    }
}

/// Whether a token has the form of this gateway's tokens.
fn is_ours(token: &str) -> bool {
    token.starts_with(TOKEN_PREFIX)
}

/// An SDK can only set its API key, so a bearer that is no API key counts as a session token.
/// Tokens that callers chose themselves have no fixed form.
pub(super) fn token_as_session(engine: &Engine, mut credentials: Credentials) -> Credentials {
    let is_token =
        |bearer: &&mut String| bearer.len() >= SHORTEST_TOKEN && !engine.access.is_key(bearer);
    if credentials.session_token.is_none() && credentials.bearer.as_mut().filter(is_token).is_some()
    {
        credentials.session_token = credentials.bearer.take();
    }
    credentials
}

/// Who calls, as far as history is concerned: the credential, and the client's name without its
/// version. Two programs with one key are two callers.
pub(super) fn caller_tag(headers: &HeaderMap, credentials: &Credentials) -> CallerTag {
    let client = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let name = client.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
    let credential = credentials.session_token.as_deref().map(Cow::from);
    let credential = credential.unwrap_or_else(|| credentials.who());
    let hash = sha256(&format!("{credential}\n{name}"));
    let [a, b, c, d, e, f, g, h, ..] = hash;
    CallerTag(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// The agent from the `X-Agent-ID` header (SBP-L1-05).
pub(super) fn agent(headers: &HeaderMap) -> Result<Option<AgentId>, ApiError> {
    let Some(value) = headers.get(AGENT_ID) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let agent = text.parse().map_err(|error| {
        ApiError::new(Code::InvalidRequest, format!("X-Agent-ID: {error}")).param("X-Agent-ID")
    })?;
    Ok(Some(agent))
}
