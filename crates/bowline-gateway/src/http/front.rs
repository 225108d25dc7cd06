//! The way in. Chat completions, which is what nearly all requests are, go straight to their handler:
//! a router boxes and clones its services for each request. Both ways check and count alike.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use tower::ServiceExt as _;

use super::guard::Guard;
use super::router::{CHAT, observed, router};
use super::{App, completions};
use crate::serve::Place;

#[derive(Debug)]
pub(crate) struct Front {
    app: Arc<App>,
    guard: Arc<Guard>,
    router: Router,
}

impl Front {
    pub(crate) fn new(app: Arc<App>, guard: Guard) -> Self {
        let guard = Arc::new(guard);
        let router = router(Arc::clone(&app), Arc::clone(&guard));
        Self { app, guard, router }
    }

    pub(crate) async fn answer(
        &self,
        mut request: Request<Incoming>,
        place: Place,
    ) -> Result<Response, Infallible> {
        if request.method() == Method::POST && request.uri().path() == CHAT {
            return Ok(self.chat(request).await);
        }
        request.extensions_mut().insert(place);
        Box::pin(self.router.clone().oneshot(request)).await
    }

    async fn chat(&self, request: Request<Incoming>) -> Response {
        let begun = Instant::now();
        let (head, body) = request.into_parts();
        let response = match self.guard.check(&head.headers) {
            Ok(()) => {
                let answered =
                    completions::answer_chat(&self.app, &head.headers, Body::new(body)).await;
                answered.into_response()
            }
            Err(refused) => refused.into_response(),
        };
        observed(&head.method, Some(CHAT), begun, &response);
        response
    }
}
