//! A scripted OpenAI-compatible server. The model's name says how it behaves.
//!
//! - `m`, or anything else: answers "answer N" to the Nth call, streamed if asked
//! - `gated`: streams what the test sends through [`MockUpstream::gate`], chunk by chunk
//! - `status-NNN`, `status-NNN-…`: answers that status with an OpenAI-shaped error that quotes
//!   the model's name
//! - `refuses {"status":…,"headers":{…},"body":…}`: answers exactly that
//! - `refusing`: answers what [`MockUpstream::refuses`] was told last
//! - `event …`: streams that text as its only event
//! - `window-N`: as `m`, but refuses messages of more than N characters as OpenAI does, an answer
//!   that is allowed to be longer, and a role that it does not know, which it quotes
//! - `unnamed-N`: the same, and does not say how much it takes
//! - `remembers-N`: as `remembers`, but refuses a result with messages of more than N characters
//! - `dense-N`: the same as `window-N` with a token for each character, without a code, and it counts no tokens
//! - `flaky`: 503 first, then as `m`
//! - `nonsense`: 200 with a body that is no completion
//! - `broken`: streams one chunk and closes the connection
//! - `whole`: as `m`, and never streamed
//! - `hang`: accepts the request and never answers
//! - `tools`: calls the tool `look_up`, and repeats its result as the answer
//! - `remembers`: says "One moment. ", calls the tool `remember` with the user's text (and
//!   `look_up`, if the text asks for both), and repeats the result as the answer
//! - `calls`: makes the tool calls that the last message lists as JSON, in two fragments each, all
//!   first fragments before all second ones, and repeats the results as the answer; `calls-vision`
//!   does the same
//! - `remembers-then-502`: as `remembers`, but answers 502 once there is a result
//! - `half-call`: streams a word and half a call of `remember`, and closes the connection
//! - `odd`: answers [`ODD`], or streams [`ODD_STREAM`], with formatting that no serialiser produces
//!
//! Every answer reports 1000 prompt tokens and 100 completion tokens; `window-N` a prompt token for
//! four characters.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bowline_gateway::config::{Config, Upstream};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, mpsc};

use crate::bench::eventually;

/// A completion with unusual spaces, numbers, escapes and an unknown field.
pub(crate) const ODD: &str = r#"{ "id" :"x","model":"odd",  "choices":[{"index":0,"finish_reason":"stop",
 "message":{"role":"assistant","content":"\u00e9","n":1.50e+2}} ] ,"new_field":12345678901234567890123 }
"#;

/// A stream with comments, CRLF and an unusual order of fields.
pub(crate) const ODD_STREAM: &str = concat!(
    ": keep-alive\r\n\r\nevent: x\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],",
    "\"model\":\"odd\"}\r\n\r\ndata: [DONE]\r\n\r\n"
);

pub(crate) struct MockUpstream {
    pub(crate) url: String,
    state: Arc<Mock>,
}

#[derive(Default)]
struct Mock {
    calls: Mutex<Vec<Call>>,
    gates: Mutex<Vec<mpsc::UnboundedReceiver<Piece>>>,
    /// The answer to `GET /v1/models`; 404 without one.
    list: Mutex<Option<(StatusCode, String)>>,
    lists_asked: AtomicUsize,
    /// The answer of `refusing`.
    refusal: Mutex<(StatusCode, Value)>,
    /// Held by a test that wants lists to wait.
    lists_held: Arc<RwLock<()>>,
}

/// A request that the gateway sent.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Call {
    /// The conversation, as `role: content`.
    pub(crate) fn said(&self) -> Vec<String> {
        let messages = self.body["messages"].as_array().unwrap().iter();
        messages
            .map(|m| {
                format!("{}: {}", m["role"].as_str().unwrap(), m["content"].as_str().unwrap_or(""))
            })
            .collect()
    }
}

/// A chunk of a gated stream.
pub(crate) enum Piece {
    Text(String),
    Cut,
}

impl MockUpstream {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mock::default());
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/completions", post(complete))
            .route("/v1/models", get(list))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { url, state }
    }

    /// Makes it the gateway's upstream `mock`.
    pub(crate) fn configure(&self, config: &mut Config) {
        let upstream = Upstream { url: self.url.clone(), retries: 1, ..Upstream::default() };
        config.upstream.insert("mock".into(), upstream);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.calls.lock().unwrap().clone()
    }

    /// Drops the recorded calls: a long test would run out of memory.
    pub(crate) fn forget(&self) {
        self.state.calls.lock().unwrap().clear();
    }

    /// Waits until that many calls were received.
    pub(crate) async fn until_calls(&self, count: usize) {
        eventually(&format!("{count} calls"), async || self.calls().len() >= count).await;
    }

    /// What it answers when its models are asked for.
    pub(crate) fn lists(&self, status: u16, models: &Value) {
        let text = json!({ "object": "list", "data": models }).to_string();
        *self.state.list.lock().unwrap() = Some((StatusCode::from_u16(status).unwrap(), text));
    }

    /// What the model `refusing` answers.
    pub(crate) fn refuses(&self, status: u16, error: Value) {
        let status = StatusCode::from_u16(status).unwrap();
        *self.state.refusal.lock().unwrap() = (status, json!({ "error": error }));
    }

    /// How often its models were asked for.
    pub(crate) fn lists_asked(&self) -> usize {
        self.state.lists_asked.load(Ordering::SeqCst)
    }

    /// While the guard lives, it does not say what its models are.
    pub(crate) async fn hold_lists(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.state.lists_held).write_owned().await
    }

    /// The text of the next `gated` answer, under the test's control. Dropping it ends the answer.
    pub(crate) fn gate(&self) -> mpsc::UnboundedSender<Piece> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state.gates.lock().unwrap().push(receiver);
        sender
    }
}

async fn list(State(mock): State<Arc<Mock>>) -> Response {
    mock.lists_asked.fetch_add(1, Ordering::SeqCst);
    let _go = mock.lists_held.read().await;
    match mock.list.lock().unwrap().clone() {
        Some(answer) => answer.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn complete(State(mock): State<Arc<Mock>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let body: Value = serde_json::from_str(&text).unwrap();
    let number = {
        let mut calls = mock.calls.lock().unwrap();
        calls.push(Call { headers, text, body: body.clone() });
        calls.len()
    };
    let model = body["model"].as_str().unwrap().to_owned();
    let mut prompt = 1000;
    if let Some((characters, window)) = window(&model) {
        let size = body["messages"].to_string().len();
        prompt = if characters == 1 { 0 } else { size / characters };
        if let Some(error) = too_long(&body, size / characters, window / characters) {
            return (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": error })))
                .into_response();
        }
    }
    if let Some(status) = model.strip_prefix("status-") {
        let status = status.split('-').next().unwrap().parse().unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        let message = format!("scripted refusal of {model}");
        let error = json!({ "error": { "message": message, "type": "t" } });
        return (status, [("retry-after", "7")], axum::Json(error)).into_response();
    }
    if let Some(scripted) = model.strip_prefix("refuses ") {
        let scripted: Value = serde_json::from_str(scripted).unwrap();
        let mut response = axum::Json(&scripted["body"]).into_response();
        *response.status_mut() = serde_json::from_value::<u16>(scripted["status"].clone())
            .map(|status| StatusCode::from_u16(status).unwrap())
            .unwrap();
        for (name, value) in scripted["headers"].as_object().into_iter().flatten() {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            response.headers_mut().insert(name, value.as_str().unwrap().parse().unwrap());
        }
        return response;
    }
    if let Some(data) = model.strip_prefix("event ") {
        return stream(vec![Ok(format!("data: {data}\n\n"))]);
    }
    if let Some(window) = model.strip_prefix("remembers-").and_then(|n| n.parse::<usize>().ok()) {
        let (messages, window) = (body["messages"].to_string(), window / 4);
        let refusal = too_long(&body, messages.len() / 4, window);
        return match refusal.filter(|_| messages.contains("\"tool\"")) {
            Some(error) => {
                (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": error }))).into_response()
            }
            None => remembers(&body),
        };
    }
    match model.as_str() {
        "flaky" if number == 1 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "nonsense" => "{\"no\":\"choices\"}".into_response(),
        "broken" => stream(vec![Ok(chunk(&model, "half an ")), Err(std::io::Error::other("cut"))]),
        "hang" => std::future::pending().await,
        "refusing" => {
            let (status, body) = mock.refusal.lock().unwrap().clone();
            (status, axum::Json(body)).into_response()
        }
        "odd" if body["stream"] == true => event_stream(Body::from(ODD_STREAM)),
        "odd" => ([(header::CONTENT_TYPE, "application/json; charset=odd")], ODD).into_response(),
        "tools" => tools(&body),
        "remembers-then-502" if body["messages"].to_string().contains("\"tool\"") => {
            StatusCode::BAD_GATEWAY.into_response()
        }
        "half-call" => {
            let call = json!({ "index": 0, "id": "h", "type": "function",
                               "function": { "name": "remember", "arguments": "{\"te" } });
            let delta = json!({ "content": "Wait. ", "tool_calls": [call] });
            let piece = event("half-call", json!([{ "index": 0, "delta": delta }]), Value::Null);
            stream(vec![Ok(piece), Err(std::io::Error::other("cut"))])
        }
        "remembers" | "remembers-then-502" => remembers(&body),
        "calls" | "calls-vision" => calls(&body),
        "calls-for-ever" => calls_for_ever(&body),
        "gated" => {
            let gate = mock.gates.lock().unwrap().remove(0);
            gated(model, gate)
        }
        _ if body["stream"] == true && model != "whole" => {
            let words = ["answer ".to_owned(), number.to_string()];
            let mut events: Vec<_> = words.iter().map(|word| Ok(chunk(&model, word))).collect();
            events.push(Ok(last(&model)));
            if body["stream_options"]["include_usage"] == true {
                events.push(Ok(usage(&model)));
            }
            events.push(Ok("data: [DONE]\n\n".into()));
            stream(events)
        }
        _ => axum::Json(json!({
            "id": format!("chatcmpl-{number}"), "object": "chat.completion", "created": 1,
            "model": model,
            "choices": [{ "index": 0, "finish_reason": "stop",
                          "message": { "role": "assistant", "content": format!("answer {number}") } }],
            "usage": { "prompt_tokens": prompt, "completion_tokens": 100, "total_tokens": prompt + 100 },
            "unknown_extra": { "kept": true },
        }))
        .into_response(),
    }
}

/// The characters of a token and of the whole window.
fn window(model: &str) -> Option<(usize, usize)> {
    let (kind, window) = model.split_once('-')?;
    let characters = match kind {
        "window" | "unnamed" => 4,
        "dense" => 1,
        _ => return None,
    };
    Some((characters, window.parse().ok()?))
}

/// Why a request with so many tokens is refused by a model with that window.
fn too_long(body: &Value, tokens: usize, window: usize) -> Option<Value> {
    let roles = ["system", "user", "assistant", "tool"];
    let mut said = body["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap());
    if let Some(role) = said.find(|role| !roles.contains(role)) {
        return Some(json!({ "message": format!("Unknown role: {role}") }));
    }
    let answer = body["max_tokens"].as_u64().unwrap_or(0) as usize;
    if answer > 100 * window {
        let message = "Please reduce the length of the messages or completion.";
        return Some(json!({ "message": message, "type": "invalid_request_error" }));
    }
    if answer > window {
        let message = format!(
            "'max_tokens' or 'max_completion_tokens' is too large: {answer}. This model's maximum \
             context length is {window} tokens and your request has {tokens} input tokens."
        );
        return Some(json!({ "message": message, "type": "BadRequestError", "code": 400 }));
    }
    if body["model"].as_str()?.starts_with("unnamed-") {
        let message = "Please reduce the length of the messages or completion.";
        return (tokens > window).then(|| json!({ "message": message }));
    }
    let code = if body["model"].as_str()?.starts_with("dense-") {
        400.into()
    } else {
        Value::from("context_length_exceeded")
    };
    let message = format!(
        "This model's maximum context length is {window} tokens. However, your messages resulted \
         in {tokens} tokens."
    );
    (tokens > window).then(|| {
        json!({ "message": message, "type": "invalid_request_error", "param": "messages",
                "code": code })
    })
}

fn tools(body: &Value) -> Response {
    let said = body["messages"].as_array().unwrap().last().unwrap();
    let call = json!({ "id": "call_1", "type": "function",
                       "function": { "name": "look_up", "arguments": "{\"q\":1}" } });
    let (message, reason) = if said["role"] == "tool" {
        let text = format!("it says {}", said["content"].as_str().unwrap());
        (json!({ "role": "assistant", "content": text }), "stop")
    } else {
        (json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
    };
    if body["stream"] != true {
        let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
        return axum::Json(json!({ "id": "t", "model": "tools", "choices": [choice] }))
            .into_response();
    }
    // Arguments come in pieces, as real servers send them.
    let piece = |delta: Value| event("tools", json!([{ "index": 0, "delta": delta }]), Value::Null);
    let mut events = vec![Ok(piece(json!({ "role": "assistant", "content": message["content"] })))];
    if reason == "tool_calls" {
        let mut head = call;
        head["index"] = json!(0);
        head["function"]["arguments"] = json!("{\"q\"");
        let rest = json!({ "index": 0, "function": { "arguments": ":1}" } });
        events.push(Ok(piece(json!({ "tool_calls": [head] }))));
        events.push(Ok(piece(json!({ "tool_calls": [rest] }))));
    }
    let end = json!([{ "index": 0, "delta": {}, "finish_reason": reason }]);
    events.push(Ok(event("tools", end, Value::Null) + "data: [DONE]\n\n"));
    stream(events)
}

fn remembers(body: &Value) -> Response {
    let said = body["messages"].as_array().unwrap().last().unwrap();
    let text = said["content"].as_str().unwrap();
    let call = |id: &str, name: &str, arguments: Value| {
        json!({ "index": 0, "id": id, "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() } })
    };
    let mut calls = vec![call("call_r", "remember", json!({ "text": text }))];
    if text.contains("both") {
        let mut second = call("call_l", "look_up", json!({ "q": 1 }));
        second["index"] = json!(1);
        calls.push(second);
    }
    let (content, calls, reason) = if said["role"] == "tool" {
        (format!("Noted: {text}"), Vec::new(), "stop")
    } else {
        ("One moment. ".to_owned(), calls, "tool_calls")
    };
    let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 });
    if body["stream"] != true {
        let message = json!({ "role": "assistant", "content": content, "tool_calls": calls });
        let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
        return axum::Json(
            json!({ "id": "r", "model": "remembers", "choices": [choice], "usage": usage }),
        )
        .into_response();
    }
    let piece = |delta: Value, reason: Value| {
        let choice = json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
        Ok(event("remembers", choice, Value::Null))
    };
    let mut events = vec![piece(json!({ "content": content }), Value::Null)];
    events.extend(calls.iter().map(|call| piece(json!({ "tool_calls": [call] }), Value::Null)));
    events.push(piece(json!({}), json!(reason)));
    events.push(Ok(event("remembers", json!([]), usage) + "data: [DONE]\n\n"));
    stream(events)
}

fn calls(body: &Value) -> Response {
    let messages = body["messages"].as_array().unwrap();
    // The images of the results follow them.
    let newest =
        messages.iter().rev().skip_while(|m| m["role"] == "user" && m["content"].is_array());
    let results: Vec<_> = newest.take_while(|m| m["role"] == "tool").collect();
    if !results.is_empty() {
        let said: Vec<_> = results.iter().rev().map(|m| m["content"].as_str().unwrap()).collect();
        let choice = json!([{ "index": 0, "delta": { "content": said.join(" | ") },
                              "finish_reason": "stop" }]);
        return stream(vec![Ok(event("calls", choice, Value::Null) + "data: [DONE]\n\n")]);
    }
    // `[["name", "arguments"], …]`
    let asked = messages.last().unwrap()["content"].as_str().unwrap();
    let asked: Vec<(String, String)> = serde_json::from_str(asked).unwrap();
    let piece =
        |delta: Value| Ok(event("calls", json!([{ "index": 0, "delta": delta }]), Value::Null));
    let (mut events, mut tails) = (Vec::new(), Vec::new());
    for (n, (name, arguments)) in asked.iter().enumerate() {
        let (head, tail) = arguments.split_at(arguments.len() / 2);
        let call = json!({ "index": n, "id": format!("call_{n}"), "type": "function",
                           "function": { "name": name, "arguments": head } });
        events.push(piece(json!({ "tool_calls": [call] })));
        let rest = json!({ "index": n, "function": { "arguments": tail } });
        tails.push(piece(json!({ "tool_calls": [rest] })));
    }
    events.extend(tails);
    let end = json!([{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }]);
    events.push(Ok(event("calls", end, Value::Null) + "data: [DONE]\n\n"));
    stream(events)
}

/// Calls the tool `surface_camera` in every round in which tools are allowed.
fn calls_for_ever(body: &Value) -> Response {
    let delta = match body["tool_choice"] != "none" {
        true => json!({ "tool_calls": [{ "index": 0, "id": "call_0", "type": "function",
                        "function": { "name": "surface_camera", "arguments": "{}" } }] }),
        false => json!({ "content": "enough" }),
    };
    let piece = event("calls-for-ever", json!([{ "index": 0, "delta": delta }]), Value::Null);
    let end = json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]);
    let end = event("calls-for-ever", end, json!({ "prompt_tokens": 10, "completion_tokens": 10 }));
    stream(vec![Ok(piece + &end + "data: [DONE]\n\n")])
}

fn gated(model: String, gate: mpsc::UnboundedReceiver<Piece>) -> Response {
    let events = futures_util::stream::unfold((gate, false), move |(mut gate, ended)| {
        let model = model.clone();
        async move {
            if ended {
                return None;
            }
            match gate.recv().await {
                Some(Piece::Text(text)) => Some((Ok(chunk(&model, &text)), (gate, false))),
                Some(Piece::Cut) => {
                    // What was said before goes out first.
                    tokio::task::yield_now().await;
                    Some((Err(std::io::Error::other("cut")), (gate, true)))
                }
                None => Some((Ok(last(&model) + "data: [DONE]\n\n"), (gate, true))),
            }
        }
    });
    event_stream(Body::from_stream(events))
}

fn stream(events: Vec<Result<String, std::io::Error>>) -> Response {
    // One by one, so that a cut comes after what was before it.
    let events = futures_util::stream::iter(events).then(|event| async {
        tokio::task::yield_now().await;
        event
    });
    event_stream(Body::from_stream(events))
}

fn event_stream(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn event(model: &str, choices: Value, extra: Value) -> String {
    let mut chunk = json!({ "id": "chatcmpl-s", "object": "chat.completion.chunk", "created": 1,
                            "model": model, "choices": choices });
    if !extra.is_null() {
        chunk["usage"] = extra;
    }
    format!("data: {chunk}\n\n")
}

fn chunk(model: &str, text: &str) -> String {
    event(
        model,
        json!([{ "index": 0, "delta": { "content": text }, "finish_reason": null }]),
        Value::Null,
    )
}

fn last(model: &str) -> String {
    event(model, json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]), Value::Null)
}

fn usage(model: &str) -> String {
    event(
        model,
        json!([]),
        json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 }),
    )
}
