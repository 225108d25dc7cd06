//! What a browser has to be told so that a page of another origin can read the responses (CORS).
//!
//! A module of our own, because who is allowed is decided in [`super::guard`], for WebSockets and
//! plain requests alike, and others are refused. The layer of tower-http would decide a second time,
//! answers every `OPTIONS` request and refuses nobody.
//!
//! Cookies are not used, so credentials in the sense of CORS are never allowed: keys and tokens are
//! headers that the page sets itself.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The methods of all routes.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// Response headers that a page may read besides the usual ones.
const EXPOSED: &str = "x-session-token, retry-after, retry-after-ms, x-should-retry, x-request-id, \
                       www-authenticate";
/// How long a browser may remember the answer to a preflight, in seconds: two hours, the most that
/// Chromium accepts. A request itself is checked each time.
const MAX_AGE: &str = "7200";
/// What the answer to a preflight depends on.
const ASKED: &str = "access-control-request-method, access-control-request-headers";

const ASKS_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Whether a browser asks for permission before it sends the request itself.
pub(super) fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The permission: every method, and every header that the page asks for, because none of them
/// opens anything by itself.
pub(super) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let text = HeaderValue::from_static;
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, text(METHODS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, text(MAX_AGE));
    headers.insert(header::VARY, text(ASKED));
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if asked.get(ASKS_PRIVATE).is_some_and(|asks| asks == "true") {
        headers.insert(ALLOW_PRIVATE, text("true"));
    }
    response
}

/// Lets the page of that origin read the response.
pub(super) fn allow(origin: HeaderValue, headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    let exposed = HeaderValue::from_static(EXPOSED);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
}

/// Tells caches that the response depends on the origin.
pub(super) fn vary(headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}
