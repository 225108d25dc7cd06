//! A scripted OpenAI-compatible server. The model's name says how it behaves.
//!
//! - `m`, or anything else: answers "answer N" to the Nth call, streamed if asked
//! - `gated`: streams what the test pushes through [`MockUpstream::gate`], piece by piece
//! - `status-NNN`: answers that status with an OpenAI-shaped error
//! - `flaky`: 503 first, then as `m`
//! - `nonsense`: 200 with something that is no completion
//! - `broken`: streams one piece and cuts the connection
//! - `priced`: as `m`, with a usage of 1000 and 100 tokens

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub(crate) struct MockUpstream {
    pub(crate) url: String,
    state: Arc<Mock>,
}

#[derive(Default)]
struct Mock {
    calls: Mutex<Vec<Call>>,
    gates: Mutex<Vec<mpsc::UnboundedReceiver<Piece>>>,
}

/// What the gateway sent.
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

/// A piece of a gated stream.
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
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { url, state }
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.calls.lock().unwrap().clone()
    }

    /// The text of the next `gated` answer, under the test's control. Dropping it ends the answer.
    pub(crate) fn gate(&self) -> mpsc::UnboundedSender<Piece> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state.gates.lock().unwrap().push(receiver);
        sender
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
    if let Some(status) = model.strip_prefix("status-") {
        let status = StatusCode::from_u16(status.parse().unwrap()).unwrap();
        let error = json!({ "error": { "message": "scripted refusal", "type": "t" } });
        return (status, [("retry-after", "7")], axum::Json(error)).into_response();
    }
    match model.as_str() {
        "flaky" if number == 1 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "nonsense" => "{\"no\":\"choices\"}".into_response(),
        "broken" => stream(vec![Ok(chunk(&model, "half an ")), Err(std::io::Error::other("cut"))]),
        "gated" => {
            let gate = mock.gates.lock().unwrap().remove(0);
            gated(model, gate)
        }
        _ if body["stream"] == true => {
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
            "usage": { "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 },
            "unknown_extra": { "kept": true },
        }))
        .into_response(),
    }
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
                Some(Piece::Cut) => Some((Err(std::io::Error::other("cut")), (gate, true))),
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
