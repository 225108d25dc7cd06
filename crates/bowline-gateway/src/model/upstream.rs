//! One OpenAI-compatible server: calls with timeouts, size limits and retries.
//!
//! Retried only before the first byte of an answer: a model's answer is not repeatable.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowline_net::outbound;
use bowline_sbp::error::{Code, Failure};
use bytes::Bytes;
use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;

use super::catalogue::ModelObject;
use super::client::{client, patient_client};
use super::refusal::{When, add_wait, error_event, refusal};
use super::request::body;
use super::sse::Events;
use super::{Call, Chunks, Reply};
use crate::config::{self, StreamMode, matches};
use crate::limits::Limits;

/// The pause between two warnings that an upstream does not answer.
const WARN_EVERY: Duration = Duration::from_secs(30);

/// The bounds of a list of models.
struct ListBounds {
    patience: Duration,
    bytes: usize,
}

/// A configured server.
pub struct Upstream {
    name: String,
    /// May hold a password.
    base: Url,
    client: Client,
    /// For requests that are passed on with large bodies.
    patient: Client,
    key: Option<HeaderValue>,
    pub(super) settings: config::Upstream,
    largest: usize,
    list: ListBounds,
    /// Images of tool results in one request, in bytes.
    images: usize,
    /// When the log last said that it does not answer.
    warned: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Upstream {
    pub(super) fn new(
        name: &str,
        settings: &config::Upstream,
        limits: &Limits,
    ) -> Result<Self, String> {
        let url = Url::parse(&settings.url)
            .map_err(|_| "`url` is not a URL; write it like https://host/v1".to_owned())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("`url` must begin with http:// or https://".into());
        }
        Ok(Self {
            name: name.to_owned(),
            client: client(&url, settings)?,
            patient: patient_client(&url, settings)?,
            base: url,
            key: key(settings)?,
            settings: settings.clone(),
            largest: limits.answer,
            list: ListBounds { patience: limits.models_timeout, bytes: limits.models_list },
            images: limits.prompt_images,
            warned: Mutex::default(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn stream_mode(&self) -> StreamMode {
        self.settings.stream
    }

    /// The most bytes of the images of tool results in a prompt: none for a model that does not read
    /// images, as the configuration says.
    pub(super) fn tool_images(&self, model: &str) -> usize {
        let reads_images = self.settings.vision.iter().any(|pattern| matches(pattern, model));
        if reads_images { self.images } else { 0 }
    }

    /// Where it is, without credentials.
    pub fn address(&self) -> String {
        let mut url = self.base.clone();
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.to_string()
    }

    /// Whether it answers at all, and with which status.
    pub async fn probe(&self) -> Result<u16, Failure> {
        let asked = self.request(Method::GET, "/models").send();
        match tokio::time::timeout(Duration::from_secs(10), asked).await {
            Ok(Ok(response)) => Ok(response.status().as_u16()),
            Ok(Err(error)) => Err(self.unreachable(error)),
            Err(_) => Err(self.late("an answer")),
        }
    }

    /// The names of the models that it lists, in its order.
    pub async fn models(&self) -> Result<Vec<String>, Failure> {
        let name = |model: &ModelObject| Some(model.get("id")?.as_str()?.to_owned());
        Ok(self.list().await?.iter().filter_map(name).collect())
    }

    /// The models that it lists, as it describes them. Bounded in size and time.
    pub(super) async fn list(&self) -> Result<Vec<ModelObject>, Failure> {
        let listed = async {
            let asked = self.request(Method::GET, "/models").send().await;
            let response = asked.map_err(|error| self.unreachable(error))?;
            if !response.status().is_success() {
                return Err(Box::pin(self.refused(response)).await);
            }
            self.bounded(response, self.list.bytes).await
        };
        let body = tokio::time::timeout(self.list.patience, listed).await;
        let body = body.unwrap_or_else(|_| Err(self.late("the list of its models")))?;
        let unreadable = || broken_stream(&self.name, "lists its models in an unknown form");
        let mut list: Value = serde_json::from_slice(&body).map_err(|_| unreadable())?;
        match list["data"].take() {
            Value::Array(models) => {
                let models = models.into_iter();
                Ok(models.filter_map(|model| serde_json::from_value(model).ok()).collect())
            }
            _ => Err(unreadable()),
        }
    }

    pub(super) async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        let body = Bytes::from(body(&call, self.tool_images(&call.model)));
        let response = self.send("/chat/completions", body).await?;
        if !response.status().is_success() {
            return Err(Box::pin(self.refused(response)).await);
        }
        let streams = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if streams { Ok(Reply::Chunks(self.chunks(response))) } else { self.whole(response).await }
    }

    /// Sends a body unchanged and returns the response unchanged (SBP-L1-09).
    pub(crate) fn pass_through(
        &self,
        path: &str,
        body: Bytes,
    ) -> impl Future<Output = Result<Response, Failure>> {
        self.send(path, body)
    }

    /// A request to a path below the base URL, with the upstream's key.
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.with_key(self.client.request(method, self.below(path)))
    }

    /// The same with a query, and without a timeout for the answer.
    pub(super) fn patient_request(
        &self,
        method: Method,
        path: &str,
        query: Option<&str>,
    ) -> RequestBuilder {
        let mut url = self.below(path);
        // The base URL may have a query of its own, such as a version.
        let queries: Vec<_> = [self.base.query(), query].into_iter().flatten().collect();
        url.set_query((!queries.is_empty()).then(|| queries.join("&")).as_deref());
        self.with_key(self.patient.request(method, url))
    }

    fn below(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => request.header(AUTHORIZATION, key.clone()),
            None => request,
        }
    }

    async fn send(&self, path: &str, body: Bytes) -> Result<Response, Failure> {
        let sent = self.send_with_retries(path, body).await;
        if let Err(failure) = &sent {
            self.warn(failure);
        }
        sent
    }

    /// Logs that no answer came. Only once in a while: every turn would say the same.
    pub(crate) fn warn(&self, failure: &Failure) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            // The message is ours: it holds the upstream's name and no address.
            let why = &failure.message;
            tracing::warn!(upstream = %self.name, %why, "an upstream does not answer");
        }
    }

    async fn send_with_retries(&self, path: &str, body: Bytes) -> Result<Response, Failure> {
        let mut pause = Duration::from_millis(100);
        for retries_left in (0..=self.settings.retries).rev() {
            let request = self.request(Method::POST, path);
            let request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
            let patience = self.settings.first_byte_timeout;
            let failure = match tokio::time::timeout(patience, request.send()).await {
                Err(_) => return Err(self.late("its first byte")),
                Ok(Ok(response)) if retries_left > 0 && is_passing(response.status()) => None,
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) if error.is_connect() => Some(self.unreachable(error)),
                Ok(Err(error)) => return Err(self.broken(error)),
            };
            metrics::counter!("bowline_upstream_retries_total").increment(1);
            if let (0, Some(failure)) = (retries_left, failure) {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            pause *= 4;
        }
        Err(Failure::new(
            Code::Unavailable,
            format!("the upstream `{}` is not available", self.name),
        ))
    }

    fn chunks(&self, response: Response) -> Chunks {
        let idle = self.settings.idle_timeout;
        let name = self.name.clone();
        let state = (response, Events::default(), Some(When::Before));
        // `when` is `None` after the end.
        let events = futures_util::stream::unfold(state, move |(mut body, mut events, when)| {
            let name = name.clone();
            async move {
                let when = when?;
                let heard = |data: Bytes| match error_event(&data) {
                    None => (Ok(data), Some(When::Within)),
                    Some(error) => (Err(refusal(&name, None, &error, when)), None),
                };
                loop {
                    match events.next() {
                        Ok(Some(data)) if data == "[DONE]" => return None,
                        Ok(Some(data)) => {
                            let (item, when) = heard(data);
                            return Some((item, (body, events, when)));
                        }
                        Err(_) => {
                            let failure = broken_stream(&name, "sent an event over the size limit");
                            return Some((Err(failure), (body, events, None)));
                        }
                        Ok(None) => {}
                    }
                    let failure = match tokio::time::timeout(idle, body.chunk()).await {
                        Ok(Ok(Some(bytes))) => {
                            events.feed(&bytes);
                            continue;
                        }
                        // Some servers close the connection without `[DONE]`. The caller decides by
                        // the `finish_reason` whether the answer is complete.
                        Ok(Ok(None)) => match events.rest() {
                            Ok(Some(data)) if data == "[DONE]" => return None,
                            Ok(Some(data)) => {
                                let (item, when) = heard(data);
                                return Some((item, (body, events, when)));
                            }
                            _ => broken_stream(&name, "broke off before its answer was complete"),
                        },
                        Ok(Err(error)) if !error.is_timeout() => {
                            broken_stream(&name, "broke off in the middle")
                        }
                        Ok(Err(_)) | Err(_) => Failure::new(
                            Code::UpstreamTimeout,
                            format!(
                                "the upstream `{name}` stopped sending in the middle of its answer"
                            ),
                        ),
                    };
                    return Some((Err(failure), (body, events, None)));
                }
            }
        });
        Box::pin(events)
    }

    async fn whole(&self, response: Response) -> Result<Reply, Failure> {
        let body = self.bounded(response, self.largest).await?;
        // Some servers answer 200 and then say that they failed.
        if let Some(error) = error_event(&body) {
            return Err(refusal(&self.name, None, &error, When::Before));
        }
        String::from_utf8(body)
            .map(Reply::Whole)
            .map_err(|_| broken_stream(&self.name, "answered with something that is not text"))
    }

    async fn bounded(&self, mut response: Response, most: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.broken(error))? {
            if body.len() + piece.len() > most {
                return Err(broken_stream(&self.name, "sent an answer over the size limit"));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// The server refused.
    async fn refused(&self, response: Response) -> Failure {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = self.bounded(response, self.largest).await.unwrap_or_default();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let mut failure = refusal(&self.name, Some(status), &body, When::Before);
        add_wait(&mut failure, &headers, Timestamp::now());
        failure
    }

    pub(super) fn late(&self, what: &str) -> Failure {
        Failure::new(
            Code::UpstreamTimeout,
            format!("the upstream `{}` took too long to send {what}", self.name),
        )
    }

    pub(super) fn unreachable(&self, error: reqwest::Error) -> Failure {
        Failure::new(
            Code::Unavailable,
            format!("the upstream `{}` cannot be reached: {}", self.name, outbound::reason(error)),
        )
    }

    pub(super) fn broken(&self, error: reqwest::Error) -> Failure {
        let code = if error.is_timeout() { Code::UpstreamTimeout } else { Code::Upstream };
        Failure::new(
            code,
            format!("the upstream `{}` broke off: {}", self.name, outbound::reason(error)),
        )
    }
}

fn broken_stream(name: &str, what: &str) -> Failure {
    Failure::new(Code::Upstream, format!("the upstream `{name}` {what}"))
}

fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}

fn key(settings: &config::Upstream) -> Result<Option<HeaderValue>, String> {
    let key = match (&settings.key_env, &settings.key_file) {
        (Some(name), _) => std::env::var(name)
            .map_err(|_| format!("the environment variable {name} of `key_env` is not set"))?,
        (None, Some(path)) => std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read key_file {}: {error}", path.display()))?,
        (None, None) => return Ok(None),
    };
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
        .map_err(|_| "the key has characters that no header can carry".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_url_or_missing_key_is_explained() {
        let build = |settings: config::Upstream| {
            Upstream::new("u", &settings, &Limits::default()).unwrap_err()
        };
        assert!(build(config::Upstream::default()).contains("not a URL"));
        let ftp = config::Upstream { url: "ftp://x".into(), ..Default::default() };
        assert!(build(ftp).contains("http://"));
        let key = config::Upstream {
            url: "http://x/v1".into(),
            key_env: Some("BOWLINE_TEST_NO_SUCH_VARIABLE".into()),
            ..Default::default()
        };
        assert!(build(key).contains("BOWLINE_TEST_NO_SUCH_VARIABLE"));
    }
}
