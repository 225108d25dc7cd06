//! HTTP requests to peers: HTTP/2 where both can, HTTP/1.1 otherwise.
//!
//! Two pools of connections, one for peers of the configuration and one for strangers: see
//! [`crate::dialer`]. An answer is taken only if it is one: no redirect, nothing compressed, no more
//! than its limits.

use std::sync::Arc;
use std::time::Duration;

use bowline_net::outbound;
use bowline_net::trust::NoTlsConfig;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName,
    HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use crate::body::PeerBody;
use crate::dialer::{DialFault, Dialer, TlsSettings};
use crate::fault::PeerFault;
use crate::limits::{Lateness, ReadLimits};
use crate::lookup::{Lookup, LookupError};
use crate::target::{Reach, Target};

/// The largest head of an answer, in bytes.
const LARGEST_HEAD: usize = 16 << 10;
/// The longest that a peer has us wait that is asked too often.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(30);
/// Connections kept for one peer.
const IDLE_CONNECTIONS: usize = 4;
const AGENT: &str = concat!("bowline/", env!("CARGO_PKG_VERSION"));

type Pool = Client<Dialer, Full<Bytes>>;

/// Asks peers.
#[derive(Debug, Clone)]
pub struct PeerClient {
    named: Pool,
    strangers: Pool,
}

/// A request to a peer.
#[derive(Debug, Clone)]
pub struct PeerRequest {
    pub method: Method,
    /// Appended to the peer's base URL; begins with `/`.
    pub path: String,
    pub headers: HeaderMap,
    /// JSON.
    pub body: Option<Bytes>,
}

impl PeerRequest {
    pub fn get(path: impl Into<String>) -> Self {
        let (path, headers) = (path.into(), HeaderMap::new());
        Self { method: Method::GET, path, headers, body: None }
    }

    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: Some(body.into()), ..Self::get(path) }
    }

    /// With a federation token.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.secret(AUTHORIZATION, &format!("Bearer {token}"))
    }

    /// With a header that is never logged.
    #[must_use]
    pub fn secret(mut self, name: HeaderName, value: &str) -> Self {
        // Tokens and ids are ASCII; of anything else the header is left out, and the peer refuses.
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        self
    }
}

/// The head of an answer, and its body to be read.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: PeerBody,
}

impl Answer {
    /// The answer, if its status says that it is what was asked for.
    pub fn ok(self) -> Result<Self, PeerFault> {
        match self.status {
            status if status.is_success() => Ok(self),
            StatusCode::NOT_FOUND => Err(PeerFault::NotFound),
            StatusCode::TOO_MANY_REQUESTS => Err(self.limited()),
            status => Err(PeerFault::Status(status.as_u16())),
        }
    }

    /// It wants to be asked again later.
    pub(crate) fn limited(&self) -> PeerFault {
        let said = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let seconds = said.and_then(|text| text.trim().parse().ok()).unwrap_or(1);
        PeerFault::Limited { wait: Duration::from_secs(seconds).min(LONGEST_WAIT) }
    }
}

impl PeerClient {
    pub fn new(lookup: Arc<dyn Lookup>) -> Result<Self, NoTlsConfig> {
        let tls = TlsSettings::load()?;
        let pool = |reach| {
            let mut pool = Client::builder(TokioExecutor::new());
            pool.pool_timer(TokioTimer::new())
                .timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(IDLE_CONNECTIONS)
                .http1_max_buf_size(LARGEST_HEAD)
                .http2_max_header_list_size(LARGEST_HEAD as u32);
            pool.build(Dialer::new(reach, Arc::clone(&lookup), tls.clone()))
        };
        Ok(Self { named: pool(Reach::Static), strangers: pool(Reach::Public) })
    }

    /// Sends a request and waits for the head of the answer.
    pub async fn ask(
        &self,
        target: &Target,
        request: PeerRequest,
        limits: ReadLimits,
    ) -> Result<Answer, PeerFault> {
        // Rebuilt from the parsed URL, so that the host that was checked is the host that is asked.
        let base = target.check()?;
        let url = format!("{}{}", base.as_str().trim_end_matches('/'), request.path);
        let request = built(&url, request).ok_or(PeerFault::Unreadable)?;
        let pool = match target.reach {
            Reach::Static => &self.named,
            Reach::Public => &self.strangers,
        };
        let answer = timeout(limits.head, pool.request(request)).await;
        let answer = answer.map_err(|_| PeerFault::Late(Lateness::Head))?.map_err(unreached)?;
        let (head, body) = answer.into_parts();
        if head.status.is_redirection() {
            return Err(PeerFault::Redirect);
        }
        let encodings = head.headers.get_all(CONTENT_ENCODING);
        if encodings.iter().any(|encoding| encoding != "identity") {
            return Err(PeerFault::Encoded);
        }
        let body = PeerBody::new(body, limits)?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

fn built(url: &str, request: PeerRequest) -> Option<Request<Full<Bytes>>> {
    let has_body = request.body.is_some();
    let mut built = Request::builder().method(request.method).uri(url);
    let headers = built.headers_mut()?;
    headers.extend(request.headers);
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if has_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    built.body(Full::new(request.body.unwrap_or_default())).ok()
}

/// Why there was no answer.
fn unreached(error: legacy::Error) -> PeerFault {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    let mut innermost = String::new();
    while let Some(error) = cause {
        match error.downcast_ref() {
            Some(DialFault::Lookup(LookupError::NotPublic(why))) => {
                return PeerFault::NotPublic(LookupError::NotPublic(*why).to_string());
            }
            Some(dial) => innermost = dial.to_string(),
            None => innermost = error.to_string(),
        }
        cause = error.source();
    }
    match outbound::untrusted(&error) {
        Some(why) => PeerFault::Unreachable(format!("its certificate is not trusted: {why}")),
        None => PeerFault::Unreachable(innermost),
    }
}
