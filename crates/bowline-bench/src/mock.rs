//! A mock upstream that answers at once: the baseline for the gateway.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::chunk::chunk;
use crate::legs::{self, TOOLS};
use crate::load::since_epoch;
use crate::tls;

/// A model that waits for [`THINKING`] before it answers.
pub(crate) const THINKER: &str = "thinker";
/// The delay before the first token of a stream, so that many streams run concurrently; and before
/// the answer of [`THINKER`].
const THINKING: Duration = Duration::from_millis(20);
/// A model that waits as long as real ones before its first token, and then streams 20 words.
pub(crate) const PENSIVE: &str = "pensive";
/// The delay of [`PENSIVE`].
pub(crate) const PENSIVE_THINKING: Duration = Duration::from_millis(200);
/// A model that streams a long answer without a pause.
pub(crate) const TALKATIVE: &str = "talkative";
/// The number of words of [`TALKATIVE`].
pub(crate) const TALKATIVE_WORDS: usize = 4000;
/// The content of every chunk after the first.
pub(crate) const WORD: &str = "and more";

/// The last event of a stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

const COMPLETION: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy dog, and then it takes a well-deserved rest."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}"#;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// A mock server in its own process.
#[derive(Debug)]
pub(crate) struct Process {
    _child: Child,
    pub(crate) address: SocketAddr,
}

impl Process {
    pub(crate) async fn start() -> Result<Self> {
        Self::of("mock").await
    }

    /// The same over TLS. Its certificate is written to the file before this returns.
    pub(crate) async fn start_with_tls(certificate: &Path) -> Result<Self> {
        Self::run("mock", &["--tls".as_ref(), certificate.as_os_str()]).await
    }

    /// Another server of the bench, by the name of its command.
    pub(crate) async fn of(server: &str) -> Result<Self> {
        Self::run(server, &[]).await
    }

    async fn run(server: &str, args: &[&OsStr]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", server])
            .args(args)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let address = line.with_context(|| format!("the {server} did not start"))?.parse()?;
        Ok(Self { _child: child, address })
    }
}

/// Serves until the process is killed; calls `ready` with the address. The first token of a stream
/// is its send time; the model [`TOOLS`] calls a device's tool first. With TLS, the certificate is
/// written to `certificate`.
pub async fn serve(certificate: Option<&Path>, ready: impl FnOnce(SocketAddr)) -> Result<()> {
    let tls = certificate.map(tls::acceptor).transpose()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        let tls = tls.clone();
        tokio::spawn(async move {
            match tls {
                None => converse(stream).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        converse(stream).await;
                    }
                }
            }
        });
    }
}

/// Answers requests until the client disconnects.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let connection = http1::Builder::new();
    let _ = connection.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

/// The fields of a request that any upstream has to parse.
#[derive(Deserialize)]
struct MockRequest {
    #[serde(default)]
    model: String,
    #[serde(default)]
    stream: bool,
    messages: Vec<serde_json::Value>,
}

async fn answer(request: Request<Incoming>) -> Result<Answer, hyper::Error> {
    let received = since_epoch();
    let body = request.into_body().collect().await?.to_bytes();
    let asked = serde_json::from_slice::<MockRequest>(&body).ok();
    let Some(asked) = asked.filter(|asked| !asked.messages.is_empty()) else {
        let mut refusal = Response::new(Full::new(Bytes::from_static(b"{}")).boxed());
        *refusal.status_mut() = hyper::StatusCode::BAD_REQUEST;
        return Ok(refusal);
    };
    if asked.model == THINKER {
        tokio::time::sleep(THINKING).await;
    }
    let (kind, body) = if asked.model == TOOLS {
        (
            "text/event-stream",
            Full::new(Bytes::from(legs::answer(&asked.messages, received))).boxed(),
        )
    } else if asked.stream {
        ("text/event-stream", stream(Speech::of(&asked.model)))
    } else {
        ("application/json", Full::new(Bytes::from_static(COMPLETION.as_bytes())).boxed())
    };
    let mut response = Response::new(body);
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    Ok(response)
}

/// How a model streams its answer.
#[derive(Debug, Clone, Copy)]
struct Speech {
    /// Delay before the first word.
    thinking: Duration,
    words: usize,
    /// Delay before each further word, and before the end.
    pause: Duration,
}

impl Speech {
    fn of(model: &str) -> Self {
        let pause = Duration::from_millis(1);
        match model {
            PENSIVE => Self { thinking: PENSIVE_THINKING, words: 20, pause },
            TALKATIVE => {
                Self { thinking: Duration::ZERO, words: TALKATIVE_WORDS, pause: Duration::ZERO }
            }
            _ => Self { thinking: THINKING, words: 2, pause },
        }
    }
}

fn stream(speech: Speech) -> BoxBody<Bytes, Infallible> {
    let Speech { thinking, words, pause } = speech;
    // After the words follow the `finish_reason` and the end of the stream.
    let events = futures_util::stream::iter(0..words + 2).then(move |n| async move {
        let wait = if n == 0 { thinking } else { pause };
        // Even the shortest sleep takes a millisecond.
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let event = match n {
            0 => chunk(&format!("t={} ", since_epoch().as_nanos()), "null"),
            n if n < words => chunk(WORD, "null"),
            n if n == words => chunk("", "\"stop\""),
            _ => DONE.to_owned(),
        };
        Ok(Frame::data(Bytes::from(event)))
    });
    BodyExt::boxed(StreamBody::new(
        Box::pin(events) as std::pin::Pin<Box<dyn futures_util::Stream<Item = _> + Send + Sync>>
    ))
}
