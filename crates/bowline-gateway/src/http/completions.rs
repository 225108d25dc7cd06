//! `POST /v1/chat/completions` and `/v1/completions`: a turn over HTTP.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bowline_net::Peer;
use bowline_sbp::access::{Action, CredentialKind};
use bowline_sbp::api::SbpOptions;
use bowline_sbp::error::Failure;
use bowline_sbp::id::{AgentId, TurnId};
use bowline_sbp::session::{Origin, Submit, TurnRequest};
use bowline_store::{IdempotencyKey, Session};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::answer::{AnswerForm, KeepAlive, answered, suspended, with_token};
use super::body::{self, ChatBody};
use super::caller::{Caller, agent, caller_tag};
use super::error::ApiError;
use super::idempotency::{KEY_HEADER, named_key, new_scope};
use super::retries::{self, Unanswered};
use super::{App, blobs, passthrough};
use crate::auth::{Credentials, Denied};
use crate::config::SessionMode;
use crate::engine::{Engine, Identity};
use crate::session::{Accepted, Earlier};

/// Run a turn and store it.
///
/// With an `sbp` object or a session token the turn belongs to a session and is stored. Without
/// either, the request is passed through to the model unchanged.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "turns",
    request_body(content = Object, description = "OpenAI's chat completion request, plus `sbp`"),
    params(
        ("X-Session-Token" = Option<String>, Header, description = "Continue this session"),
        ("X-Agent-ID" = Option<String>, Header, description = "The agent that takes the turn"),
        ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key and body gets the same result"),
    ),
    responses(
        (status = 200, description = "OpenAI's completion plus `sbp`; Server-Sent Events with `stream: true`", body = Object),
        (status = 202, description = "The session is suspended; nothing was run", body = Object),
        (status = 409, description = "The session cannot take this turn", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    credentials: Credentials,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    complete(&app, &peer, credentials, &headers, body, "/chat/completions").await
}

/// The same as `/v1/chat/completions`; also accepts a legacy `prompt`.
#[utoipa::path(
    post, path = "/v1/completions", tag = "turns",
    request_body(content = Object, description = "As /v1/chat/completions, or with `prompt`"),
    responses((status = 200, description = "As /v1/chat/completions", body = Object)),
)]
pub(crate) async fn legacy(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    credentials: Credentials,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    complete(&app, &peer, credentials, &headers, body, "/completions").await
}

async fn complete(
    app: &App,
    peer: &Peer,
    credentials: Credentials,
    headers: &HeaderMap,
    body: Body,
    path: &'static str,
) -> Result<Response, ApiError> {
    let engine = &app.engine;
    // Before the body is read: unauthenticated callers must not make the gateway buffer anything.
    let caller = Caller::identify(engine, credentials).await;
    let caller = caller.map_err(ApiError::before_the_body)?;
    let bytes = body::read_chat(body, &engine.limits).await?;
    let chat = ChatBody::read_within(&bytes, &engine.limits)?;
    let tracked = app.mode == SessionMode::Always
        || chat.has("sbp")
        || caller.credentials.session_token.is_some();
    if !tracked {
        let identity = caller.identity()?;
        identity.check(Action::UseModels)?;
        identity.check_model(&chat.model()?)?;
        let spender = identity.spender();
        engine.check_model_call(&spender).await?;
        return passthrough::pass(engine, spender, chat, bytes.clone(), path).await;
    }
    // Boxed: it would make the future of every pass-through request larger.
    Box::pin(take_turn(app, peer, headers, chat, &bytes, caller)).await
}

/// Runs a turn in a session, and returns its answer.
async fn take_turn(
    app: &App,
    peer: &Peer,
    headers: &HeaderMap,
    chat: ChatBody<'_>,
    bytes: &Bytes,
    caller: Caller,
) -> Result<Response, ApiError> {
    let engine = &app.engine;
    let options = chat.sbp()?;
    let agent = agent(headers)?;
    let credentials = caller.credentials.clone();
    let (target, identity) = target(app, &options, caller, agent.clone()).await?;
    // Another agent's memories must not be opened by this session's token: they are its user's.
    if let Target::Existing { session, .. } = &target
        && let Some(agent) = agent.as_ref().filter(|agent| **agent != session.agent_id)
    {
        let as_user = match identity.is_of_user() {
            true => identity.clone(),
            false => engine.identify(&credentials).await?,
        };
        as_user.check(Action::ReadMemory)?;
        as_user.check_agent(agent)?;
        if as_user.user() != session.user {
            return Err(Denied::Wrong.into());
        }
    }
    agent.iter().try_for_each(|agent| identity.check_agent(agent))?;
    identity.check_model(&chat.model()?)?;
    let digest = retries::digest(headers, &options, &credentials, bytes);
    if let Some(request) = digest
        && let Some(earlier) = retries::earlier(app, headers, request).await
        && target.may_be(&earlier)
    {
        let form = (chat.stream(), chat.is_prompt());
        let token = |session: &Session| token_for(engine, &identity, &credentials, session);
        let joined = Box::pin(retries::join(app, peer, request, earlier, form, token)).await?;
        if let Some(response) = joined {
            return Ok(response);
        }
    }
    // What others say in a shared session neither reads nor writes its user's memories.
    let is_own = match &target {
        Target::New { .. } => true,
        Target::Existing { session, .. } => session.user == identity.user(),
    };
    let turn = TurnId(Uuid::now_v7());
    let unanswered = digest.map(|request| Unanswered::arrived(&app.sessions, peer, request, turn));
    let key = idempotency_key(headers, &options, &credentials, &target, bytes)?;
    let is_prompt = chat.is_prompt();
    let messages = chat.messages(engine.limits.messages)?;
    let (messages, blobs) = blobs::taken_out(messages, engine.limits.image).await?;
    let request = TurnRequest {
        model: chat.model()?,
        messages,
        stream: chat.stream(),
        checkpoint_every: options.checkpoint_every,
        tether: options.tether && !app.certify,
        origin: Origin::Http,
        agent_id: agent.filter(|_| matches!(target, Target::Existing { .. })),
        recall: options.recalls() && is_own,
        remember: options.memory_retrieval == Some(true) && is_own,
        caller: Some(caller_tag(headers, &credentials)),
        history: options.history,
        digest,
        author: match &target {
            Target::New { .. } => None,
            Target::Existing { session, .. } => identity.author_in(session.user),
        },
        wait_for_approval: options.waits_for_approval(engine.tools.approvals),
        spender: Some(identity.spender()),
        params: chat.params(),
    };
    // A model that no upstream serves is refused before anything is stored.
    engine.models.route(&request.model)?;
    engine.check_turn(&identity.spender(), key.as_ref()).await?;
    let stream = request.stream;
    let submit = Submit {
        turn,
        request: Arc::new(request),
        key,
        resume: true,
        sender: None,
        wait: !stream,
        blobs,
    };
    let submitted = async {
        Ok::<_, Failure>(match target {
            Target::New { agent_id } => {
                let (accepted, id) = app.first_turn(&identity, agent_id, submit).await?;
                let token = engine.access.token_for(id);
                let token = Some(token).filter(|_| identity.holds_all_of_a_token());
                (accepted, app.sessions.handle(id), token, true)
            }
            Target::Existing { session, resume } => {
                let handle = app.sessions.handle(session.id);
                let token = token_for(engine, &identity, &credentials, &session);
                (handle.submit(Submit { resume, ..submit }).await?, handle, token, false)
            }
        })
    };
    let (accepted, handle, token, made) = match Box::pin(submitted).await {
        Ok(submitted) => submitted,
        Err(failure) => {
            unanswered.into_iter().for_each(Unanswered::refused);
            return Err(failure.into());
        }
    };
    let in_body = token.clone().filter(|_| made);
    let form = AnswerForm {
        stream,
        is_prompt,
        token: in_body,
        keep_alive: KeepAlive::of(app, handle.id()),
    };
    let response = match accepted {
        Accepted::Suspended => {
            unanswered.into_iter().for_each(Unanswered::refused);
            let session = engine.store.session(handle.id()).await?;
            suspended(&session.ok_or_else(ApiError::no_session)?)
        }
        accepted => Box::pin(answered(accepted, form, unanswered)).await?,
    };
    Ok(with_token(response, token))
}

/// The token of a session for the response: only for who may do as much anyway, or showed it.
fn token_for(
    engine: &Engine,
    identity: &Identity,
    credentials: &Credentials,
    session: &Session,
) -> Option<String> {
    let shown = matches!(identity.credential.kind, CredentialKind::Session(_));
    let holds = identity.may_hold_token_of(session) || shown;
    let known = engine.access.known_token(session).filter(|_| holds);
    known.or_else(|| credentials.session_token.clone().filter(|_| shown))
}

/// The session that a turn goes to.
enum Target {
    /// A new one.
    New { agent_id: AgentId },
    /// An existing one; with `resume`, also if it is suspended.
    Existing { session: Box<Session>, resume: bool },
}

impl Target {
    /// Whether an earlier try of the request was for the same session.
    fn may_be(&self, earlier: &Earlier) -> bool {
        match self {
            Target::New { .. } => earlier.made,
            Target::Existing { session, .. } => session.id == earlier.session,
        }
    }
}

/// Which session the request is for (SBP-L1-05, SBP-L1-06, SBP-L2-15), and who asks.
async fn target(
    app: &App,
    options: &SbpOptions,
    caller: Caller,
    agent: Option<AgentId>,
) -> Result<(Target, Identity), ApiError> {
    let engine = &app.engine;
    let make = |agent_id: Option<AgentId>| -> Result<(Target, Identity), ApiError> {
        let identity = caller.identity()?.clone();
        identity.check(Action::CreateSession)?;
        let agent_id = agent_id.unwrap_or_else(AgentId::fallback);
        identity.check_agent(&agent_id)?;
        Ok((Target::New { agent_id }, identity))
    };
    if options.force_new_session {
        let earlier = caller.session.as_ref().map(|known| known.0.agent_id.clone());
        return make(agent.or(earlier));
    }
    if let Some(id) = &options.session_id {
        let id = body::session_id(id)?;
        let found = engine.allow_in(&caller.credentials, id, Action::Talk).await?;
        let (session, identity) = (Box::new(found.0), found.1);
        return Ok((Target::Existing { session, resume: true }, identity));
    }
    match (&caller.session, &caller.credentials.session_token) {
        (Some(known), _) => {
            let (session, identity) = (**known).clone();
            let target = Target::Existing { session: Box::new(session), resume: caller.as_bearer };
            Ok((target, identity))
        }
        (None, Some(_)) => Err(Denied::Wrong.into()),
        (None, None) => make(agent),
    }
}

/// The caller's idempotency key for this request, if it sent one (G3).
fn idempotency_key(
    headers: &HeaderMap,
    options: &SbpOptions,
    credentials: &Credentials,
    target: &Target,
    body: &Bytes,
) -> Result<Option<IdempotencyKey>, ApiError> {
    if !headers.contains_key(KEY_HEADER) && options.client_turn_id.is_none() {
        return Ok(None);
    }
    let scope = match target {
        Target::Existing { session, .. } => session.id.to_string(),
        Target::New { .. } => new_scope(credentials),
    };
    let hash = Sha256::digest(body).into();
    named_key(headers, options.client_turn_id.as_deref(), scope, hash)
}
