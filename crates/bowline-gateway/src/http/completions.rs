//! `POST /v1/chat/completions` and `/v1/completions`: a turn over HTTP.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_sbp::api::SbpOptions;
use bowline_sbp::completion::{as_chunk, with_field};
use bowline_sbp::error::Code;
use bowline_sbp::id::AgentId;
use bowline_store::{IdempotencyKey, Session};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::body::{self, ChatBody, SESSION_TOKEN};
use super::error::ApiError;
use super::{App, passthrough};
use crate::auth::{Credentials, Denied, TOKEN_PREFIX, sha256};
use crate::config::SessionMode;
use crate::engine::{Origin, Submitted, Target, TurnRequest, info};
use crate::hub::{Done, LiveTurn};

/// Run a turn, and keep it.
///
/// With an `sbp` object or a session token the turn belongs to a session and is stored. Without
/// both, the call passes through to the model untouched.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "turns",
    request_body(content = Object, description = "OpenAI's chat completion request, plus `sbp`"),
    params(
        ("X-Session-Token" = Option<String>, Header, description = "Go on with this session"),
        ("X-Agent-ID" = Option<String>, Header, description = "Who takes the turns"),
        ("Idempotency-Key" = Option<String>, Header, description = "Same key, same body: same result"),
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

/// The same, under the older name; takes a legacy `prompt` too.
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
    let bytes = body::read(body, &engine.limits).await?;
    let chat = ChatBody::read(&bytes)?;
    let shown = token_as_session(body::credentials(headers));
    let tracked =
        app.mode == SessionMode::Always || chat.has("sbp") || shown.session_token.is_some();
    if !tracked {
        engine.access.may_use(&shown)?;
        return passthrough::pass(engine, chat, bytes.clone(), path).await;
    }
    // On the heap: a call that passes through would carry it along.
    Box::pin(take_turn(app, headers, chat, &bytes, shown)).await
}

/// A turn of a session, and its answer.
async fn take_turn(
    app: &App,
    headers: &HeaderMap,
    chat: ChatBody<'_>,
    bytes: &Bytes,
    shown: Credentials,
) -> Result<Response, ApiError> {
    let engine = &app.engine;
    let options = chat.sbp()?;
    let agent = agent(headers)?;
    let (target, own_agent) = target(app, &options, &shown, agent.clone()).await?;
    // Another agent than the session's remembers other things: that takes more than its token.
    if agent.is_some() && own_agent.is_some() && agent != own_agent {
        engine.access.may_use(&shown)?;
    }
    let key = idempotency_key(headers, &options, &shown, &target, bytes)?;
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
    let stream = request.stream;
    let makes_session = matches!(target, Target::New { .. });
    let (answer, session, made) = match engine.submit(target, request, key).await? {
        Submitted::Suspended { session } => {
            let token = engine.access.known_token(&session).or(shown.session_token);
            return Ok(with_token(suspended(&session), token));
        }
        Submitted::Running { turn, session, token } => (Answering::Live(turn), session, token),
        Submitted::Replayed { done, session } => (Answering::Done(done), session, None),
    };
    let token = made.or_else(|| engine.access.known_token(&session)).or(shown.session_token);
    let in_body = token.clone().filter(|_| makes_session);
    let response = if stream {
        Box::pin(streamed(answer, in_body, is_prompt)).await?
    } else {
        whole(answer, in_body, is_prompt).await?
    };
    Ok(with_token(response, token))
}

fn with_token(mut response: Response, token: Option<String>) -> Response {
    if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
        response.headers_mut().insert(SESSION_TOKEN, token);
    }
    response
}

/// An SDK can only set its key: one that is a session token names the session.
pub(super) fn token_as_session(mut shown: Credentials) -> Credentials {
    if shown.session_token.is_none()
        && shown.bearer.as_ref().is_some_and(|b| b.starts_with(TOKEN_PREFIX))
    {
        shown.session_token = shown.bearer.take();
    }
    shown
}

/// Who takes the turns, by the caller's header (SBP-L1-05).
pub(super) fn agent(headers: &HeaderMap) -> Result<Option<AgentId>, ApiError> {
    let Some(value) = headers.get("x-agent-id") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let agent = text.parse().map_err(|error| {
        ApiError::new(Code::InvalidRequest, format!("X-Agent-ID: {error}")).param("X-Agent-ID")
    })?;
    Ok(Some(agent))
}

/// Which session the call is for (SBP-L1-05, SBP-L1-06, SBP-L2-15), and its agent if it is there.
async fn target(
    app: &App,
    options: &SbpOptions,
    shown: &Credentials,
    agent: Option<AgentId>,
) -> Result<(Target, Option<AgentId>), ApiError> {
    let engine = &app.engine;
    let by_token = match &shown.session_token {
        None => None,
        Some(token) => engine.session_by_token(token).await?,
    };
    if options.force_new_session {
        engine.access.may_use(shown)?;
        let earlier = by_token.map(|session| session.agent_id);
        let agent_id = agent.or(earlier).unwrap_or_else(AgentId::fallback);
        return Ok((Target::New { agent_id }, None));
    }
    if let Some(id) = &options.session_id {
        let id = body::session_id(id)?;
        let session = super::find(engine, id, shown).await?;
        return Ok((Target::Existing { id, resume: true }, Some(session.agent_id)));
    }
    match (by_token, &shown.session_token) {
        (Some(session), _) => {
            let target = Target::Existing { id: session.id, resume: false };
            Ok((target, Some(session.agent_id)))
        }
        (None, Some(_)) => Err(Denied::Wrong.into()),
        (None, None) => {
            engine.access.may_use(shown)?;
            Ok((Target::New { agent_id: agent.unwrap_or_else(AgentId::fallback) }, None))
        }
    }
}

const KEY_HEADER: &str = "idempotency-key";

/// The caller's name for this very request, if it gave one (G3).
fn idempotency_key(
    headers: &HeaderMap,
    options: &SbpOptions,
    shown: &Credentials,
    target: &Target,
    body: &Bytes,
) -> Result<Option<IdempotencyKey>, ApiError> {
    if !headers.contains_key(KEY_HEADER) && options.client_turn_id.is_none() {
        return Ok(None);
    }
    let scope = match target {
        Target::Existing { id, .. } => id.to_string(),
        Target::New { .. } => new_scope(shown),
    };
    let hash = Sha256::digest(body).into();
    named_key(headers, options.client_turn_id.as_deref(), scope, hash)
}

/// Keys of callers that make sessions are told apart by who they are.
pub(super) fn new_scope(shown: &Credentials) -> String {
    let who = shown.bearer.as_deref().map(sha256).unwrap_or_default();
    who.iter().take(8).fold("new:".to_owned(), |scope, byte| scope + &format!("{byte:02x}"))
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

/// Where the answer comes from.
enum Answering {
    Live(Arc<LiveTurn>),
    Done(Arc<Done>),
}

async fn whole(
    answer: Answering,
    token: Option<String>,
    is_prompt: bool,
) -> Result<Response, ApiError> {
    let done = match answer {
        Answering::Live(turn) => turn.ended().await?,
        Answering::Done(done) => done,
    };
    let sbp = done.info.to_json(token.as_deref());
    let completion = if is_prompt { as_text(&done.completion) } else { None };
    let body = with_field(completion.as_deref().unwrap_or(&done.completion), "sbp", &sbp);
    let body = body.ok_or_else(|| {
        ApiError::new(Code::Upstream, "the upstream's answer is not a JSON object")
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A completion, or a chunk of one, for those who asked with `prompt`: the text stands where they
/// look for it (SBP-L1-02).
fn as_text(completion: &str) -> Option<String> {
    let mut object: Value = serde_json::from_str(completion).ok()?;
    object["object"] = "text_completion".into();
    for choice in object["choices"].as_array_mut()? {
        let said = ["message", "delta"].iter().find_map(|part| choice.get(part)?.get("content"));
        choice["text"] = said.filter(|said| said.is_string()).cloned().unwrap_or("".into());
    }
    Some(object.to_string())
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
    let turn = match answer {
        Answering::Live(turn) => turn,
        Answering::Done(done) => {
            let body = event(&closing(&done, token)) + DONE;
            return Ok(event_stream(Body::from(body)));
        }
    };
    // Until the first word there is still an honest status to give.
    let mut progress = turn.progress();
    while turn.chunks(0).is_empty() {
        match turn.outcome() {
            Some(outcome) => {
                outcome?;
                break;
            }
            None => {
                let _ = progress.changed().await;
            }
        }
    }
    let events = stream::unfold(Some((turn, progress, 0)), move |state| {
        let token = token.clone();
        async move {
            let (turn, mut progress, read) = state?;
            loop {
                // The end is looked for before the chunks: those seen after it are all there are.
                let ended = turn.outcome();
                let chunks = turn.chunks(read);
                if !chunks.is_empty() {
                    let read = read + chunks.len();
                    let text = chunks.iter().map(|chunk| event(&String::from_utf8_lossy(chunk)));
                    let text = Bytes::from(text.collect::<String>());
                    return Some((Ok::<_, std::io::Error>(text), Some((turn, progress, read))));
                }
                match ended {
                    Some(Ok(done)) => {
                        let text = event(&closing(&done, token)) + DONE;
                        return Some((Ok(Bytes::from(text)), None));
                    }
                    Some(Err(failure)) => {
                        let text = event(&ApiError::from(failure).to_json());
                        return Some((Ok(Bytes::from(text)), None));
                    }
                    None => {
                        let _ = progress.changed().await;
                    }
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

/// The session waits to be resumed: says so and runs nothing (SBP-L2-15).
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
