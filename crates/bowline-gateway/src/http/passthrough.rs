//! Pass-through: a completion request without a session, sent to the model unchanged (SBP-L1-09).

use std::sync::Arc;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_sbp::budget::Spender;
use bowline_sbp::completion::Assembly;
use bowline_sbp::error::Code;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::BodyExt;

use super::body::ChatBody;
use super::error::ApiError;
use super::forward::copy_headers;
use super::meter::{Estimate, Meter};
use super::sse::event_stream;
use crate::engine::Engine;
use crate::meters;
use crate::model::{Call, Model, Reply};

/// Forwards the body unchanged, and streams the response back.
pub(super) async fn pass(
    engine: &Arc<Engine>,
    spender: Spender,
    chat: ChatBody<'_>,
    bytes: Bytes,
    path: &'static str,
) -> Result<Response, ApiError> {
    meters::passed_through();
    let model = chat.model()?;
    let upstream = match engine.models.route(&model)? {
        Model::Upstream(upstream) => upstream,
        offline => return Box::pin(built_in(engine, spender, offline, chat, model)).await,
    };
    let sent = chat.for_upstream(bytes);
    let mut meter = Meter::new(engine, spender, model, Estimate::Chat, sent.len());
    meter.asks();
    let answer = upstream.pass_through(path, sent).await;
    let answer = answer.inspect_err(|failure| meter.failed(failure))?;
    let (head, body) = axum::http::Response::<reqwest::Body>::from(answer).into_parts();
    meter.began(head.status);
    let body = body.map_frame(move |frame| {
        frame.data_ref().into_iter().for_each(|data| meter.see(data));
        frame
    });
    let mut response = (head.status, Body::new(body)).into_response();
    copy_headers(&head.headers, response.headers_mut());
    Ok(response)
}

/// The built-in agent has no server to forward to; its answer has the same shape.
async fn built_in(
    engine: &Arc<Engine>,
    spender: Spender,
    offline: &Model,
    chat: ChatBody<'_>,
    model: String,
) -> Result<Response, ApiError> {
    let stream = chat.stream();
    let messages = chat.messages(engine.limits.messages)?;
    let mut meter = Meter::new(engine, spender, model.clone(), Estimate::Chat, 0);
    meter.began(StatusCode::OK);
    let call = Call::plain(model, chat.params(), messages.iter().collect(), stream);
    let Reply::Chunks(mut chunks) = offline.call(call).await? else {
        return Err(ApiError::new(Code::Internal, "the built-in agent always streams"));
    };
    if stream {
        let events = chunks.map(move |chunk| {
            let chunk = chunk.map_err(std::io::Error::other)?;
            meter.see(&chunk);
            Ok::<_, std::io::Error>(Bytes::from([b"data: ", &chunk[..], b"\n\n"].concat()))
        });
        let done = futures_util::stream::iter([Ok(Bytes::from_static(b"data: [DONE]\n\n"))]);
        return Ok(event_stream(Body::from_stream(events.chain(done))));
    }
    let mut assembly = Assembly::default();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        meter.see(&chunk);
        let read = std::str::from_utf8(&chunk).ok().and_then(|text| assembly.push(text).ok());
        read.ok_or_else(|| {
            ApiError::new(Code::Internal, "the built-in agent sent an invalid chunk")
        })?;
    }
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, assembly.finish().completion).into_response())
}
