//! Metrics. Handles that every request uses are cached: looking a counter up by name and labels
//! costs more than incrementing it.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Duration;

use bowline_sbp::completion::Usage;
use bowline_sbp::frame::TurnStatus;
use metrics::{Counter, Histogram, counter, gauge, histogram};

static REQUEST_SECONDS: LazyLock<Histogram> = LazyLock::new(|| histogram!("bowline_http_seconds"));
static TURN_SECONDS: LazyLock<Histogram> = LazyLock::new(|| histogram!("bowline_turn_seconds"));
static MODEL_SECONDS: LazyLock<Histogram> = LazyLock::new(|| histogram!("bowline_model_seconds"));
static PASSED_THROUGH: LazyLock<Counter> = LazyLock::new(|| counter!("bowline_passthrough_total"));
static COMPLETE: LazyLock<Counter> = LazyLock::new(|| turns(TurnStatus::Complete));

type Routes = HashMap<(String, u16), Counter>;
/// Bounded: the routes are the router's, the statuses HTTP's.
static REQUESTS: LazyLock<RwLock<Routes>> = LazyLock::new(RwLock::default);

/// A request was answered.
pub(crate) fn request(route: &str, status: u16, took: Duration) {
    REQUEST_SECONDS.record(took.as_secs_f64());
    let known = |routes: &Routes| {
        routes.iter().find(|((r, s), _)| *s == status && r == route).map(|(_, c)| c.clone())
    };
    let found = known(&REQUESTS.read().unwrap_or_else(PoisonError::into_inner));
    let counter = found.unwrap_or_else(|| {
        let labels = [("route", route.to_owned()), ("status", status.to_string())];
        let counter = counter!("bowline_http_requests_total", &labels);
        let mut routes = REQUESTS.write().unwrap_or_else(PoisonError::into_inner);
        routes.insert((route.to_owned(), status), counter.clone());
        counter
    });
    counter.increment(1);
}

/// A turn ended.
pub(crate) fn turn(status: TurnStatus, took: Duration) {
    TURN_SECONDS.record(took.as_secs_f64());
    match status {
        TurnStatus::Complete => COMPLETE.increment(1),
        other => turns(other).increment(1),
    }
}

/// A model call ended, well or not.
pub(crate) fn model(took: Duration) {
    MODEL_SECONDS.record(took.as_secs_f64());
}

/// A translation ended, or was not begun.
pub(crate) fn translation(outcome: &'static str) {
    counter!("bowline_translate_total", "outcome" => outcome).increment(1);
}

/// How long a translation took, however it ended.
pub(crate) fn translation_took(took: Duration) {
    histogram!("bowline_translate_seconds").record(took.as_secs_f64());
}

/// How long a translation took to its first text.
pub(crate) fn translation_began(took: Duration) {
    histogram!("bowline_translate_first_token_seconds").record(took.as_secs_f64());
}

/// The tokens and cost of a translation.
pub(crate) fn translation_cost(usage: &Usage, usd: f64) {
    let tokens = |kind| counter!("bowline_translate_tokens_total", "kind" => kind);
    tokens("prompt").increment(usage.prompt_tokens);
    tokens("completion").increment(usage.completion_tokens);
    // A gauge, because counters are integers; it only grows.
    gauge!("bowline_translate_cost_usd_total").increment(usd);
}

pub(crate) fn passed_through() {
    PASSED_THROUGH.increment(1);
}

fn turns(status: TurnStatus) -> Counter {
    counter!("bowline_turns_total", "status" => status.as_str())
}
