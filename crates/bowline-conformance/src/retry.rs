//! Servers that limit requests: they are asked again, a bounded number of times.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// How long a server wants to be left alone that answers 429: what it says, within bounds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Duration {
    let said = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(said.unwrap_or(1)).clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

/// How often a request is sent that is answered with 429.
pub(crate) const TRIES: usize = 6;
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
pub(crate) const LIMITED: &str =
    "the server limits requests (429), also after the time that it asks for in Retry-After";
