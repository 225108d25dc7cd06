//! One OpenAI-compatible server: calls with timeouts, size limits and retries.
//!
//! Retried only before the first byte of an answer: a model's answer is not repeatable.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowline_net::outbound;
use bowline_sbp::error::{Code, Failure};
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::value::RawValue;

use super::client::client;
use super::sse::Events;
use super::{Call, Chunks, Reply};
use crate::config::{self, StreamMode};
use crate::limits::Limits;

/// The pause between two warnings that an upstream does not answer.
const WARN_EVERY: Duration = Duration::from_secs(30);
/// How long the list of models may take. The start of a gateway may wait for it.
const LIST_PATIENCE: Duration = Duration::from_secs(5);

/// A configured server.
pub struct Upstream {
    name: String,
    /// May hold a password.
    base: Url,
    client: Client,
    key: Option<HeaderValue>,
    settings: config::Upstream,
    largest: usize,
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
            base: url,
            key: key(settings)?,
            settings: settings.clone(),
            largest: limits.answer,
            warned: Mutex::default(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn stream_mode(&self) -> StreamMode {
        self.settings.stream
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
        let listed = async {
            let asked = self.request(Method::GET, "/models").send().await;
            let response = asked.map_err(|error| self.unreachable(error))?;
            if !response.status().is_success() {
                return Err(Box::pin(self.refused(response)).await);
            }
            self.bounded(response).await
        };
        let body = tokio::time::timeout(LIST_PATIENCE, listed).await;
        let body = body.unwrap_or_else(|_| Err(self.late("the list of its models")))?;
        let unreadable = || broken_stream(&self.name, "lists its models in an unknown form");
        let list: serde_json::Value = serde_json::from_slice(&body).map_err(|_| unreadable())?;
        let models = list["data"].as_array().ok_or_else(unreadable)?;
        Ok(models.iter().filter_map(|model| Some(model["id"].as_str()?.to_owned())).collect())
    }

    pub(super) async fn call(&self, call: Call) -> Result<Reply, Failure> {
        let body = Bytes::from(body(&call));
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
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        let request = self.client.request(method, url);
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
    fn warn(&self, failure: &Failure) {
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
        let state = (response, Events::default(), false);
        let events = futures_util::stream::unfold(state, move |(mut body, mut events, ended)| {
            let name = name.clone();
            async move {
                if ended {
                    return None;
                }
                loop {
                    match events.next() {
                        Ok(Some(data)) if data == "[DONE]" => return None,
                        Ok(Some(data)) => {
                            let (item, ended) = match error_event(&data) {
                                None => (Ok(data), false),
                                Some(said) => (Err(failed_inside(&name, &said)), true),
                            };
                            return Some((item, (body, events, ended)));
                        }
                        Err(_) => {
                            let failure = broken_stream(&name, "sent an event over the size limit");
                            return Some((Err(failure), (body, events, true)));
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
                            Ok(Some(data)) if error_event(&data).is_none() => {
                                return Some((Ok(data), (body, events, false)));
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
                    return Some((Err(failure), (body, events, true)));
                }
            }
        });
        Box::pin(events)
    }

    async fn whole(&self, response: Response) -> Result<Reply, Failure> {
        let body = self.bounded(response).await?;
        String::from_utf8(body)
            .map(Reply::Whole)
            .map_err(|_| broken_stream(&self.name, "answered with something that is not text"))
    }

    async fn bounded(&self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.broken(error))? {
            if body.len() + piece.len() > self.largest {
                return Err(broken_stream(&self.name, "sent an answer over the size limit"));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// The server refused. The status says whether the caller, the configuration or the server is
    /// at fault.
    async fn refused(&self, response: Response) -> Failure {
        let status = response.status();
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let said = self.bounded(response).await.ok().and_then(|body| error_text(&body));
        let said = said.map(|text| format!(": {text}")).unwrap_or_default();
        let name = &self.name;
        let (code, message) = match status.as_u16() {
            400 | 404 | 413 | 415 | 422 => {
                (Code::InvalidRequest, format!("the upstream `{name}` refused the request{said}"))
            }
            401 | 403 => (
                Code::Upstream,
                format!("the upstream `{name}` refused our key; check its key_env or key_file"),
            ),
            429 => (Code::RateLimited, format!("the upstream `{name}` is rate limiting{said}")),
            503 => (Code::Unavailable, format!("the upstream `{name}` is not available{said}")),
            504 => (Code::UpstreamTimeout, format!("the upstream `{name}` timed out{said}")),
            status => (Code::Upstream, format!("the upstream `{name}` answered {status}{said}")),
        };
        Failure { code, message, retry_after }
    }

    fn late(&self, what: &str) -> Failure {
        Failure::new(
            Code::UpstreamTimeout,
            format!("the upstream `{}` took too long to send {what}", self.name),
        )
    }

    fn unreachable(&self, error: reqwest::Error) -> Failure {
        Failure::new(
            Code::Unavailable,
            format!("the upstream `{}` cannot be reached: {}", self.name, outbound::reason(error)),
        )
    }

    fn broken(&self, error: reqwest::Error) -> Failure {
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

fn failed_inside(name: &str, said: &str) -> Failure {
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    broken_stream(name, &format!("failed in the middle of its answer{said}"))
}

/// The message of an error event inside a stream: `{"error": …}` instead of a chunk.
fn error_event(data: &[u8]) -> Option<String> {
    // A cheap check first: most chunks have no such field.
    if !std::str::from_utf8(data).is_ok_and(|text| text.contains("\"error\"")) {
        return None;
    }
    let event: serde_json::Value = serde_json::from_slice(data).ok()?;
    let error = event.get("error").filter(|error| !error.is_null())?;
    // A chunk with choices is not an error event.
    let speaks = event.get("choices").and_then(|choices| choices.as_array());
    if speaks.is_some_and(|choices| !choices.is_empty()) {
        return None;
    }
    Some(error_text(data).or_else(|| error.as_str().map(str::to_owned)).unwrap_or_default())
}

fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}

/// The `error.message` of an OpenAI-shaped error, shortened.
fn error_text(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let text = body.pointer("/error/message").or_else(|| body.get("message"))?.as_str()?;
    Some(text.chars().take(300).collect())
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

/// The request body: the caller's fields unchanged, tools, streaming options, and the conversation.
fn body(call: &Call) -> String {
    let length: usize = call.messages.iter().map(|message| message.as_json().len() + 1).sum();
    let mut body = String::with_capacity(length + 256);
    body.push('{');
    let mut tools = tools_text(&call.tools);
    for (name, value) in &call.params {
        body.push_str(&serde_json::to_string(name).expect("a string always serialises"));
        body.push(':');
        match (name.as_str(), tools.take_if(|_| name == "tools")) {
            ("tools", Some(ours)) => body.push_str(&joined(value.get(), &ours)),
            _ => body.push_str(value.get()),
        }
        body.push(',');
    }
    if let Some(ours) = tools {
        body.push_str(&format!("\"tools\":[{ours}],"));
    }
    if call.stream {
        body.push_str("\"stream\":true,");
        if !call.params.iter().any(|(name, _)| name == "stream_options") {
            body.push_str("\"stream_options\":{\"include_usage\":true},");
        }
    }
    body.push_str("\"messages\":[");
    for (n, message) in call.conversation().enumerate() {
        if n > 0 {
            body.push(',');
        }
        body.push_str(&message.for_servers());
    }
    body.push_str("]}");
    body
}

fn tools_text(tools: &[Box<RawValue>]) -> Option<String> {
    let texts: Vec<_> = tools.iter().map(|tool| tool.get()).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// The caller's tool list with the gateway's appended. Anything but a list is left for the server
/// to refuse.
fn joined(list: &str, ours: &str) -> String {
    let open = list.trim_end().strip_suffix(']').filter(|open| open.starts_with('['));
    match open.map(str::trim_end) {
        None if list == "null" => format!("[{ours}]"),
        None => list.to_owned(),
        Some("[") => format!("[{ours}]"),
        Some(open) => format!("{open},{ours}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::message::Message;

    #[test]
    fn sbp_l1_08_the_callers_fields_go_upstream_as_they_came() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let params = vec![("model".into(), raw("\"m\"")), ("temperature".into(), raw("1.50"))];
        let messages = vec![Message::text("user", "a"), Message::text("assistant", "b")];
        let call = Call::plain("m".into(), params, messages, true);
        assert_eq!(
            body(&call),
            r#"{"model":"m","temperature":1.50,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#
        );
    }

    #[test]
    fn sbp_l1_12_notes_and_tools_of_the_gateway_join_the_callers() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let said = vec![Message::text("system", "s"), Message::text("user", "u")];
        let call = |params| Call {
            notes: vec![Message::text("system", "n")],
            tools: [raw("{\"t\":1}")].into(),
            ..Call::plain("m".into(), params, said.clone(), false)
        };
        let messages = r#""messages":[{"role":"system","content":"s"},{"role":"system","content":"n"},{"role":"user","content":"u"}]"#;
        for (theirs, all) in [
            (r#"[{"x":"tools"}]"#, r#"[{"x":"tools"},{"t":1}]"#),
            ("[ ]", r#"[{"t":1}]"#),
            ("null", r#"[{"t":1}]"#),
            ("7", "7"),
        ] {
            let sent = body(&call(vec![("tools".into(), raw(theirs))]));
            assert_eq!(sent, format!("{{\"tools\":{all},{messages}}}"));
        }
        assert_eq!(body(&call(vec![])), format!("{{\"tools\":[{{\"t\":1}}],{messages}}}"));
    }

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
