//! Routes, and completions.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::sessions::NOW;
use super::turns::Done;
use super::{
    Fault, Session, State, bundles, exports, family, federated, imports, rest, socket, text,
};

pub(crate) fn routes(state: Arc<State>) -> Router {
    let required = Router::new().route("/v1/chat/completions", post(completions));
    let routes = match state.has(Fault::OnlyRequired) {
        true => required,
        false => required
            .route("/v1/completions", post(legacy))
            .route("/v1/sbp/sessions/{id}/fork", post(family::fork))
            .route("/v1/sbp/sessions/{id}/handoff", post(family::hand_off))
            .route("/v1/sbp/sessions/{id}/lineage", get(family::lineage)),
    };
    let routes = match state.has(Fault::TetherByHook) {
        true => routes.route("/v1/sbp/sessions/{id}/_test/tether", post(rest::tether)),
        false => routes,
    };
    routes
        .route("/v1/sessions", post(rest::make).get(rest::list))
        .route("/v1/sessions/{id}", get(rest::look))
        .route("/v1/sbp/sessions/{id}/status", patch(rest::end))
        .route("/v1/sbp/ws/{id}", get(socket::open))
        .route("/v1/sbp/sessions/import", post(imports::import))
        .route("/v1/sbp/sessions/{id}/export", post(exports::export))
        .route("/v1/sbp/sessions/{id}/exports", get(exports::list))
        .route("/v1/sbp/sessions/{id}/exports/{export}/bundle", get(exports::bundle))
        .route("/v1/sbp/token/{token}", get(exports::inspect))
        .route("/spec/roaming-bundle.schema.json", get(bundles::schema))
        .route("/.well-known/sbp", get(federated::manifest))
        .route("/v1/sbp/bundles/{cid}", get(federated::bundle))
        .route("/v1/sbp/registry", post(federated::register))
        .route("/v1/sbp/registry/{cid}", get(federated::registered))
        .route("/v1/sbp/federation/reservations", post(federated::reserve))
        .route("/v1/sbp/federation/reservations/{id}/confirm", post(federated::confirm))
        .with_state(Arc::clone(&state))
        .layer(from_fn_with_state((state, Seen::default()), limited))
}

/// The kinds of requests that came.
type Seen = Arc<Mutex<HashSet<String>>>;

/// Tells some requests to come again: the first of each kind, so that none is told twice.
async fn limited(
    Shared((state, seen)): Shared<(Arc<State>, Seen)>,
    request: Request,
    next: Next,
) -> Response {
    let kind = format!("{} {}", request.method(), request.uri().path());
    let is_first = state.has(Fault::RateLimited) && seen.lock().unwrap().insert(kind);
    if is_first || state.has(Fault::AlwaysLimited) {
        return ([("retry-after", "0")], error(429, "SBP_RATE_LIMITED")).into_response();
    }
    next.run(request).await
}

pub(crate) fn error(status: u16, code: &str) -> Response {
    let body = json!({ "error": { "code": code, "message": code, "detail": null } });
    (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
}

pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-session-token")?.to_str().ok()
}

async fn legacy(state: Shared<Arc<State>>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(mut json) = serde_json::from_slice::<Value>(&body) else { return error(400, "bad") };
    if let Some(prompt) = json["prompt"].as_str().map(str::to_owned) {
        if state.has(Fault::NoLegacyPrompt) {
            return error(400, "SBP_INVALID_REQUEST");
        }
        json["messages"] = json!([{ "role": "user", "content": prompt }]);
    }
    completions(state, headers, json.to_string().into()).await
}

async fn completions(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Ok(json) = serde_json::from_slice::<Value>(&body) else { return error(400, "bad") };
    let is_plain = json.get("sbp").is_none() && token(&headers).is_none();
    if is_plain && !state.has(Fault::SessionsAlways) {
        return passed(&state, body).await;
    }
    if json["sbp"].get("no_such_option").is_some() && state.has(Fault::UnknownOptionRefused) {
        return error(422, "SBP_INVALID_REQUEST");
    }
    let (id, made) = match session_of(&state, &headers, &json["sbp"]) {
        Ok(found) => found,
        Err(answer) => return *answer,
    };
    let place = match room(&state, &id) {
        Ok(place) => place,
        Err(answer) => return *answer,
    };
    let streams = json["stream"] == true && !state.has(Fault::OnlyRequired);
    let (pieces, said) = mpsc::unbounded_channel();
    let turn = state.begin(&id, json.clone(), pieces);
    // Dropping the handle does not end the turn; a turn without a reader may have to.
    let ends = state.has(Fault::EndsWithItsReader).then(|| Abort(turn.abort_handle()));
    if streams {
        return streamed(state, id, said, turn, (place, ends));
    }
    let done = turn.await;
    drop((place, ends));
    match done {
        // The server was restarted.
        Err(_) => error(503, "SBP_INTERNAL"),
        Ok(None) => error(502, "SBP_UPSTREAM"),
        Ok(Some(done)) => whole(&state, &id, made.as_deref(), &json, &done),
    }
}

/// A place among the turns that wait.
fn room(state: &State, id: &str) -> Result<Option<OwnedSemaphorePermit>, Box<Response>> {
    if state.has(Fault::WaitsUnbounded) || state.has(Fault::TurnsAtOnce) {
        return Ok(None);
    }
    let room = Arc::clone(&state.sessions()[id].room);
    let full = |_| Box::new(error(409, "SBP_SESSION_CONFLICT"));
    room.try_acquire_owned().map(Some).map_err(full)
}

struct Abort(tokio::task::AbortHandle);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The session that a request means, and its token if it was just made.
fn session_of(
    state: &State,
    headers: &HeaderMap,
    sbp: &Value,
) -> Result<(String, Option<String>), Box<Response>> {
    let mut sessions = state.sessions();
    if let Some(id) = sbp["session_id"].as_str() {
        let session = sessions.get_mut(id);
        let session = session.ok_or_else(|| Box::new(error(404, "SBP_SESSION_NOT_FOUND")))?;
        if session.ended.is_some() && !state.has(Fault::EndedTakesTurns) {
            return Err(Box::new(error(409, "SBP_SESSION_CONFLICT")));
        }
        session.resumed = true;
        return Ok((id.to_owned(), None));
    }
    let by_token = sessions.values().find(|session| token(headers) == Some(&session.token));
    if let Some(session) = by_token
        && sbp["force_new_session"] != true
    {
        let suspended = session.is_suspended() && !state.has(Fault::SuspendedRuns);
        if suspended || (state.has(Fault::AlwaysSuspended) && session.steps > 0) {
            let sbp = json!({
                "resume_available": true, "session_id": session.id, "resume_prompt": "Go on?",
                "last_checkpoint": NOW, "step_count": session.steps, "snapshot_id": "s",
            });
            let answer = (StatusCode::ACCEPTED, axum::Json(json!({ "sbp": sbp })));
            return Err(Box::new(answer.into_response()));
        }
        return Ok((session.id.clone(), None));
    }
    let agent = headers.get("x-agent-id").and_then(|agent| agent.to_str().ok());
    let agent = agent.filter(|_| !state.has(Fault::AgentHeaderIgnored)).unwrap_or("default");
    let session = Session::new(agent, None);
    let made = (session.id.clone(), Some(session.token.clone()));
    sessions.insert(session.id.clone(), session);
    Ok(made)
}

fn info(state: &State, id: &str, made: Option<&str>, steps: u64, model: &str) -> Value {
    let snapshot = (!state.has(Fault::NoSnapshot)).then(|| format!("{id}-{steps}"));
    let mut sbp = json!({
        "session_id": id, "snapshot_id": snapshot, "resume_available": false,
        "resume_prompt": null, "last_checkpoint": NOW, "step_count": steps, "cost_usd": 0.0,
        "model_routed_to": model,
    });
    if let Some(token) = made {
        sbp["session_token"] = json!(token);
    }
    sbp
}

fn whole(state: &State, id: &str, made: Option<&str>, asked: &Value, done: &Done) -> Response {
    let mut message = json!({ "role": "assistant", "content": done.said.text });
    if !done.said.calls.is_empty() {
        message["tool_calls"] = json!(done.said.calls);
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": done.said.finish });
    let mut answer = json!({
        "id": "answer", "object": "chat.completion", "model": asked["model"],
        "choices": [choice], "sbp": info(state, id, made, done.steps, text(asked, "model")),
    });
    if state.has(Fault::NoObject) {
        answer["object"] = json!("completion");
    }
    let token = state.sessions()[id].token.clone();
    match state.has(Fault::NoTokenHeader) {
        true => axum::Json(answer).into_response(),
        false => ([("x-session-token", token)], axum::Json(answer)).into_response(),
    }
}

fn event(delta: Value, finish: Value, sbp: Option<Value>) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let mut chunk = json!({ "object": "chat.completion.chunk", "choices": [choice] });
    if let Some(sbp) = sbp {
        chunk["sbp"] = sbp;
    }
    format!("data: {chunk}\n\n")
}

fn sse(events: mpsc::UnboundedReceiver<String>) -> Response {
    let events = stream::unfold(events, async |mut events| {
        let event = events.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(event), events))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
}

/// `held` is dropped when the turn has ended, or its reader has gone.
fn streamed(
    state: Arc<State>,
    id: String,
    mut said: mpsc::UnboundedReceiver<String>,
    turn: tokio::task::JoinHandle<Option<Done>>,
    held: (Option<OwnedSemaphorePermit>, Option<Abort>),
) -> Response {
    let (events, read) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let gone = events.clone();
        let telling = async {
            while let Some(piece) = said.recv().await {
                let _ = events.send(event(json!({ "content": piece }), Value::Null, None));
            }
            let last = match turn.await {
                Err(_) | Ok(None) => "data: {\"error\":{\"code\":\"SBP_UPSTREAM\"}}\n\n".to_owned(),
                Ok(Some(done)) => {
                    let sbp = info(&state, &id, None, done.steps, "m");
                    let end = event(json!({}), json!("stop"), Some(sbp));
                    match state.has(Fault::NoDone) {
                        true => end,
                        false => end + "data: [DONE]\n\n",
                    }
                }
            };
            let _ = events.send(last);
        };
        tokio::select! {
            () = telling => {}
            () = gone.closed(), if held.1.is_some() => {}
        }
        drop(held);
    });
    sse(read)
}

async fn passed(state: &State, body: Bytes) -> Response {
    let body = match state.has(Fault::PassThroughRewritten) {
        true => serde_json::from_slice::<Value>(&body).unwrap().to_string().into(),
        false => body,
    };
    let request = state.http.post(format!("{}/chat/completions", state.upstream)).body(body);
    let answer = request.header("content-type", "application/json").send().await.unwrap();
    let json = [("content-type", "application/json")];
    (json, answer.bytes().await.unwrap()).into_response()
}
