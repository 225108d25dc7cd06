//! Protects a gateway on the user's own machine from foreign web pages.
//!
//! Any web page can make a browser call `localhost`, and a page whose name resolves to 127.0.0.1
//! can even read the responses (DNS rebinding). Two headers of the browser reveal this: `Origin`
//! names the page, `Host` the name that was called. Pages of allowed origins are told so
//! ([`super::cors`]).
//!
//! A paired device may lend its access to a port on its own machine, where browsers are, too. So its
//! requests are checked as those to a gateway on loopback that asks for no key, wherever this one
//! listens.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bowline_net::Peer;
use bowline_net::loopback::is_loopback_host;
use bowline_sbp::error::Code;

use super::cors;
use super::error::ApiError;
use super::origins::{AllowedOrigins, BadOrigins, WebOrigin};
use super::refused_origins::RefusedOrigins;
use crate::config::Http;

/// The allowed `Host` names and `Origin`s.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The gateway listens on loopback only, so `Host` must be a loopback name or in `hosts`.
    loopback: bool,
    hosts: Vec<String>,
    origins: AllowedOrigins,
    refused: RefusedOrigins,
}

impl Guard {
    /// `is_open`: the gateway needs no API key.
    pub(crate) fn new(loopback: bool, http: &Http, is_open: bool) -> Result<Self, BadOrigins> {
        let origins = AllowedOrigins::new(&http.allowed_origins, is_open)?;
        let (hosts, refused) = (http.allowed_hosts.clone(), RefusedOrigins::default());
        Ok(Self { loopback, hosts, origins, refused })
    }

    /// The origin of an allowed page of another server; `None` if it is no such page.
    fn check(
        &self,
        version: Version,
        headers: &HeaderMap,
        from_device: bool,
    ) -> Result<Option<HeaderValue>, ApiError> {
        let host = the_host(version, headers)?;
        let refuse = |why: &str| Err(ApiError::new(Code::Forbidden, why));
        let is_allowed = |name: &String| name.eq_ignore_ascii_case(without_port(host));
        let is_here = is_loopback_host(host) || self.hosts.iter().any(is_allowed);
        if (self.loopback || from_device) && !is_here {
            return refuse("the Host header names another machine; see http.allowed_hosts");
        }
        let Some(value) = headers.get(header::ORIGIN) else { return Ok(None) };
        let origin = text(value);
        let from = origin.split_once("://").map(|(_, from)| from);
        if from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
            return Ok(None);
        }
        let origin = WebOrigin::parse(origin);
        let is_allowed = |origin: &WebOrigin| match from_device {
            true => self.origins.names(origin),
            false => self.origins.contains(origin),
        };
        if origin.as_ref().is_some_and(is_allowed) {
            return Ok(Some(value.clone()));
        }
        self.refused.log(origin);
        refuse("web pages from this origin are not allowed; see http.allowed_origins")
    }
}

/// The `Host` header. HTTP/1.1 requires exactly one: of several, a proxy may have checked another
/// one than we do. For HTTP/2 the listener has put `:authority` in its place.
fn the_host(version: Version, headers: &HeaderMap) -> Result<&str, ApiError> {
    let wrong = |what: &str| {
        ApiError::new(Code::MalformedRequest, what).detail("send exactly one Host header")
    };
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => Err(wrong("the request has more than one Host header")),
        (None, _) if version >= Version::HTTP_11 => Err(wrong("the request has no Host header")),
        (host, _) => Ok(host.map(text).unwrap_or_default()),
    }
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("\u{fffd}")
}

/// The middleware.
pub(crate) async fn guard(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let from_device = request.extensions().get().is_some_and(|peer: &Peer| peer.device.is_some());
    let page = match guard.check(request.version(), request.headers(), from_device) {
        Ok(page) => page,
        Err(refused) => return refused.into_response(),
    };
    let mut response = match &page {
        Some(_) if cors::is_preflight(&request) => cors::preflight(request.headers()),
        _ => next.run(request).await,
    };
    if let Some(origin) = page {
        cors::allow(origin, response.headers_mut());
    }
    if !guard.origins.is_empty() {
        cors::vary(response.headers_mut());
    }
    response
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, host: &str, origin: Option<&str>) -> bool {
        check_from(guard, host, origin, false)
    }

    fn check_from(guard: &Guard, host: &str, origin: Option<&str>, from_device: bool) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        guard.check(Version::HTTP_11, &headers, from_device).is_ok()
    }

    #[test]
    fn g11_a_foreign_page_cannot_reach_a_loopback_gateway() {
        let guard = Guard::new(true, &Http::default(), true).unwrap();
        assert!(check(&guard, "localhost:8080", None));
        assert!(check(&guard, "My.LocalHost", Some("http://my.localhost")));
        assert!(!check(&guard, "mylocalhost", None));
        assert!(check(&guard, "127.0.0.1:8080", Some("http://127.0.0.1:8080")));
        assert!(check(&guard, "[::1]:8080", None));
        assert!(!check(&guard, "127.0.0.1:8080", Some("https://evil.example")));
        assert!(!check(&guard, "127.0.0.1:8080", Some("null")));
        assert!(!check(&guard, "127.0.0.1:8080", Some("http://localhost:3000")));
        assert!(!check(&guard, "evil.example:8080", None), "DNS rebinding");
        assert!(!check(&guard, "evil.example:8080", Some("http://evil.example:8080")));
        assert!(!check(&guard, "127.0.0.1.evil.example", None));
    }

    #[test]
    fn g11_a_page_on_a_devices_machine_cannot_reach_a_public_gateway_through_it() {
        let http = Http { allowed_origins: vec!["*".into()], ..Http::default() };
        let guard = Guard::new(false, &http, false).unwrap();
        let named = Http {
            allowed_origins: vec!["*".into(), "https://app.example".into()],
            allowed_hosts: vec!["gateway.example".into()],
            ..Http::default()
        };
        let naming = Guard::new(false, &named, false).unwrap();
        for (host, origin, directly, by_device, named) in [
            ("localhost:1234", None, true, true, true),
            ("127.0.0.1:1234", Some("http://127.0.0.1:1234"), true, true, true),
            ("127.0.0.1:1234", Some("https://app.example"), true, false, true),
            ("127.0.0.1:1234", Some("https://evil.example"), true, false, false),
            ("127.0.0.1:1234", Some("null"), true, false, false),
            ("evil.example:1234", None, true, false, false),
            ("evil.example:1234", Some("http://evil.example:1234"), true, false, false),
            ("gateway.example", None, true, false, true),
        ] {
            let check = |guard, from_device| check_from(guard, host, origin, from_device);
            assert_eq!(check(&guard, false), directly, "{host} {origin:?}");
            assert_eq!(check(&guard, true), by_device, "{host} {origin:?} by a device");
            assert_eq!(check(&naming, true), named, "{host} {origin:?} by a device, if named");
        }
    }

    #[test]
    fn allowed_pages_and_names_are_let_in() {
        let http = Http {
            allowed_origins: vec!["https://App.example".into()],
            allowed_hosts: vec!["laptop.lan".into()],
            ..Http::default()
        };
        let guard = Guard::new(true, &http, true).unwrap();
        assert!(check(&guard, "laptop.lan:8080", Some("https://app.example")));
        assert!(!check(&guard, "laptop.lan.evil:8080", None));
        let public = Guard::new(false, &http, true).unwrap();
        assert!(check(&public, "gateway.example", None));
        assert!(!check(&public, "gateway.example", Some("https://evil.example")));
    }
}
