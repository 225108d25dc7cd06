//! HTTP client of the gateway for the other commands, with readable errors.
//!
//! Invariants
//! - A request that must not be executed twice is a [`IdempotentRequest`]: it carries an idempotency key, and is
//!   retried only with the same key and the same body, so the gateway executes it once.
//! - An error never claims that nothing happened if the gateway may have received the request.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_net::loopback::is_loopback_url;
use bowline_net::outbound;
use bowline_sbp::api::ErrorBody;
use bowline_sbp::id::SessionId;
use bytes::Bytes;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

use crate::cli::GatewayArgs;
use crate::failure::{Failure, FailureKind};
use crate::secrets::API_KEY;
use crate::terminal::{self, one_line, printable};
use crate::via::Via;
use crate::{local, settings};

/// A client of one gateway.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) url: Url,
    /// The way to a gateway that is reached through a relay.
    via: Option<Arc<Via>>,
    key: Option<String>,
    http: reqwest::Client,
    /// The timeout of a [`IdempotentRequest`].
    patience: Duration,
}

/// A POST request with an idempotency key: executed once, even if it is retried.
#[derive(Debug)]
pub(crate) struct IdempotentRequest<'a> {
    pub(crate) path: &'a str,
    pub(crate) body: String,
    /// The idempotency key, the same for a retry.
    pub(crate) key: String,
    /// Its name in error messages: `the fork`.
    pub(crate) name: &'a str,
    /// The hint if neither the request nor its retry was answered.
    pub(crate) look: String,
}

/// A request that failed or was refused.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(crate) what: String,
    hint: Option<String>,
    kind: FailureKind,
    /// Whether the gateway answered with an error. Otherwise it did not answer, and the next
    /// request will probably fail, too.
    pub(crate) refused: bool,
}

/// Refuses a URL to which a key or token would be sent in the clear.
pub(crate) fn in_private(url: &Url) -> Result<(), Failure> {
    if url.scheme() != "http" || outbound::is_private(url) {
        return Ok(());
    }
    let what = format!(
        "{} is on another machine, and without TLS keys and conversations would be readable on the way",
        url.host_str().unwrap_or_default()
    );
    Err(Failure::new(what).hint(outbound::PLAIN_HINT).kind(FailureKind::Usage))
}

/// A new, unique idempotency key.
pub(crate) fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}

impl Api {
    /// Finds the gateway: through a relay by --via, by --url, by the data folder, or at the default
    /// address.
    pub(crate) async fn new(args: &GatewayArgs) -> Result<Self, Failure> {
        match &args.via {
            Some(name) => Self::through(Via::open(name, args.data.as_deref()).await?, args),
            None => Self::direct(args),
        }
    }

    /// The gateway at the other end of a tunnel. What the device may do there, its pairing says; a key
    /// that is given counts instead.
    fn through(via: Via, args: &GatewayArgs) -> Result<Self, Failure> {
        let url = Url::parse("http://localhost").expect("a literal URL parses");
        let key = API_KEY.secret(args.key.as_deref(), args.key_file.as_deref())?;
        let http = outbound::client(&url)
            .unix_socket(via.socket())
            .timeout(Duration::from_secs(60))
            .build()
            .map_err(Failure::new)?;
        Ok(Self { url, via: Some(Arc::new(via)), key, http, patience: PATIENCE })
    }

    fn direct(args: &GatewayArgs) -> Result<Self, Failure> {
        let folder = settings::data_folder(args.data.as_deref());
        let announced: Option<Url> =
            local::running(&folder).and_then(|running| running.url.parse().ok());
        let port = announced.as_ref().and_then(Url::port_or_known_default);
        let usual = || Url::parse("http://127.0.0.1:8080").expect("a literal URL parses");
        let url = args.url.clone().or(announced).unwrap_or_else(usual);
        // Also without a key: what is asked for and answered holds tokens of sessions.
        in_private(&url)?;
        // The data folder's key is sent only to where the folder's gateway said that it listens:
        // another port of this machine may lead elsewhere.
        let here = is_loopback_url(&url) && url.port_or_known_default() == port;
        let given = API_KEY.secret(args.key.as_deref(), args.key_file.as_deref())?;
        let key = given.or_else(|| here.then(|| local::key(&folder)).flatten());
        let http = outbound::client(&url)
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(60))
            .build()
            .map_err(Failure::new)?;
        Ok(Self { url, via: None, key, http, patience: PATIENCE })
    }

    /// The gateway at that address, with that key and no other.
    pub(crate) fn at(url: &Url, key: Option<String>) -> Result<Self, Failure> {
        in_private(url)?;
        let http = outbound::client(url)
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(60))
            .build()
            .map_err(Failure::new)?;
        Ok(Self { url: url.clone(), via: None, key, http, patience: PATIENCE })
    }

    /// The gateway that runs in this data folder, with the folder's key.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self, Failure> {
        let data = Some(folder.to_owned());
        Self::direct(&GatewayArgs { url: None, via: None, key: None, key_file: None, data })
    }

    /// The way through a relay, if it is one.
    pub(crate) fn via(&self) -> Option<&Arc<Via>> {
        self.via.as_ref()
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Sends a request and returns the JSON of a successful response.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let text = self.send(method, path, body.map(|body| body.to_string())).await?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Sends a body unchanged and returns the body of a successful response as text. Not parsed, so
    /// that the non-standard JSON of Python (`NaN`) passes.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<String, Failure> {
        let request = self.request(method, path, body.map(Bytes::from))?;
        let (status, text) = self.exchange(request).await.map_err(|error| self.unheard(&error))?;
        Ok(good(status, text)?)
    }

    /// Sends a request with its idempotency key. Retries it once if the gateway may have received
    /// it but did not answer.
    pub(crate) async fn once(&self, deed: IdempotentRequest<'_>) -> Result<String, RequestFailure> {
        let body = Bytes::from(deed.body);
        let ask = || {
            let request = self.request(Method::POST, deed.path, Some(body.clone()))?;
            Ok::<_, RequestFailure>(
                request.header("idempotency-key", &deed.key).timeout(self.patience),
            )
        };
        let (status, text) = match self.exchange(ask()?).await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() || error.is_builder() => {
                return Err(self.unheard(&error));
            }
            Err(_) => {
                // Leaves a restarting gateway time to come up.
                tokio::time::sleep(PAUSE).await;
                self.exchange(ask()?).await.map_err(|_| RequestFailure {
                    what: format!(
                        "{} may have happened: the gateway at {} did not answer the request or its \
                         retry",
                        deed.name,
                        self.place()
                    ),
                    hint: Some(deed.look),
                    kind: FailureKind::Unreachable,
                    refused: false,
                })?
            }
        };
        good(status, text)
    }

    /// The status of the response to a GET request, whatever it is.
    pub(crate) async fn status(&self, path: &str) -> Result<u16, Failure> {
        let request = self.request(Method::GET, path, None)?;
        let (status, _) = self.exchange(request).await.map_err(|error| self.unheard(&error))?;
        Ok(status.as_u16())
    }

    /// Sends a request and reads the whole response.
    async fn exchange(
        &self,
        request: RequestBuilder,
    ) -> Result<(StatusCode, String), reqwest::Error> {
        terminal::waiting(format_args!("waiting for {}", self.place()), exchange(request)).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<RequestBuilder, RequestFailure> {
        let url =
            self.url.join(path).map_err(|error| RequestFailure::refused(error.to_string()))?;
        let mut request = self.http.request(method, url);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        Ok(request)
    }

    /// The id of the named session: by its id, the beginning of its id, its title or the beginning
    /// of its title; `last` is the newest. A whole id is not looked up: whoever has only a session
    /// token may not search among the others.
    pub(crate) async fn session(&self, named: &str) -> Result<String, Failure> {
        if named.parse::<SessionId>().is_ok() {
            return Ok(named.to_owned());
        }
        if named == "last" {
            let newest = self.get("/v1/sessions?limit=1").await?;
            let id = newest["sessions"][0]["session_id"].as_str().map(str::to_owned);
            return id.ok_or_else(|| {
                Failure::new("there are no sessions")
                    .hint("start one with `bowline chat`")
                    .kind(FailureKind::NotFound)
            });
        }
        let found = self.get(&format!("/v1/sessions?named={}", encoded(named))).await?;
        let found = found["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
        match found {
            [] => {
                let what = format!("no session is called `{}`", one_line(named));
                let hint = "name it by its id, the first 4 or more characters of its id, its \
                            title, or `last`; `bowline sessions list` shows them";
                Err(Failure::new(what).hint(hint).kind(FailureKind::NotFound))
            }
            [one] => Ok(one["session_id"].as_str().unwrap_or_default().to_owned()),
            several => Err(ambiguous(named, several)),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::GET, path, None).await
    }

    /// Where the gateway is, for people.
    fn place(&self) -> String {
        match &self.via {
            Some(via) => format!("`{}`", via.name()),
            None => self.url.to_string(),
        }
    }

    fn unheard(&self, error: &reqwest::Error) -> RequestFailure {
        let url = self.place();
        let mut kind = FailureKind::Unreachable;
        let (what, hint) = if error.is_builder() {
            kind = FailureKind::Usage;
            let what = format!("cannot make a request to the gateway at {url}: {error}");
            (what, "check --url and the key")
        } else if let Some(why) = outbound::untrusted(error) {
            (format!("the certificate of {url} is not trusted: {why}"), outbound::TRUST_HINT)
        } else if outbound::is_closed_port(error) {
            let hint = "start a gateway with `bowline up`, or name another with --url";
            (format!("nothing listens at {url}"), hint)
        } else if error.is_connect() {
            let why = match error.is_timeout() {
                true => "it does not answer",
                false => "nothing answers there",
            };
            let hint = "start one with `bowline up`, or name another with --url";
            (format!("no gateway at {url}: {why}"), hint)
        } else {
            let why = match error.is_timeout() {
                true => "does not answer in time",
                false => "closed the connection without an answer",
            };
            (format!("the gateway at {url} {why}"), "check it with `bowline doctor`")
        };
        RequestFailure { what, hint: Some(hint.into()), kind, refused: false }
    }
}

impl RequestFailure {
    /// The gateway answered with an error, or with something unusable.
    pub(crate) fn refused(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, kind: FailureKind::Failed, refused: true }
    }

    fn kind(mut self, kind: FailureKind) -> Self {
        self.kind = kind;
        self
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<RequestFailure> for Failure {
    fn from(trouble: RequestFailure) -> Self {
        let failure = Failure::new(trouble.what).kind(trouble.kind);
        match trouble.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// How many sessions the error for an ambiguous name lists.
const CANDIDATES: usize = 10;

fn ambiguous(named: &str, several: &[Value]) -> Failure {
    let mut what = format!("`{}` names {} sessions:", one_line(named), several.len());
    for session in several.iter().take(CANDIDATES) {
        let title = session["title"].as_str().map_or("(no title)".into(), one_line);
        what += &format!("\n  {}  {title}", session["session_id"].as_str().unwrap_or("-"));
    }
    if several.len() > CANDIDATES {
        what += "\n  …";
    }
    Failure::new(what).hint("name one of them by more of its id or title").kind(FailureKind::Usage)
}

/// Text as part of a URL's query.
pub(crate) fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Sends a request and reads the whole response.
async fn exchange(request: RequestBuilder) -> Result<(StatusCode, String), reqwest::Error> {
    let response = request.send().await?;
    Ok((response.status(), response.text().await?))
}

fn good(status: StatusCode, text: String) -> Result<String, RequestFailure> {
    if status.is_success() { Ok(text) } else { Err(refused(status, &text)) }
}

fn refused(status: StatusCode, text: &str) -> RequestFailure {
    let kind = FailureKind::of_status(status.as_u16());
    let Ok(body) = serde_json::from_str::<ErrorBody>(text) else {
        return RequestFailure::refused(format!("the gateway answered {status}")).kind(kind);
    };
    // The message may contain text from others: no control characters to the terminal.
    let failure = RequestFailure::refused(printable(&body.error.message)).kind(kind);
    let again = "ask the sender to export again";
    match body.error.code.as_str() {
        "SBP_TOKEN_CONSUMED" => return failure.hint(format!("{again}, or import with --fork")),
        "SBP_TOKEN_EXPIRED" | "SBP_TOKEN_INTEGRITY" => return failure.hint(again),
        "SBP_TOKEN_INVALID" => {
            return failure
                .hint("a token is valid only on the gateway that issued it: check --url");
        }
        _ => {}
    }
    match (status, body.error.detail) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            failure.hint("set BOWLINE_API_KEY, or name a file that holds a key with --key-file")
        }
        (_, Some(detail)) => failure.hint(printable(&detail)),
        (StatusCode::NOT_FOUND, None) => {
            failure.hint("`bowline sessions list` lists your sessions")
        }
        (_, None) => failure,
    }
}

/// Long enough to send the largest session over a slow connection.
const PATIENCE: Duration = Duration::from_secs(600);
/// The wait before the retry.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    /// What the test gateway does with one connection after it has read the request.
    enum Then {
        /// Keeps it open and sends nothing.
        Silence,
        Close,
        Answer(&'static str),
    }

    /// A test gateway that treats each connection as scripted, and returns the requests received.
    async fn gateway(script: Vec<Then>) -> (Api, JoinHandle<(Vec<String>, Vec<TcpStream>)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let api = Api {
            url,
            via: None,
            key: None,
            http: reqwest::Client::new(),
            patience: Duration::from_millis(200),
        };
        let heard = tokio::spawn(async move {
            let (mut heard, mut open) = (Vec::new(), Vec::new());
            for then in script {
                let (mut stream, _) = listener.accept().await.unwrap();
                heard.push(request(&mut stream).await);
                match then {
                    Then::Silence => open.push(stream),
                    Then::Close => drop(stream),
                    Then::Answer(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                }
            }
            // Returned so that silent connections stay open until the test ends.
            (heard, open)
        });
        (api, heard)
    }

    async fn request(stream: &mut TcpStream) -> String {
        let mut text = String::new();
        while !text.ends_with("{}") {
            let mut piece = [0; 1024];
            let read = stream.read(&mut piece).await.unwrap();
            assert_ne!(read, 0, "{text}");
            text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
        text
    }

    fn deed() -> IdempotentRequest<'static> {
        IdempotentRequest {
            path: "/v1/do",
            body: "{}".into(),
            key: "only-once".into(),
            name: "the deed",
            look: "look for it".into(),
        }
    }

    const MADE: &str = "HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nmade";

    #[tokio::test]
    async fn a_deed_is_asked_for_again_under_the_same_key_if_no_answer_comes() {
        for first in [Then::Close, Then::Silence, Then::Answer("HTTP/1.1 201 Cre")] {
            let (api, heard) = gateway(vec![first, Then::Answer(MADE)]).await;
            assert_eq!(api.once(deed()).await.unwrap(), "made");
            let (heard, _) = heard.await.unwrap();
            assert!(heard[0].contains("idempotency-key: only-once\r\n"), "{}", heard[0]);
            assert_eq!(heard[0], heard[1]);
        }
    }

    #[tokio::test]
    async fn a_deed_that_nobody_confirmed_may_have_happened() {
        let (api, heard) = gateway(vec![Then::Silence, Then::Close]).await;
        let trouble = api.once(deed()).await.unwrap_err();
        let url = &api.url;
        let what = format!(
            "the deed may have happened: the gateway at {url} did not answer the request or its \
             retry"
        );
        assert_eq!((trouble.what, trouble.hint.as_deref()), (what, Some("look for it")));
        assert!(!trouble.refused);
        assert_eq!(heard.await.unwrap().0.len(), 2);
    }

    #[tokio::test]
    async fn a_refused_deed_is_not_asked_for_again() {
        let no = "HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n";
        let (api, heard) = gateway(vec![Then::Answer(no)]).await;
        let trouble = api.once(deed()).await.unwrap_err();
        assert_eq!(trouble.what, "the gateway answered 409 Conflict");
        assert!(trouble.refused);
        assert_eq!(heard.await.unwrap().0.len(), 1);
    }

    #[tokio::test]
    async fn a_deed_that_reached_nobody_did_not_happen() {
        let (mut api, _) = gateway(vec![]).await;
        api.url = "http://127.0.0.1:1".parse().unwrap();
        let trouble = api.once(deed()).await.unwrap_err();
        assert_eq!(trouble.what, "nothing listens at http://127.0.0.1:1/");
        assert_eq!((trouble.refused, trouble.kind), (false, FailureKind::Unreachable));
    }

    #[tokio::test]
    async fn a_gateway_that_takes_long_is_not_said_to_be_missing() {
        let (mut api, _heard) = gateway(vec![Then::Silence]).await;
        api.http = reqwest::Client::builder().timeout(api.patience).build().unwrap();
        let request = api.request(Method::POST, "/", Some("{}".into())).unwrap();
        let trouble = api.unheard(&exchange(request).await.unwrap_err());
        assert_eq!(trouble.what, format!("the gateway at {} does not answer in time", api.url));
    }

    #[test]
    fn a_response_has_the_kind_of_its_status() {
        let body = r#"{"error":{"message":"no","code":"X","type":"t"}}"#;
        for (status, kind) in [
            (401, FailureKind::Refused),
            (403, FailureKind::Refused),
            (404, FailureKind::NotFound),
            (409, FailureKind::Refused),
            (410, FailureKind::Refused),
            (422, FailureKind::Refused),
            (429, FailureKind::Refused),
            (500, FailureKind::Failed),
            (503, FailureKind::Failed),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            for text in [body, "<html>"] {
                assert_eq!(refused(status, text).kind, kind, "{status}");
            }
        }
    }

    #[test]
    fn what_a_gateway_quotes_cannot_play_with_the_terminal() {
        let text =
            r#"{"error":{"message":"no \u001b[2J","code":"X","type":"t","detail":"\u0007d"}}"#;
        let trouble = refused(StatusCode::BAD_REQUEST, text);
        assert_eq!((trouble.what.as_str(), trouble.hint.as_deref()), ("no [2J", Some("d")));
    }
}
