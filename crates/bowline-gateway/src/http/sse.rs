//! Server-Sent Events, as OpenAI's clients read them.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};

pub(super) const DONE: &str = "data: [DONE]\n\n";

/// A comment, which clients skip.
pub(super) const KEEP_ALIVE: &str = ": keep-alive\n\n";

pub(super) fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

pub(super) fn event_stream(body: Body) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, body).into_response()
}
