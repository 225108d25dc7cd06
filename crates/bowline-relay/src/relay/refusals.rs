//! Refused tokens in the log: which reason, and how often.
//!
//! Apart from the metric, which counts all of them: an operator who reads the log has to learn why nobody
//! is let in, and a stranger must not be able to fill the disk. So each reason is logged at once, and then
//! once a minute with a count. Nothing of a token is logged.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The pause between two lines about one reason.
const EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<BTreeMap<&'static str, Noted>>);

#[derive(Debug)]
struct Noted {
    logged: Instant,
    /// Since that line.
    more: u64,
}

impl RefusalLog {
    /// Logs a refusal, or counts it for the next line.
    pub(crate) fn refused(&self, reason: &'static str, why: &str) {
        let Some(count) = self.due(reason, Instant::now()) else { return };
        match reason {
            // Whoever looks at the address with a browser.
            "missing" => tracing::info!(reason, count, "connections are refused: {why}"),
            "issuer" => tracing::warn!(
                reason,
                count,
                "tokens are refused: {why}; --issuer has to be the same at relay and control plane"
            ),
            "region" => tracing::warn!(
                reason,
                count,
                "tokens are refused: {why}; --region has to be the same at relay and control plane"
            ),
            _ => tracing::warn!(reason, count, "tokens are refused: {why}"),
        }
    }

    /// How many refusals a line is to be written for; none yet if there was one a moment ago.
    fn due(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = noted.get_mut(reason) else {
            noted.insert(reason, Noted { logged: now, more: 0 });
            return Some(1);
        };
        known.more += 1;
        if now < known.logged + EVERY {
            return None;
        }
        known.logged = now;
        Some(std::mem::take(&mut known.more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_at_once_and_then_once_a_minute_with_a_count() {
        let (log, start) = (RefusalLog::default(), Instant::now());
        assert_eq!(log.due("issuer", start), Some(1));
        assert_eq!(log.due("expired", start), Some(1), "each reason by itself");
        for second in 0..60 {
            assert_eq!(log.due("issuer", start + Duration::from_secs(second)), None);
        }
        assert_eq!(log.due("issuer", start + EVERY), Some(61));
        assert_eq!(log.due("issuer", start + EVERY), None);
        assert_eq!(log.due("issuer", start + 3 * EVERY), Some(2));
    }
}
