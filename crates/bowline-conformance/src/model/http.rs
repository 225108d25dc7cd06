//! The model's HTTP server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::act::Act;
use super::asked::Asked;
use super::reply::Reply;
use super::script::Shared;
use super::{Scripts, locked};

type Body = BoxBody<Bytes, io::Error>;

pub(super) async fn serve(listener: TcpListener, scripts: Scripts) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let scripts = Arc::clone(&scripts);
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(request, &scripts));
            // A check that breaks off ends the connection with an error.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    scripts: &Scripts,
) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    if request.method() == Method::GET && path.ends_with("/models") {
        let models = json!({ "object": "list", "data": [
            { "id": "conformance", "object": "model", "created": 1, "owned_by": "conformance" },
        ]});
        return Ok(json_answer(StatusCode::OK, models.to_string()));
    }
    if !path.ends_with("/completions") {
        return Ok(refusal(StatusCode::NOT_FOUND));
    }
    let asked = Asked::read(request.into_body().collect().await?.to_bytes());
    let script = asked
        .script()
        .and_then(|(nonce, round)| Some((Arc::clone(locked(scripts).get(&nonce)?), round)));
    let (streams, mut reply) = (asked.wants_stream(), Reply::to(&asked));
    let (shared, acts) = match script {
        // Nothing is asked of it: a prompt of another kind, such as one for a title.
        None => (None, vec![Act::say("Under"), Act::say("stood.")]),
        Some((shared, round)) => {
            let acts = shared.take(asked, round);
            (Some(shared), acts)
        }
    };
    let status = acts.iter().find_map(|act| match act {
        Act::Fail(status) => StatusCode::from_u16(*status).ok(),
        _ => None,
    });
    if let Some(status) = status {
        return Ok(refusal(status));
    }
    if streams {
        return Ok(respond(StatusCode::OK, "text/event-stream", streamed(reply, acts, shared)));
    }
    let breaks = acts.contains(&Act::BreakOff);
    if let Some(shared) = &shared {
        shared.opened(gates(&acts)).await;
    }
    let whole = reply.whole(&acts);
    Ok(match breaks {
        false => json_answer(StatusCode::OK, whole),
        true => {
            let half = Bytes::from(whole.into_bytes()).slice(..20);
            let pieces = stream::iter([Ok(Frame::data(half)), Err(broken())]);
            respond(StatusCode::OK, "application/json", BodyExt::boxed(StreamBody::new(pieces)))
        }
    })
}

/// Says one thing after the other, as the gates open.
fn streamed(mut reply: Reply, acts: Vec<Act>, shared: Option<Arc<Shared>>) -> Body {
    let (pieces, mut said) = mpsc::channel::<io::Result<Frame<Bytes>>>(1);
    tokio::spawn(async move {
        let send = async |text: String| pieces.send(Ok(Frame::data(Bytes::from(text)))).await;
        if acts.first() != Some(&Act::BreakOff) && send(reply.begin()).await.is_err() {
            return;
        }
        let mut gates = 0;
        for act in &acts {
            match act {
                Act::Hold => {
                    gates += 1;
                    if let Some(shared) = &shared {
                        // The server may hang up meanwhile.
                        tokio::select! {
                            () = shared.opened(gates) => {}
                            () = pieces.closed() => return,
                        }
                    }
                }
                Act::BreakOff => {
                    // With an error, hyper throws away what it has not written yet: what was said before has
                    // to be on its way first.
                    let Ok(room) = pieces.reserve().await else { return };
                    sleep(WRITTEN).await;
                    room.send(Err(broken()));
                    return;
                }
                act => {
                    let Some(chunk) = reply.chunk(act) else { continue };
                    if send(chunk).await.is_err() {
                        return;
                    }
                }
            }
        }
        let _ = send(reply.end()).await;
    });
    let pieces = stream::poll_fn(move |context| said.poll_recv(context));
    BodyExt::boxed(StreamBody::new(pieces))
}

/// How long hyper may take to write what it was given.
const WRITTEN: Duration = Duration::from_millis(100);

fn gates(acts: &[Act]) -> usize {
    acts.iter().filter(|act| **act == Act::Hold).count()
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the script breaks off")
}

fn refusal(status: StatusCode) -> Response<Body> {
    let error =
        json!({ "message": "refused by the conformance suite's model", "type": "server_error" });
    json_answer(status, json!({ "error": error }).to_string())
}

fn json_answer(status: StatusCode, body: String) -> Response<Body> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
    respond(status, "application/json", body.boxed())
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
