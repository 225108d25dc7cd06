//! A model's server that answers at once: what the gateway is compared with.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// How long a stream waits before its first word, so that many are under way together.
const THINKING: Duration = Duration::from_millis(20);

const COMPLETION: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy dog, and then it takes a well-deserved rest."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}"#;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Serves until the program ends. Streams say in their first word when it was sent, counted from
/// `epoch`.
pub(super) async fn start(epoch: Instant) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let service = service_fn(move |request| answer(request, epoch));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

async fn answer(request: Request<Incoming>, epoch: Instant) -> Result<Answer, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let streams = memmem(&body, b"\"stream\":true");
    let (kind, body) = if streams {
        ("text/event-stream", stream(epoch))
    } else {
        ("application/json", Full::new(Bytes::from_static(COMPLETION.as_bytes())).boxed())
    };
    let mut response = Response::new(body);
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    Ok(response)
}

fn stream(epoch: Instant) -> BoxBody<Bytes, Infallible> {
    let events = futures_util::stream::iter(0..4).then(move |n| async move {
        tokio::time::sleep(if n == 0 { THINKING } else { Duration::from_millis(1) }).await;
        let event = match n {
            0 => chunk(&format!("t={} ", epoch.elapsed().as_nanos()), "null"),
            1 => chunk("and more", "null"),
            2 => chunk("", "\"stop\""),
            _ => "data: [DONE]\n\n".to_owned(),
        };
        Ok(Frame::data(Bytes::from(event)))
    });
    BodyExt::boxed(StreamBody::new(
        Box::pin(events) as std::pin::Pin<Box<dyn futures_util::Stream<Item = _> + Send + Sync>>
    ))
}

fn chunk(text: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

fn memmem(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
