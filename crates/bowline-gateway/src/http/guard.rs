//! Protects a gateway on the user's own machine from foreign web pages.
//!
//! Any web page can make a browser call `localhost`, and a page whose name resolves to 127.0.0.1
//! can even read the responses (DNS rebinding). Two headers of the browser reveal this: `Origin`
//! names the page, `Host` the name that was called.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bowline_net::loopback::is_loopback_host;
use bowline_sbp::error::Code;

use super::error::ApiError;
use crate::config::Http;

/// The allowed `Host` names and `Origin`s.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The gateway listens on loopback only, so `Host` must be a loopback name or in `hosts`.
    loopback: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Guard {
    pub(crate) fn new(loopback: bool, http: &Http) -> Self {
        let Http { allowed_hosts: hosts, allowed_origins: origins, .. } = http.clone();
        Self { loopback, hosts, origins }
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        self.judge(headers).map_err(|why| ApiError::new(Code::Forbidden, why))
    }

    fn judge(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
        let host = text(header::HOST).unwrap_or_default();
        let is_allowed = |name: &String| name.eq_ignore_ascii_case(without_port(host));
        if self.loopback && !is_loopback_host(host) && !self.hosts.iter().any(is_allowed) {
            return Err("the Host header names another machine; see http.allowed_hosts");
        }
        let Some(origin) = text(header::ORIGIN) else { return Ok(()) };
        let from = origin.split_once("://").map(|(_, from)| from);
        let same = from.is_some_and(|from| from.eq_ignore_ascii_case(host));
        if same || self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
            return Ok(());
        }
        Err("web pages from this origin are not allowed; see http.allowed_origins")
    }
}

/// The middleware.
pub(crate) async fn guard(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    match guard.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
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
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        guard.check(&headers).is_ok()
    }

    #[test]
    fn g11_a_foreign_page_cannot_reach_a_loopback_gateway() {
        let guard = Guard::new(true, &Http::default());
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
    fn allowed_pages_and_names_are_let_in() {
        let http = Http {
            allowed_origins: vec!["https://App.example".into()],
            allowed_hosts: vec!["laptop.lan".into()],
            ..Http::default()
        };
        let guard = Guard::new(true, &http);
        assert!(check(&guard, "laptop.lan:8080", Some("https://app.example")));
        assert!(!check(&guard, "laptop.lan.evil:8080", None));
        let public = Guard::new(false, &http);
        assert!(check(&public, "gateway.example", None));
        assert!(!check(&public, "gateway.example", Some("https://evil.example")));
    }
}
