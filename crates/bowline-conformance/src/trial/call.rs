//! HTTP calls.

use bowline_net::outbound;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::time::sleep;

use super::{Session, Trial};
use crate::came::Came;
use crate::retry::{LIMITED, TRIES, retry_after};
use crate::verdict::{Ended, Stop};
use crate::wire::Wire;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum As<'a> {
    /// With the server's key, if there is one.
    Caller,
    /// With the session's token, and the key if there is one.
    Session(&'a Session),
    /// With the session's token alone.
    TokenAlone(&'a str),
}

/// An answer that was read whole.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Came,
}

impl Answer {
    /// Fails unless the status is one of these.
    pub(crate) fn is(self, expected: &[u16]) -> Result<Self, Stop> {
        if expected.contains(&self.status) {
            return Ok(self);
        }
        let list: Vec<_> = expected.iter().map(u16::to_string).collect();
        Err(self.body.wrong(format!("status {}", list.join(" or "))))
    }

    /// Fails with words of its own if the server has no such address: the protocol does not require this part.
    pub(crate) fn offered(self, part: &str) -> Result<Self, Stop> {
        match self.status {
            404 | 405 | 501 => Err(self.body.not_offered(format!("{part}, which are optional"))),
            _ => Ok(self),
        }
    }

    /// Fails unless it is the error.
    pub(crate) fn is_error(&self, status: u16, code: &str) -> Ended {
        let is = self.status == status && self.body.json["error"]["code"] == code;
        self.body.holds(is, &format!("status {status} with error.code = {code:?}"))
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The connection broke, or never came up.
    Cut(reqwest::Error),
    /// The server says that there were too many requests, however long it is left alone.
    Limited,
}

impl From<reqwest::Error> for Lost {
    fn from(error: reqwest::Error) -> Self {
        Lost::Cut(error)
    }
}

impl Wire {
    /// A request with its credentials.
    pub(crate) fn request(&self, method: Method, path: &str, by: As<'_>) -> RequestBuilder {
        let request = self.target.http.request(method, self.target.at(path));
        let request = request.timeout(self.target.request_patience());
        let request = match (self.target.key(), by) {
            (Some(key), As::Caller | As::Session(_)) => request.bearer_auth(key),
            _ => request,
        };
        match by {
            As::Caller => request,
            As::Session(session) => request.header(SESSION_TOKEN, &session.token),
            As::TokenAlone(token) => request.header(SESSION_TOKEN, token),
        }
    }

    /// Sends a request and reads its answer. `sent` is how a report shows it.
    pub(crate) async fn exchange(
        &self,
        request: RequestBuilder,
        sent: String,
    ) -> Result<Answer, Stop> {
        self.tried(request, &sent).await.map_err(|lost| self.no_answer(&sent, lost))
    }

    /// The same; nothing, if the connection breaks before the answer has come to its end.
    pub(crate) async fn exchange_or_cut(
        &self,
        request: RequestBuilder,
        sent: String,
    ) -> Result<Option<Answer>, Stop> {
        match self.tried(request, &sent).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Lost::Cut(error)) if !error.is_timeout() && !error.is_connect() => {
                self.transcript.came(&format!("cut: {}", outbound::reason(error)));
                Ok(None)
            }
            Err(lost) => Err(self.no_answer(&sent, lost)),
        }
    }

    /// Sends a request, again while the server says that there were too many: a limit on requests is not what is
    /// checked. The times are bounded.
    pub(crate) async fn response(&self, request: RequestBuilder) -> Result<Response, Lost> {
        let mut next = Some(request);
        for _ in 0..TRIES {
            let Some(request) = next else { break };
            next = request.try_clone();
            let answer = request.send().await?;
            if answer.status() != StatusCode::TOO_MANY_REQUESTS {
                return Ok(answer);
            }
            self.transcript.came("429: later, then");
            sleep(retry_after(answer.headers())).await;
        }
        Err(Lost::Limited)
    }

    async fn tried(&self, request: RequestBuilder, sent: &str) -> Result<Answer, Lost> {
        let answer = self.response(request).await?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        if let Some(token) = headers.get(SESSION_TOKEN).and_then(|token| token.to_str().ok()) {
            self.target.mask.learn(token);
        }
        let text = answer.text().await?;
        let (json, shown) = self.came(&status.to_string(), &text);
        Ok(Answer { status, headers, text, body: Came { sent: sent.to_owned(), json, shown } })
    }

    fn no_answer(&self, sent: &str, lost: Lost) -> Stop {
        let error = match lost {
            Lost::Limited => return Stop::unable(LIMITED),
            Lost::Cut(error) => error,
        };
        let why = format!("no answer: {}", outbound::reason(error));
        self.transcript.came(&why);
        Stop::broken(sent, "an answer", why)
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        by: As<'_>,
        body: Option<Value>,
    ) -> Result<Answer, Stop> {
        let sent = self.sent(&format!("{method} {path}{}", shown(by)), body.as_ref());
        let mut request = self.request(method, path, by);
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.exchange(request, sent).await
    }
}

impl Trial {
    pub(crate) async fn get(&self, path: &str, by: As<'_>) -> Result<Answer, Stop> {
        self.wire.call(Method::GET, path, by, None).await
    }

    pub(crate) async fn post(&self, path: &str, by: As<'_>, body: Value) -> Result<Answer, Stop> {
        self.wire.call(Method::POST, path, by, Some(body)).await
    }
}

/// Says in a report who asked.
fn shown(by: As<'_>) -> &'static str {
    match by {
        As::Caller => "",
        As::Session(_) | As::TokenAlone(_) => " (X-Session-Token)",
    }
}

pub(crate) const SESSION_TOKEN: &str = "x-session-token";
