//! A server that records every request to every path, and answers with bytes of every value.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bowline_gateway::config::{Config, Upstream};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{mpsc, watch};

use crate::bench::DEADLINE;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) struct EchoUpstream {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    seen: Mutex<Vec<Seen>>,
    /// Bytes of request bodies that arrived so far.
    arrived: watch::Sender<usize>,
    /// The next answer, piece by piece, instead of the usual one.
    answer: Mutex<Option<mpsc::UnboundedReceiver<Bytes>>>,
}

impl EchoUpstream {
    pub(crate) async fn start() -> Self {
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            arrived: watch::Sender::new(0),
            answer: Mutex::default(),
        });
        let router = Router::new().fallback(hear).with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, shared }
    }

    pub(crate) fn configure(&self, config: &mut Config, name: &str, models: &[&str]) {
        let models = models.iter().map(|model| model.to_string()).collect();
        let upstream = Upstream { url: self.url.clone(), models, ..Upstream::default() };
        config.upstream.insert(name.into(), upstream);
    }

    /// The requests that arrived whole.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Waits until that much of request bodies arrived.
    pub(crate) async fn until_arrived(&self, bytes: usize) {
        let mut arrived = self.shared.arrived.subscribe();
        let wait = arrived.wait_for(|so_far| *so_far >= bytes);
        tokio::time::timeout(DEADLINE, wait).await.expect("the body is held back").unwrap();
    }

    /// The next answer, under the test's control. Dropping it ends the answer.
    pub(crate) fn answer(&self) -> mpsc::UnboundedSender<Bytes> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.shared.answer.lock().unwrap() = Some(receiver);
        sender
    }
}

/// Bytes that are no text.
pub(crate) fn binary() -> Vec<u8> {
    (0..=255).cycle().take(100_000).collect()
}

async fn hear(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let mut pieces = body.into_data_stream();
    let mut body = Vec::new();
    while let Some(piece) = pieces.next().await {
        let Ok(piece) = piece else { return StatusCode::BAD_REQUEST.into_response() };
        body.extend_from_slice(&piece);
        shared.arrived.send_modify(|arrived| *arrived += piece.len());
    }
    let line = format!("{} {}", head.method, head.uri);
    let limited = line.contains("limited");
    shared.seen.lock().unwrap().push(Seen { line, headers: head.headers, body: body.into() });
    if let Some(pieces) = shared.answer.lock().unwrap().take() {
        let pieces = futures_util::stream::unfold(pieces, |mut pieces| async {
            Some((Ok::<_, std::io::Error>(pieces.recv().await?), pieces))
        });
        return Body::from_stream(pieces).into_response();
    }
    let headers = [
        ("content-type", "audio/x-test"),
        ("content-disposition", "attachment; filename=\"a.bin\""),
        ("retry-after", "9"),
        ("retry-after-ms", "8500"),
        ("x-ratelimit-remaining-tokens", "5"),
        ("x-request-id", "req_1"),
        ("set-cookie", "secret=of-the-upstream"),
        ("access-control-allow-origin", "*"),
    ];
    let status = if limited { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::CREATED };
    (status, headers, binary()).into_response()
}
