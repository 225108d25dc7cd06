//! `POST /v1/chat/completions` and `/v1/completions`: a turn over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_sbp::api::SbpOptions;
use bowline_sbp::completion::{as_chunk, with_field};
use bowline_sbp::error::Code;
use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_sbp::session::{Done, NewSession, Origin, Outcome, Refusal, Submit, TurnRequest};
use bowline_store::{IdempotencyKey, Session};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use uuid::Uuid;

use super::body::{self, ChatBody, SESSION_TOKEN};
use super::error::ApiError;
use super::{App, passthrough};
use crate::auth::{Credentials, Denied, SHORTEST_TOKEN, TOKEN_PREFIX, hash_token, sha256};
use crate::clock;
use crate::config::SessionMode;
use crate::engine::{Engine, info};
use crate::session::{Accepted, Outcomes, SessionHandle, TextBuffer, refused};

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
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    complete(&app, &headers, body, "/chat/completions").await
}

/// The same as `/v1/chat/completions`; also accepts a legacy `prompt`.
#[utoipa::path(
    post, path = "/v1/completions", tag = "turns",
    request_body(content = Object, description = "As /v1/chat/completions, or with `prompt`"),
    responses((status = 200, description = "As /v1/chat/completions", body = Object)),
)]
pub(crate) async fn legacy(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    complete(&app, &headers, body, "/completions").await
}

async fn complete(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    path: &'static str,
) -> Result<Response, ApiError> {
    let engine = &app.engine;
    // Before the body is read: unauthenticated callers must not make the gateway buffer anything.
    let caller = Caller::identify(engine, body::credentials(headers)).await?;
    let bytes = body::read(body, &engine.limits).await?;
    let chat = ChatBody::read(&bytes)?;
    let tracked = app.mode == SessionMode::Always
        || chat.has("sbp")
        || caller.credentials.session_token.is_some();
    if !tracked {
        engine.access.may_use(&caller.credentials)?;
        return passthrough::pass(engine, chat, bytes.clone(), path).await;
    }
    // Boxed: it would make the future of every pass-through request larger.
    Box::pin(take_turn(app, headers, chat, &bytes, caller)).await
}

/// The caller, as identified by the request's headers.
struct Caller {
    credentials: Credentials,
    /// The session that its token opens.
    session: Option<Box<Session>>,
    /// The token came as a bearer key. An SDK cannot send `sbp`, so this also resumes a suspended
    /// session (SBP-L2-15).
    as_bearer: bool,
}

impl Caller {
    async fn identify(engine: &Engine, credentials: Credentials) -> Result<Self, ApiError> {
        let as_bearer = credentials.session_token.is_none();
        let credentials = token_as_session(engine, credentials);
        let session = match &credentials.session_token {
            None => None,
            Some(token) => engine.session_by_token(token).await?,
        };
        match session {
            Some(session) => Ok(Self { credentials, session: Some(Box::new(session)), as_bearer }),
            // What looked like a token may be the key of another service; an open gateway accepts
            // any key.
            None if as_bearer && !credentials.session_token.as_deref().is_some_and(is_ours) => {
                let bearer = credentials.bearer.or(credentials.session_token);
                let credentials = Credentials { bearer, session_token: None };
                engine.access.may_use(&credentials)?;
                Ok(Self { credentials, session: None, as_bearer })
            }
            // An API key may create a session, even with an unknown session token beside it.
            None => match engine.access.may_use(&credentials) {
                Ok(()) if !as_bearer => Ok(Self { credentials, session: None, as_bearer }),
                _ => Err(Denied::Wrong.into()),
            },
        }
    }
}

/// Runs a turn in a session, and returns its answer.
async fn take_turn(
    app: &App,
    headers: &HeaderMap,
    chat: ChatBody<'_>,
    bytes: &Bytes,
    caller: Caller,
) -> Result<Response, ApiError> {
    let engine = &app.engine;
    let options = chat.sbp()?;
    let agent = agent(headers)?;
    let credentials = caller.credentials.clone();
    let target = target(app, &options, caller, agent.clone()).await?;
    // Another agent's memories must not be opened by this session's token: an API key is required.
    if let Target::Existing { session, .. } = &target
        && agent.as_ref().is_some_and(|agent| *agent != session.agent_id)
    {
        engine.access.may_use(&credentials)?;
    }
    let key = idempotency_key(headers, &options, &credentials, &target, bytes)?;
    let is_prompt = chat.has("prompt") && !chat.has("messages");
    let request = TurnRequest {
        model: chat.model()?,
        messages: chat.messages(engine.limits.messages)?,
        stream: chat.stream(),
        checkpoint_every: options.checkpoint_every,
        tether: options.tether,
        origin: Origin::Http,
        agent_id: agent.filter(|_| matches!(target, Target::Existing { .. })),
        recall: options.recalls(),
        remember: options.memory_retrieval == Some(true),
        params: chat.params(),
    };
    // A model that no upstream serves is refused before anything is stored.
    engine.models.route(&request.model)?;
    let stream = request.stream;
    let submit = Submit {
        turn: TurnId(Uuid::now_v7()),
        request: Arc::new(request),
        key,
        resume: true,
        sender: None,
        wait: !stream,
    };
    let (accepted, handle, token, made) = match target {
        Target::New { agent_id } => {
            let (accepted, id) = open(app, agent_id, submit).await?;
            (accepted, app.sessions.handle(id), Some(engine.access.token_for(id)), true)
        }
        Target::Existing { session, resume } => {
            let handle = app.sessions.handle(session.id);
            let token = engine.access.known_token(&session).or(credentials.session_token);
            (handle.submit(Submit { resume, ..submit }).await?, handle, token, false)
        }
    };
    let in_body = token.clone().filter(|_| made);
    let response = match accepted {
        Accepted::Suspended => {
            let session = engine.store.session(handle.id()).await?;
            suspended(&session.ok_or_else(ApiError::no_session)?)
        }
        Accepted::Running { text, outcome, .. } if stream => {
            let answer = Answering::Live { text, outcome };
            Box::pin(streamed(answer, in_body, is_prompt)).await?
        }
        Accepted::Running { outcome, .. } => whole(outcome.await?, in_body, is_prompt)?,
        Accepted::Ended { outcome } if stream => {
            let answer = Answering::Done(Box::new((*outcome)?));
            Box::pin(streamed(answer, in_body, is_prompt)).await?
        }
        Accepted::Ended { outcome } => whole((*outcome)?, in_body, is_prompt)?,
    };
    Ok(with_token(response, token))
}

/// How often an idempotency key is looked up while another request is using it.
const LOOKS: u32 = 100;

/// Creates a session with its first turn. A repeated idempotency key gets the same session.
pub(super) async fn open(
    app: &App,
    agent_id: AgentId,
    submit: Submit,
) -> Result<(Accepted, SessionId), ApiError> {
    let engine = &app.engine;
    for _ in 0..LOOKS {
        if let Some(known) = made_before(app, &submit).await? {
            return Ok(known);
        }
        let id = SessionId(Uuid::now_v7());
        let new = NewSession {
            id,
            token_hash: hash_token(&engine.access.token_for(id)),
            listed: false,
            agent_id: agent_id.clone(),
            metadata: "{}".into(),
            at: clock::now(),
        };
        if let Some(accepted) = SessionHandle::make(&app.sessions, new, submit.clone()).await? {
            return Ok((accepted, id));
        }
        // Another request used the key, or the actor ended without a reply: look the key up again.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(ApiError::new(Code::NotNow, "the gateway cannot make a session right now; try again"))
}

/// The result of the same request, if it was made before (G3).
async fn made_before(
    app: &App,
    submit: &Submit,
) -> Result<Option<(Accepted, SessionId)>, ApiError> {
    let Some(key) = &submit.key else { return Ok(None) };
    let Some((id, known)) = app.engine.store.known(key.clone()).await? else { return Ok(None) };
    let (true, Some(turn)) = (known.same_body, known.turn_id) else {
        return Err(refused(Refusal::KeyReused).into());
    };
    if let Some(done) = known.result.as_deref().and_then(Done::from_json) {
        return Ok(Some((Accepted::Ended { outcome: Box::new(Ok(done)) }, id)));
    }
    let accepted = app.sessions.handle(id).join(turn).await?;
    Ok(accepted.map(|accepted| (accepted, id)))
}

fn with_token(mut response: Response, token: Option<String>) -> Response {
    if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
        response.headers_mut().insert(SESSION_TOKEN, token);
    }
    response
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

/// The agent from the `X-Agent-ID` header (SBP-L1-05).
pub(super) fn agent(headers: &HeaderMap) -> Result<Option<AgentId>, ApiError> {
    let Some(value) = headers.get("x-agent-id") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let agent = text.parse().map_err(|error| {
        ApiError::new(Code::InvalidRequest, format!("X-Agent-ID: {error}")).param("X-Agent-ID")
    })?;
    Ok(Some(agent))
}

/// The session that a turn goes to.
enum Target {
    /// A new one.
    New { agent_id: AgentId },
    /// An existing one; with `resume`, also if it is suspended.
    Existing { session: Box<Session>, resume: bool },
}

/// Which session the request is for (SBP-L1-05, SBP-L1-06, SBP-L2-15).
async fn target(
    app: &App,
    options: &SbpOptions,
    caller: Caller,
    agent: Option<AgentId>,
) -> Result<Target, ApiError> {
    let engine = &app.engine;
    let Caller { credentials, session, as_bearer } = caller;
    if options.force_new_session {
        engine.access.may_use(&credentials)?;
        let earlier = session.map(|session| session.agent_id);
        let agent_id = agent.or(earlier).unwrap_or_else(AgentId::fallback);
        return Ok(Target::New { agent_id });
    }
    if let Some(id) = &options.session_id {
        let id = body::session_id(id)?;
        let session = Box::new(super::find(engine, id, &credentials).await?);
        return Ok(Target::Existing { session, resume: true });
    }
    match (session, &credentials.session_token) {
        (Some(session), _) => Ok(Target::Existing { session, resume: as_bearer }),
        (None, Some(_)) => Err(Denied::Wrong.into()),
        (None, None) => {
            engine.access.may_use(&credentials)?;
            Ok(Target::New { agent_id: agent.unwrap_or_else(AgentId::fallback) })
        }
    }
}

const KEY_HEADER: &str = "idempotency-key";

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

/// The scope of idempotency keys that create sessions: one per API key.
pub(super) fn new_scope(credentials: &Credentials) -> String {
    let who = credentials.bearer.as_deref().map(sha256).unwrap_or_default();
    let who = who.iter().take(8).fold(String::new(), |who, byte| who + &format!("{byte:02x}"));
    IdempotencyKey::maker_scope(&who)
}

pub(super) fn named_key(
    headers: &HeaderMap,
    in_body: Option<&str>,
    scope: String,
    body_hash: [u8; 32],
) -> Result<Option<IdempotencyKey>, ApiError> {
    let in_header = headers.get(KEY_HEADER).map(|value| value.to_str().unwrap_or_default());
    let Some(key) = in_header.or(in_body) else { return Ok(None) };
    if key.is_empty() || key.len() > 255 {
        return Err(ApiError::new(
            Code::InvalidRequest,
            "an idempotency key is 1 to 255 visible characters",
        ));
    }
    Ok(Some(IdempotencyKey { scope, key: key.to_owned(), body_hash }))
}

/// The source of a streamed answer.
enum Answering {
    Live { text: Arc<TextBuffer>, outcome: Outcomes },
    Done(Box<Done>),
}

fn whole(done: Done, token: Option<String>, is_prompt: bool) -> Result<Response, ApiError> {
    let sbp = done.info.to_json(token.as_deref());
    let completion = if is_prompt { as_text(&done.completion) } else { None };
    let body = with_field(completion.as_deref().unwrap_or(&done.completion), "sbp", &sbp);
    let body = body.ok_or_else(|| {
        ApiError::new(Code::Upstream, "the upstream's answer is not a JSON object")
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A completion or chunk in the legacy form for requests with `prompt`: the text is in
/// `choices[].text` (SBP-L1-02).
fn as_text(completion: &str) -> Option<String> {
    let mut object: Value = serde_json::from_str(completion).ok()?;
    object["object"] = "text_completion".into();
    for choice in object["choices"].as_array_mut()? {
        let said = ["message", "delta"].iter().find_map(|part| choice.get(part)?.get("content"));
        choice["text"] = said.filter(|said| said.is_string()).cloned().unwrap_or("".into());
    }
    Some(object.to_string())
}

/// A reader of a running turn's chunks.
struct Reading {
    text: Arc<TextBuffer>,
    grew: watch::Receiver<()>,
    outcome: Outcomes,
    ended: Option<Outcome>,
    /// The number of chunks that were read.
    read: usize,
}

impl Reading {
    /// Waits until there is more, or the turn has ended.
    async fn more(&mut self) {
        if self.ended.is_some() {
            return;
        }
        tokio::select! {
            biased;
            ended = &mut self.outcome => self.ended = Some(ended),
            _ = self.grew.changed() => {}
        }
    }
}

async fn streamed(
    answer: Answering,
    token: Option<String>,
    is_prompt: bool,
) -> Result<Response, ApiError> {
    let event = move |chunk: &str| {
        let text = if is_prompt { as_text(chunk) } else { None };
        event(text.as_deref().unwrap_or(chunk))
    };
    let (text, outcome) = match answer {
        Answering::Live { text, outcome } => (text, outcome),
        Answering::Done(done) => {
            let body = event(&closing(&done, token)) + DONE;
            return Ok(event_stream(Body::from(body)));
        }
    };
    let grew = text.subscribe();
    let mut reading = Reading { text, grew, outcome, ended: None, read: 0 };
    // Wait for the first chunk: until then, a failure can still be sent as an HTTP status.
    while reading.text.chunks(0).is_empty() && reading.ended.is_none() {
        reading.more().await;
    }
    if let Some(Err(failure)) = reading.ended.as_ref().filter(|_| reading.text.chunks(0).is_empty())
    {
        return Err(failure.clone().into());
    }
    let events = stream::unfold(Some(reading), move |state| {
        let token = token.clone();
        async move {
            let mut reading = state?;
            loop {
                // `ended` is set before this read, so no chunk can follow the ones read after it.
                let chunks = reading.text.chunks(reading.read);
                if !chunks.is_empty() {
                    reading.read += chunks.len();
                    let text = chunks.iter().map(|chunk| event(&String::from_utf8_lossy(chunk)));
                    let text = Bytes::from(text.collect::<String>());
                    return Some((Ok::<_, std::io::Error>(text), Some(reading)));
                }
                match reading.ended.take() {
                    Some(Ok(done)) => {
                        let text = event(&closing(&done, token)) + DONE;
                        return Some((Ok(Bytes::from(text)), None));
                    }
                    Some(Err(failure)) => {
                        let text = event(&ApiError::from(failure).to_json());
                        return Some((Ok(Bytes::from(text)), None));
                    }
                    None => reading.more().await,
                }
            }
        }
    });
    Ok(event_stream(Body::from_stream(events)))
}

const DONE: &str = "data: [DONE]\n\n";

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// The last data chunk: it carries `sbp` (SBP-L1-10).
fn closing(done: &Done, token: Option<String>) -> String {
    let chunk = done.closing.clone().or_else(|| as_chunk(&done.completion));
    let chunk = chunk.unwrap_or_else(|| "{}".into());
    with_field(&chunk, "sbp", &done.info.to_json(token.as_deref())).unwrap_or(chunk)
}

pub(super) fn event_stream(body: Body) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, body).into_response()
}

/// The response for a suspended session; nothing is run (SBP-L2-15).
fn suspended(session: &Session) -> Response {
    let mut sbp = info(session);
    sbp.cost_usd = 0.0;
    sbp.resume_available = true;
    sbp.resume_prompt = Some(format!(
        "This session stopped after step {} and waits. Send sbp.session_id to go on with it, or \
         sbp.force_new_session to start afresh.",
        session.step_count
    ));
    (StatusCode::ACCEPTED, axum::Json(json!({ "sbp": sbp }))).into_response()
}
