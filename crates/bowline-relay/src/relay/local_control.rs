//! A control plane in the same process, at the relay's own address.
//!
//! The relay passes requests for other paths to the control plane's router, and reads the published
//! documents from that router instead of over the network. It has no other access: the signing keys
//! stay behind the router.

use axum::Router;
use axum::body::Body;
use bowline_net::Peer;
use bowline_net::outbound::FetchError;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response};
use tower::ServiceExt as _;

use super::http::HttpResponse;

/// The largest response that is forwarded, in bytes.
const LARGEST: usize = 4 << 20;

/// The control plane's router.
#[derive(Debug, Clone)]
pub(crate) struct LocalControl(Router);

impl LocalControl {
    pub(crate) fn new(router: Router) -> Self {
        Self(router)
    }

    /// Answers a request that is not for the relay.
    pub(crate) async fn answer(
        &self,
        mut request: Request<Body>,
        peer: Option<Peer>,
    ) -> HttpResponse {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let Ok(answer) = self.0.clone().oneshot(request).await;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, LARGEST).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Response::from_parts(head, Full::new(body))
    }

    /// Fetches the document that is published at this path.
    pub(super) async fn fetch(&self, path: &str) -> Result<Bytes, FetchError> {
        let request = Request::get(path).body(Body::empty());
        let request = request.map_err(|_| FetchError::Unreachable)?;
        let answer = self.answer(request, None).await;
        if !answer.status().is_success() {
            return Err(FetchError::Status(answer.status().as_u16()));
        }
        let Ok(body) = answer.into_body().collect().await;
        Ok(body.to_bytes())
    }
}
