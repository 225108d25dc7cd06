//! Requests that a client sends again on its own: they join the turn of the first try (G3).

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bowline_net::Peer;
use bowline_sbp::api::SbpOptions;
use bowline_sbp::id::TurnId;
use bowline_sbp::session::{Outcome, RequestDigest};
use bowline_store::Session;
use bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::App;
use super::answer::{AnswerForm, KeepAlive, answered, with_token};
use super::caller::AGENT_ID;
use super::error::ApiError;
use super::idempotency::KEY_HEADER;
use crate::auth::Credentials;
use crate::session::{Accepted, Earlier, LiveSessions};

/// How often an SDK made from OpenAI's specification has sent a request before.
const RETRY_COUNT: &str = "x-stainless-retry-count";

/// The digest of a request without an idempotency key.
pub(super) fn digest(
    headers: &HeaderMap,
    options: &SbpOptions,
    credentials: &Credentials,
    body: &Bytes,
) -> Option<RequestDigest> {
    if headers.contains_key(KEY_HEADER) || options.client_turn_id.is_some() {
        return None;
    }
    let who = credentials.who();
    let token = credentials.session_token.as_deref().unwrap_or_default();
    let agent = headers.get(AGENT_ID).map(HeaderValue::as_bytes).unwrap_or_default();
    Some(RequestDigest::of(&[who.as_bytes(), token.as_bytes(), agent, body]))
}

/// The turn that the request joins.
pub(super) async fn earlier(
    app: &App,
    headers: &HeaderMap,
    request: RequestDigest,
) -> Option<Earlier> {
    let count = headers.get(RETRY_COUNT).and_then(|count| count.to_str().ok()?.parse().ok());
    let retried = count.unwrap_or(0_u32) > 0;
    match app.sessions.retries.earlier(request, retried) {
        None if retried => Box::pin(app.sessions.tried_elsewhere(request)).await,
        earlier => earlier,
    }
}

/// The answer of the earlier turn. None if it has left no trace: then the request is a new turn.
pub(super) async fn join(
    app: &App,
    peer: &Peer,
    request: RequestDigest,
    earlier: Earlier,
    (stream, is_prompt): (bool, bool),
    token: impl Fn(&Session) -> Option<String>,
) -> Result<Option<Response>, ApiError> {
    let Earlier { session, turn, made, outcome } = earlier;
    let engine = &app.engine;
    let Some(stored) = engine.store.session(session).await? else { return Ok(None) };
    let accepted = match outcome {
        Some(outcome) => Accepted::Ended { outcome: Box::new(Outcome::clone(&outcome)) },
        None => match app.sessions.handle(session).join(turn).await? {
            Some(accepted) => accepted,
            None => return Ok(None),
        },
    };
    let token = token(&stored);
    let form = AnswerForm {
        stream,
        is_prompt,
        token: token.clone().filter(|_| made),
        keep_alive: KeepAlive::of(app, session),
    };
    let unanswered = Unanswered::joined(&app.sessions, peer, request, turn);
    Ok(Some(with_token(answered(accepted, form, Some(unanswered)).await?, token)))
}

/// A caller that waits for the answer of its turn. Dropped before it is told what became of it, it
/// reports that the caller's connection broke.
#[derive(Debug)]
pub(super) struct Unanswered {
    sessions: Option<Arc<LiveSessions>>,
    request: RequestDigest,
    turn: TurnId,
    /// The caller closed its sending side: most clients that do are gone.
    half_closed: CancellationToken,
    /// Other replicas are told if it does.
    _watched: Option<DropGuard>,
}

impl Unanswered {
    /// The caller of a new turn.
    pub(super) fn arrived(
        sessions: &Arc<LiveSessions>,
        peer: &Peer,
        request: RequestDigest,
        turn: TurnId,
    ) -> Self {
        sessions.retries.arrived(request, turn, peer.half_closed.clone());
        Self::new(sessions, peer, request, turn)
    }

    /// Another caller of an earlier turn.
    fn joined(
        sessions: &Arc<LiveSessions>,
        peer: &Peer,
        request: RequestDigest,
        turn: TurnId,
    ) -> Self {
        sessions.retries.joined(request, turn, peer.half_closed.clone());
        Self::new(sessions, peer, request, turn)
    }

    fn new(
        sessions: &Arc<LiveSessions>,
        peer: &Peer,
        request: RequestDigest,
        turn: TurnId,
    ) -> Self {
        let half_closed = peer.half_closed.clone();
        let _watched = sessions.watch_caller(request, turn, half_closed.clone());
        Self { sessions: Some(Arc::clone(sessions)), request, turn, half_closed, _watched }
    }

    /// All of the answer was handed to the connection.
    pub(super) fn answered(mut self) {
        if let Some(sessions) = self.sessions.take() {
            let doubtful = self.half_closed.is_cancelled();
            sessions.retries.answered(self.request, self.turn, doubtful);
        }
    }

    /// The caller gets an error instead of an answer.
    pub(super) fn refused(mut self) {
        if let Some(sessions) = self.sessions.take() {
            sessions.retries.refused(self.request, self.turn);
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(sessions) = self.sessions.take() {
            sessions.caller_lost(self.request, self.turn);
        }
    }
}
