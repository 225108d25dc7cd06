//! The log of refused web pages: a browser does not tell its user why a page was refused, so the
//! gateway says what to configure.
//!
//! Any page can cause such a line. So each origin is logged once in a while, only so many origins are
//! logged in that time, and what is no origin is not printed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::origins::WebOrigin;

/// After this time an origin is logged again.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// How many origins are logged in that time.
const MOST: usize = 32;

/// When which origin was logged; `None` stands for whatever is no origin.
#[derive(Debug, Default)]
pub(crate) struct RefusedOrigins(Mutex<HashMap<Option<WebOrigin>, Instant>>);

impl RefusedOrigins {
    pub(crate) fn log(&self, origin: Option<WebOrigin>) {
        if !self.is_due(origin.clone(), Instant::now()) {
            return;
        }
        match origin {
            Some(origin) => tracing::warn!(
                origin = origin.as_str(),
                "a web page was refused: its origin is not allowed; if you know it, add it to \
                 http.allowed_origins"
            ),
            None => tracing::warn!("a web page was refused: its Origin header is no origin"),
        }
    }

    fn is_due(&self, origin: Option<WebOrigin>, now: Instant) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.contains_key(&origin) || logged.len() >= MOST {
            logged.retain(|_, at| now.saturating_duration_since(*at) < AGAIN_AFTER);
        }
        if logged.contains_key(&origin) || logged.len() >= MOST {
            return false;
        }
        logged.insert(origin, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_refused_origins_are_logged_once_in_a_while_and_only_so_many() {
        let log = RefusedOrigins::default();
        let page = |n: usize| WebOrigin::parse(&format!("https://page-{n}.example"));
        let start = Instant::now();
        assert!(log.is_due(page(0), start) && log.is_due(None, start));
        assert!(!log.is_due(page(0), start) && !log.is_due(None, start));
        let due = (1..1000).filter(|n| log.is_due(page(*n), start)).count();
        assert_eq!(due, MOST - 2);
        assert!(!log.is_due(page(0), start + AGAIN_AFTER - Duration::from_secs(1)));
        assert!(log.is_due(page(0), start + AGAIN_AFTER));
        assert!(log.is_due(page(1000), start + AGAIN_AFTER), "the old ones are forgotten");
    }
}
