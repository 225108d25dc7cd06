//! The peer's HTTP server.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::keys::{self, peek};
use super::offer::Offer;
use super::peer::{self, Persona, Shared, now};

type Body = BoxBody<Bytes, Infallible>;

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(request, &shared));
            // A server that has read enough hangs up.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: &Arc<Shared>,
) -> Result<Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    let (persona, path) = Persona::at(head.uri.path());
    let bearer = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
    let is_shown = token.is_some();
    let path_said = head.uri.path_and_query().map_or(path, |all| all.as_str()).to_owned();
    shared.kept().requests.push(peer::Request { persona, path: path_said, token, at: now() });
    let body = body.collect().await?.to_bytes();
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    Ok(match (head.method, &parts[..]) {
        (Method::GET, [".well-known", "sbp"]) => json_answer(200, &manifest(shared, persona)),
        (Method::POST, ["v1", "sbp", "registry"]) => {
            shared.kept().announcements.push(String::from_utf8_lossy(&body).into_owned());
            json_answer(200, &json!({}))
        }
        (Method::GET, ["v1", "sbp", "registry", cid]) => json_answer(200, &registered(shared, cid)),
        _ if !is_shown => refusal(401, "a federation token is missing"),
        (Method::GET, ["v1", "sbp", "bundles", cid]) => {
            let is_reserved = head.headers.contains_key("sbp-reservation");
            bundle(shared, persona, cid, is_reserved)
        }
        (method, ["v1", "sbp", "federation", "reservations", rest @ ..]) => {
            reservation(shared, &method, rest, &body)
        }
        _ => refusal(404, "there is nothing here"),
    })
}

fn manifest(shared: &Shared, persona: Persona) -> Value {
    let url = shared.url(persona);
    shared.identity.signed(
        keys::MANIFEST,
        json!({
            "sbp_version": "1.2", "gateway_id": persona.id(),
            "gateway_name": "The conformance suite", "role": "both", "federation": true,
            "public_key": shared.identity.spki(), "url": url, "issued_at": now(),
            "endpoints": {
                "ws": format!("{}/v1/sbp/ws/{{session_id}}", url.replacen("http", "ws", 1)),
                "export": format!("{url}/v1/sbp/sessions/{{session_id}}/export"),
                "import": format!("{url}/v1/sbp/sessions/import"),
                "bundle": format!("{url}/v1/sbp/bundles/{{bundle_cid}}"),
                "registry": format!("{url}/v1/sbp/registry"),
            },
        }),
    )
}

/// The tracker knows no bundle: what was announced to it is only looked at.
fn registered(shared: &Shared, cid: &str) -> Value {
    let answer = json!({
        "cid": cid, "gateways": [], "issued_at": now(), "tracker_id": Persona::Honest.id(),
    });
    shared.identity.signed(keys::REGISTRY, answer)
}

fn bundle(shared: &Arc<Shared>, persona: Persona, cid: &str, is_reserved: bool) -> Response<Body> {
    let mut kept = shared.kept();
    // Whoever follows the redirect asks the honest gateway for the liar's bundle, and gets it.
    let Some(offer) = kept.offers.iter_mut().find(|offer| offer.cid == cid) else {
        return refusal(404, "there is no such bundle");
    };
    if offer.is_used && !is_reserved {
        return refusal(410, "the token was used");
    }
    match persona {
        Persona::Honest => {
            // Without a reservation, giving it is all that the origin learns.
            offer.is_used |= !is_reserved;
            text_answer(offer.bundle.clone())
        }
        Persona::OtherBytes => text_answer(offer.bundle.replace(" is under the mat", " is lost")),
        Persona::Endless => endless(shared),
        Persona::Redirects => {
            let to = format!("{}/v1/sbp/bundles/{cid}?{REDIRECTED}", shared.url(Persona::Honest));
            let mut answer = refusal(302, "elsewhere");
            if let Ok(to) = HeaderValue::from_str(&to) {
                answer.headers_mut().insert(LOCATION, to);
            }
            answer
        }
    }
}

/// A bundle whose first message has no end.
fn endless(shared: &Arc<Shared>) -> Response<Body> {
    let shared = Arc::clone(shared);
    let piece = Bytes::from(vec![b'a'; PIECE]);
    let begin = Bytes::from_static(br#"{"sbp_version": "1.0", "messages": [{"content": ""#);
    let pieces = stream::unfold(begin, move |next| {
        let (shared, piece) = (Arc::clone(&shared), piece.clone());
        async move {
            let mut kept = shared.kept();
            kept.endless += next.len();
            (kept.endless <= ENDLESS).then_some((Ok(Frame::data(next)), piece))
        }
    });
    respond(200, BodyExt::boxed(StreamBody::new(pieces)))
}

fn reservation(shared: &Shared, method: &Method, rest: &[&str], body: &[u8]) -> Response<Body> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut kept = shared.kept();
    let found =
        |offers: &[Offer], export: &str| offers.iter().position(|offer| offer.export == export);
    match (method, rest) {
        (&Method::POST, []) => {
            let token = body["roaming_token"].as_str().unwrap_or_default();
            let export = peek(token).map(|(_, claims)| claims["sub"].clone());
            let export = export.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
            let Some(place) = found(&kept.offers, &export) else {
                return refused(404, "unknown");
            };
            if kept.offers[place].is_used {
                return refused(410, "used");
            }
            let id = body["reservation_id"].as_str().unwrap_or_default().to_owned();
            kept.reservations.insert(id.clone(), export);
            let until = Timestamp::now() + SignedDuration::from_secs(120);
            let cid = &kept.offers[place].cid;
            let until = until.to_string();
            json_answer(200, &json!({ "reservation_id": id, "cid": cid, "expires_at": until }))
        }
        (&Method::POST, [id, "confirm"]) => {
            let export = kept.reservations.get(*id).cloned().unwrap_or_default();
            let Some(place) = found(&kept.offers, &export) else {
                return refused(404, "unknown");
            };
            kept.offers[place].is_used = true;
            let session = &body["session_id"];
            json_answer(200, &json!({ "reservation_id": id, "session_id": session }))
        }
        (&Method::DELETE, [id]) => {
            kept.reservations.remove(*id);
            respond(204, empty())
        }
        _ => refusal(404, "there is nothing here"),
    }
}

/// A refused reservation.
fn refused(status: u16, why: &str) -> Response<Body> {
    let error = json!({ "code": "SBP_TOKEN_CONSUMED", "message": why, "detail": null });
    json_answer(status, &json!({ "error": error, "refused": why }))
}

fn refusal(status: u16, why: &str) -> Response<Body> {
    let error = json!({ "code": "SBP_NOT_FOUND", "message": why, "detail": null });
    json_answer(status, &json!({ "error": error }))
}

fn json_answer(status: u16, body: &Value) -> Response<Body> {
    respond(status, Full::new(Bytes::from(body.to_string())).boxed())
}

fn text_answer(body: String) -> Response<Body> {
    respond(200, Full::new(Bytes::from(body)).boxed())
}

fn empty() -> Body {
    Full::new(Bytes::new()).boxed()
}

fn respond(status: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Part of an address that only a redirect names.
pub(crate) const REDIRECTED: &str = "redirected";
/// What is sent of an endless bundle at once.
const PIECE: usize = 256 << 10;
/// Where an endless bundle ends all the same, in bytes: nobody should have read so far.
const ENDLESS: usize = 512 << 20;
