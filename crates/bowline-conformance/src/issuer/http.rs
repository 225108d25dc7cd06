//! The issuer's HTTP server: the key set, and nothing else.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::Published;

pub(super) async fn serve(listener: TcpListener, published: Arc<Published>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let published = Arc::clone(&published);
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let answer = answer(&request, &published);
                async move { Ok::<_, Infallible>(answer) }
            });
            // A relay that hangs up ends the connection with an error.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

/// A prefix of the path is not looked at: a proxy may have taken it away, or not.
fn answer(request: &Request<Incoming>, published: &Published) -> Response<Full<Bytes>> {
    let is_asked =
        request.method() == Method::GET && request.uri().path().ends_with("/.well-known/jwks.json");
    let (status, body) = match is_asked {
        true => (StatusCode::OK, published.fetched().to_string()),
        false => (StatusCode::NOT_FOUND, "{}".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
