//! How a call gets to a model's server, and its answer back: the short way or the general one.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use reqwest::{Client, Url};

use super::near::{self, Near};
use crate::config;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no answer, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// Nobody has heard of the call.
    #[error("cannot connect")]
    Connect(#[source] BoxError),
    #[error("the connection broke")]
    Broken(#[source] BoxError),
    #[error("nothing came for too long")]
    Silent,
}

impl Fault {
    /// The innermost reason, which names no URL.
    pub(super) fn root(&self) -> String {
        let mut cause: &dyn std::error::Error = self;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        cause.to_string()
    }
}

impl From<reqwest::Error> for Fault {
    fn from(error: reqwest::Error) -> Self {
        match () {
            () if error.is_connect() => Self::Connect(Box::new(error)),
            () if error.is_timeout() => Self::Silent,
            () => Self::Broken(Box::new(error)),
        }
    }
}

/// The way to one server. Its address may hold a password.
pub(super) struct Wire {
    base: Url,
    client: Client,
    near: Option<(Near, Parts)>,
}

/// What calls by the short way have in common: put together once, and copied for each.
struct Parts {
    chat: Uri,
    headers: HeaderMap,
}

impl Wire {
    pub(super) fn new(base: Url, settings: &config::Upstream) -> Result<Self, String> {
        let patience = settings.idle_timeout.max(settings.first_byte_timeout);
        let client = Client::builder()
            .connect_timeout(settings.connect_timeout)
            .read_timeout(patience)
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(256)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| error.to_string())?;
        let is_open = base.username().is_empty() && base.password().is_none();
        let is_near = base.scheme() == "http" && is_open && !has_proxy();
        let near = match is_near {
            true => {
                let near = near(&base, settings.connect_timeout, patience)?;
                Some((near, Parts { chat: target(&base, CHAT)?, headers: headers(&base)? }))
            }
            false => None,
        };
        Ok(Self { base, client, near })
    }

    /// Where it is, without credentials.
    pub(super) fn address(&self) -> String {
        let mut url = self.base.clone();
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.to_string()
    }

    /// An address below the base.
    fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&below(&self.base, path));
        url
    }

    /// Asks whether it is there.
    pub(super) async fn get(&self, path: &str, key: Option<&HeaderValue>) -> Result<u16, Fault> {
        let mut request = self.client.get(self.at(path));
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        Ok(request.send().await?.status().as_u16())
    }

    /// Sends a JSON body and waits for the head of the answer.
    pub(super) async fn post(
        &self,
        path: &str,
        body: Bytes,
        key: Option<&HeaderValue>,
    ) -> Result<Response<Flow>, Fault> {
        let Some((near, parts)) = &self.near else {
            let mut request = self.client.post(self.at(path)).header(CONTENT_TYPE, JSON).body(body);
            if let Some(key) = key {
                request = request.header(AUTHORIZATION, key.clone());
            }
            return Ok(Response::from(Box::pin(request.send()).await?).map(Flow::Far));
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = match path {
            CHAT => parts.chat.clone(),
            path => target(&self.base, path).map_err(|error| Fault::Broken(error.into()))?,
        };
        *request.headers_mut() = parts.headers.clone();
        if let Some(key) = key {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        Ok(near.send(request).await?.map(Flow::Near))
    }
}

/// Where nearly all calls go.
const CHAT: &str = "/chat/completions";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn below(base: &Url, path: &str) -> String {
    format!("{}{path}", base.path().trim_end_matches('/'))
}

fn target(base: &Url, path: &str) -> Result<Uri, String> {
    let query = base.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{query}", below(base, path)).parse().map_err(|_| "`url` cannot be called".into())
}

fn headers(base: &Url) -> Result<HeaderMap, String> {
    let name = base.host_str().unwrap_or_default();
    let host = base.port().map_or(name.to_owned(), |port| format!("{name}:{port}"));
    let host = HeaderValue::from_str(&host).map_err(|error| error.to_string())?;
    let accept = HeaderValue::from_static("*/*");
    Ok(HeaderMap::from_iter([(HOST, host), (ACCEPT, accept), (CONTENT_TYPE, JSON)]))
}

fn near(base: &Url, connect_timeout: Duration, patience: Duration) -> Result<Near, String> {
    let server: Uri = base.as_str().parse().map_err(|_| "`url` cannot be called".to_owned())?;
    Ok(Near::new(server, connect_timeout, patience))
}

/// Whether calls may have to go through a proxy; by the same variables as the general client.
fn has_proxy() -> bool {
    let names = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    names.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// An answer's body as it comes.
#[derive(Debug)]
pub(crate) enum Flow {
    Near(near::Answer),
    Far(reqwest::Body),
}

impl Body for Flow {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        match self.get_mut() {
            Self::Near(body) => Pin::new(body).poll_frame(cx),
            Self::Far(body) => Pin::new(body).poll_frame(cx).map_err(Fault::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Near(body) => body.is_end_stream(),
            Self::Far(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Near(body) => body.size_hint(),
            Self::Far(body) => body.size_hint(),
        }
    }
}
