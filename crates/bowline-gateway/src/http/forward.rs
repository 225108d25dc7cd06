//! Paths of OpenAI's API that need no session: embeddings, moderations, images, audio. They go to
//! the upstream that serves the request's model, and nothing is stored.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::response::{IntoResponse, Response};
use bowline_sbp::access::Action;
use bowline_sbp::error::Code;
use futures_util::StreamExt;

use super::body::ChatBody;
use super::caller::Caller;
use super::error::ApiError;
use super::meter::{Estimate, Meter};
use super::named_model::{Format, ModelField};
use super::upload::Upload;
use super::{App, credentials};
use crate::auth::Denied;
use crate::engine::{Engine, Identity};
use crate::meters;
use crate::model::{Forward, Model, Upstream};

/// Request headers that reach an upstream. Never credentials: the upstream gets its own key.
const REQUEST_HEADERS: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::ACCEPT,
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("openai-beta"),
];

/// Response headers that reach the caller, besides `x-ratelimit-…`.
const RESPONSE_HEADERS: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_DISPOSITION,
    header::RETRY_AFTER,
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("x-should-retry"),
    HeaderName::from_static("x-request-id"),
];

macro_rules! forwarded {
    ($($(#[doc = $doc:literal])+ $name:ident = $path:literal;)*) => {$(
        $(#[doc = $doc])+
        ///
        /// Passed on to the upstream that serves the request's `model`, as it is.
        #[utoipa::path(
            post, path = $path, tag = "models",
            request_body(content = Object, description = "As OpenAI's API has it"),
            responses((status = 200, description = "As the upstream answers", body = Object)),
        )]
        pub(crate) async fn $name(
            State(app): State<Arc<App>>,
            request: Request,
        ) -> Result<Response, ApiError> {
            by_model(&app, request, $path).await
        }
    )*};
}

forwarded! {
    /// Vectors of texts.
    embeddings = "/v1/embeddings";
    /// Whether a text is harmful.
    moderations = "/v1/moderations";
    /// Images from a text.
    images_generations = "/v1/images/generations";
    /// Images from images and a text.
    images_edits = "/v1/images/edits";
    /// Images from an image.
    images_variations = "/v1/images/variations";
    /// Speech from a text.
    audio_speech = "/v1/audio/speech";
    /// A text from speech.
    audio_transcriptions = "/v1/audio/transcriptions";
    /// An English text from speech.
    audio_translations = "/v1/audio/translations";
}

async fn by_model(app: &App, request: Request, path: &str) -> Result<Response, ApiError> {
    let engine = &app.engine;
    let (head, body) = request.into_parts();
    // Before the body is read: strangers must not make the gateway buffer anything.
    let identity = authorise(engine, &head).await.map_err(ApiError::before_the_body)?;
    let mut upload = Upload::new(&head.headers, body, &engine.limits)?;
    let model = named_model(&Format::of(&head.headers), &mut upload, engine).await?;
    match &model {
        Some(model) if identity.has_model_limits() => {
            identity.check_model(model)?;
            only_model(&mut upload, engine).await?;
        }
        Some(_) => {}
        None if identity.has_model_limits() => return Err(Denied::NotFor("model").into()),
        None => {}
    }
    let upstream = upstream(engine, model.as_deref(), path)?;
    let spender = identity.spender();
    engine.check_model_call(&spender).await?;
    let estimate = if path == "/v1/embeddings" { Estimate::Prompt } else { Estimate::Nothing };
    let sent = upload.announced();
    let meter = Meter::new(engine, spender, model.unwrap_or_default(), estimate, sent);
    send(upstream, meter, Method::POST, path, None, &head.headers, Some(upload)).await
}

/// May the caller use pass-through? As for completions without a session.
pub(super) async fn authorise(engine: &Engine, head: &Parts) -> Result<Identity, ApiError> {
    let credentials = credentials(&head.headers, &head.extensions);
    let caller = Caller::identify(engine, credentials).await?;
    // A session's token is for its session.
    let identity = caller.identity().map_err(|_| Denied::Wrong)?;
    identity.check(Action::UseModels)?;
    Ok(identity.clone())
}

/// The model that the request names. Reads no further than needed, and never more than a completion
/// request may hold.
async fn named_model(
    format: &Format,
    upload: &mut Upload,
    engine: &Engine,
) -> Result<Option<String>, ApiError> {
    let most = engine.limits.request_body;
    loop {
        match format.find(upload.beginning(), upload.is_whole()) {
            ModelField::Model(model) => return Ok(Some(model)),
            ModelField::Nothing => return Ok(None),
            ModelField::NotYet if upload.beginning().len() < most => upload.read_more(most).await?,
            ModelField::NotYet if engine.models.has_one_for_all() => return Ok(None),
            // Another upstream than the caller means must not get it.
            ModelField::NotYet => {
                let message = format!("`model` is not in the first {most} bytes of the body");
                return Err(ApiError::new(Code::MalformedRequest, message)
                    .detail("put `model` before the file")
                    .param("model"));
            }
            ModelField::Unreadable => {
                let message = "the body is neither a JSON object nor a multipart form";
                return Err(ApiError::new(Code::MalformedRequest, message));
            }
        }
    }
}

/// Refuses a body that may name another model beside the one that was found: servers take the last.
async fn only_model(upload: &mut Upload, engine: &Engine) -> Result<(), ApiError> {
    let most = engine.limits.request_body;
    while !upload.is_whole() && upload.beginning().len() < most {
        upload.read_more(most).await?;
    }
    let is_only = |bytes: &[u8]| ChatBody::read(bytes).is_ok_and(|body| body.times("model") == 1);
    match upload.is_whole() && is_only(upload.beginning()) {
        true => Ok(()),
        false => Err(ApiError::new(
            Code::Forbidden,
            "that key is for some models, so the body must be JSON that names one model once",
        )),
    }
}

/// The upstream for a model, or for a request that names none.
fn upstream<'e>(
    engine: &'e Engine,
    model: Option<&str>,
    path: &str,
) -> Result<&'e Upstream, ApiError> {
    let Some(model) = model else {
        return engine.models.catch_all().ok_or_else(|| {
            let message = "the request names no `model`, and no upstream serves every model";
            ApiError::new(Code::MalformedRequest, message)
                .detail("send `model`; in a multipart form, put it before the file")
                .param("model")
        });
    };
    match engine.models.route(model)? {
        Model::Upstream(upstream) => Ok(upstream),
        Model::Offline(_) => {
            let message = format!("the built-in agent only chats; it has no {path}");
            Err(ApiError::new(Code::MalformedRequest, message)
                .detail("name a model of an upstream; GET /v1/models lists them")
                .param("model"))
        }
    }
}

/// Passes a request on, and the answer back. `path` begins with `/v1`.
pub(super) async fn send(
    upstream: &Upstream,
    mut meter: Meter,
    method: Method,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    upload: Option<Upload>,
) -> Result<Response, ApiError> {
    meters::passed_through();
    let known = REQUEST_HEADERS.into_iter().filter_map(|name| {
        let value = headers.get(&name)?.clone();
        Some((name, value))
    });
    let (body, broken) = upload.map(Upload::outgoing).unzip();
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let forward = Forward { method, path, query, headers: known.collect(), body };
    meter.asks();
    let answer = upstream.forward(forward).await.map_err(|failure| {
        // The upstream is not to blame for a body that never came.
        if let Some(why) = broken.and_then(|broken| broken.why()) {
            meter.broke_off();
            return why;
        }
        meter.failed(&failure);
        upstream.warn(&failure);
        failure.into()
    })?;
    Ok(response(upstream, answer, meter))
}

fn response(upstream: &Upstream, answer: reqwest::Response, mut meter: Meter) -> Response {
    let (status, headers) = (answer.status(), answer.headers().clone());
    meter.began(status);
    let body = Body::from_stream(upstream.pieces(answer).inspect(move |piece| {
        if let Ok(piece) = piece {
            meter.see(piece);
        }
    }));
    let mut response = (status, body).into_response();
    copy_headers(&headers, response.headers_mut());
    response
}

/// Copies what concerns the caller.
pub(super) fn copy_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        if RESPONSE_HEADERS.contains(name) || name.as_str().starts_with("x-ratelimit-") {
            to.insert(name.clone(), value.clone());
        }
    }
}
