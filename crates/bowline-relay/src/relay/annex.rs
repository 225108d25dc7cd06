//! A control plane at the relay's own address, for installations of one process.
//!
//! The relay passes on what is not its own, and reads what is published from next door instead
//! of over the network. That is all it gets: what signs stays on the other side of the router.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response};
use tower::ServiceExt as _;

use super::http::Answer;
use super::issuer::Unanswered;

/// The largest answer that is passed on, in bytes.
const LARGEST: usize = 4 << 20;

/// What is served beside the relay.
#[derive(Debug, Clone)]
pub(crate) struct Annex(Router);

impl Annex {
    pub(crate) fn new(router: Router) -> Self {
        Self(router)
    }

    /// Answers a request that is none of the relay's.
    pub(crate) async fn answer(&self, mut request: Request<Body>, from: SocketAddr) -> Answer {
        request.extensions_mut().insert(ConnectInfo(from));
        let Ok(answer) = self.0.clone().oneshot(request).await;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, LARGEST).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Response::from_parts(head, Full::new(body))
    }

    /// What is published at that path.
    pub(super) async fn fetch(&self, path: &str) -> Result<Bytes, Unanswered> {
        let request = Request::get(path).body(Body::empty());
        let request = request.map_err(|_| Unanswered::Unreachable)?;
        let answer = self.answer(request, SocketAddr::from(([127, 0, 0, 1], 0))).await;
        if !answer.status().is_success() {
            return Err(Unanswered::Status(answer.status().as_u16()));
        }
        let Ok(body) = answer.into_body().collect().await;
        Ok(body.to_bytes())
    }
}
