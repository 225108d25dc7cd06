//! A turn's answer over HTTP: whole, streamed, or not run.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_sbp::approval::{Approval, ApprovalState};
use bowline_sbp::completion::{as_chunk, with_field};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Done, Outcome};
use bowline_store::Session;
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::App;
use super::body::SESSION_TOKEN;
use super::error::ApiError;
use super::retries::Unanswered;
use super::sse::{DONE, KEEP_ALIVE, event, event_stream};
use crate::engine::info;
use crate::session::{Accepted, LiveSessions, Outcomes, TextBuffer};

/// How the caller wants its answer.
#[derive(Debug, Clone)]
pub(super) struct AnswerForm {
    pub(super) stream: bool,
    /// In the legacy form.
    pub(super) is_prompt: bool,
    /// The session token, for the caller that created the session.
    pub(super) token: Option<String>,
    pub(super) keep_alive: KeepAlive,
}

/// Comments that a stream gets while nothing else comes: clients and proxies give up silent connections,
/// and a person may take minutes to approve a tool call.
#[derive(Debug, Clone)]
pub(super) struct KeepAlive {
    sessions: Arc<LiveSessions>,
    session: SessionId,
    every: Duration,
}

impl KeepAlive {
    pub(super) fn of(app: &App, session: SessionId) -> Self {
        let every = app.engine.limits.stream_keep_alive;
        Self { sessions: Arc::clone(&app.sessions), session, every }
    }

    /// Whether a person is being asked.
    fn asks(&self) -> bool {
        let live = self.sessions.look_at(self.session);
        let is_open = |approval: &Arc<Approval>| approval.state == ApprovalState::Pending;
        live.is_some_and(|live| live.approvals.iter().any(is_open))
    }
}

/// The answer of an accepted turn. `unanswered` is told when all of it was handed to the connection.
pub(super) async fn answered(
    accepted: Accepted,
    form: AnswerForm,
    unanswered: Option<Unanswered>,
) -> Result<Response, ApiError> {
    let AnswerForm { stream, is_prompt, token, keep_alive } = form;
    let response = match accepted {
        Accepted::Running { text, outcome, .. } if stream => {
            let reading = Reading::new(text, outcome, keep_alive);
            return streamed(reading, token, is_prompt, unanswered).await;
        }
        Accepted::Running { outcome, .. } => outcome.await.map_err(ApiError::from),
        // Whoever comes after the end gets all of it in one chunk.
        Accepted::Ended { outcome } => {
            outcome.map(|done| Done { closing: None, ..done }).map_err(ApiError::from)
        }
        Accepted::Suspended => Err(ApiError::internal()),
    };
    let body = response.and_then(|done| match stream {
        true => Ok(event_of(&closing(&done, token), is_prompt) + DONE),
        false => whole(done, token, is_prompt),
    });
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            unanswered.into_iter().for_each(Unanswered::refused);
            return Err(error);
        }
    };
    let (length, body) = (body.len(), handed_over(body, unanswered));
    let mut response = match stream {
        true => event_stream(body),
        false => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
    };
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}

/// A body that tells `unanswered` when the connection takes it.
fn handed_over(body: String, unanswered: Option<Unanswered>) -> Body {
    Body::from_stream(stream::once(async move {
        unanswered.into_iter().for_each(Unanswered::answered);
        Ok::<_, Infallible>(Bytes::from(body))
    }))
}

fn whole(done: Done, token: Option<String>, is_prompt: bool) -> Result<String, ApiError> {
    let sbp = done.info.to_json(token.as_deref());
    let completion = if is_prompt { as_text(&done.completion) } else { None };
    let body = with_field(completion.as_deref().unwrap_or(&done.completion), "sbp", &sbp);
    body.ok_or_else(|| ApiError::new(Code::Upstream, "the upstream's answer is not a JSON object"))
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
    keep_alive: KeepAlive,
}

impl Reading {
    fn new(text: Arc<TextBuffer>, outcome: Outcomes, keep_alive: KeepAlive) -> Self {
        let grew = text.subscribe();
        Self { text, grew, outcome, ended: None, read: 0, keep_alive }
    }

    /// How the turn ended, for a reader of this text. If the turn's owner was lost, it was answered
    /// anew: two answers are never spliced (G18).
    fn of_one_attempt(&self, ended: Outcome) -> Outcome {
        match ended {
            Ok(_) if self.text.is_abandoned() && self.read > 0 => Err(Failure::new(
                Code::NotNow,
                "the gateway process that ran the turn was lost, and the turn was answered anew; the \
                 session's log has the answer",
            )),
            // Nothing was read, because the turn ran elsewhere or again: all of it is sent in one chunk.
            Ok(done) if self.read == 0 => Ok(Done { closing: None, ..done }),
            ended => ended,
        }
    }

    /// Waits until there is more, or the turn has ended. Returns whether it waited long in vain.
    async fn more(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        tokio::select! {
            biased;
            ended = &mut self.outcome => {
                self.ended = Some(ended);
                false
            }
            _ = self.grew.changed() => false,
            () = tokio::time::sleep(self.keep_alive.every) => true,
        }
    }
}

/// A chunk as an event.
fn event_of(chunk: &str, is_prompt: bool) -> String {
    let text = if is_prompt { as_text(chunk) } else { None };
    event(text.as_deref().unwrap_or(chunk))
}

async fn streamed(
    mut reading: Reading,
    token: Option<String>,
    is_prompt: bool,
    unanswered: Option<Unanswered>,
) -> Result<Response, ApiError> {
    let event = move |chunk: &str| event_of(chunk, is_prompt);
    // Wait for the first chunk: until then, a failure can still be sent as an HTTP status. But not while
    // a person is asked, who may take long.
    while reading.text.chunks(0).is_empty() && reading.ended.is_none() {
        if reading.more().await && reading.keep_alive.asks() {
            break;
        }
    }
    if let Some(Err(failure)) = reading.ended.as_ref().filter(|_| reading.text.chunks(0).is_empty())
    {
        unanswered.into_iter().for_each(Unanswered::refused);
        return Err(failure.clone().into());
    }
    let events = stream::unfold(Some((reading, unanswered)), move |state| {
        let token = token.clone();
        async move {
            let (mut reading, unanswered) = state?;
            loop {
                // `ended` is set before this read, so no chunk can follow the ones read after it.
                let chunks = reading.text.chunks(reading.read);
                if !chunks.is_empty() {
                    reading.read += chunks.len();
                    let text = chunks.iter().map(|chunk| event(&String::from_utf8_lossy(chunk)));
                    let text = Bytes::from(text.collect::<String>());
                    return Some((Ok::<_, std::io::Error>(text), Some((reading, unanswered))));
                }
                if let Some(ended) = reading.ended.take() {
                    let told = unanswered.into_iter();
                    let last = match reading.of_one_attempt(ended) {
                        Ok(done) => {
                            told.for_each(Unanswered::answered);
                            event(&closing(&done, token)) + DONE
                        }
                        Err(failure) => {
                            told.for_each(Unanswered::refused);
                            event(&ApiError::from(failure).to_json())
                        }
                    };
                    return Some((Ok(Bytes::from(last)), None));
                }
                if reading.more().await {
                    let comment = Bytes::from_static(KEEP_ALIVE.as_bytes());
                    return Some((Ok(comment), Some((reading, unanswered))));
                }
            }
        }
    });
    Ok(event_stream(Body::from_stream(events)))
}

/// The last data chunk: it carries `sbp` (SBP-L1-10).
fn closing(done: &Done, token: Option<String>) -> String {
    let chunk = done.closing.clone().or_else(|| as_chunk(&done.completion));
    let chunk = chunk.unwrap_or_else(|| "{}".into());
    with_field(&chunk, "sbp", &done.info.to_json(token.as_deref())).unwrap_or(chunk)
}

/// The response for a suspended session; nothing is run (SBP-L2-15).
pub(super) fn suspended(session: &Session) -> Response {
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

pub(super) fn with_token(mut response: Response, token: Option<String>) -> Response {
    if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
        response.headers_mut().insert(SESSION_TOKEN, token);
    }
    response
}
