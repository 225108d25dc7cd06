//! What is counted. Labels are routes, statuses and kinds: nobody is named.

use std::sync::OnceLock;

use axum::extract::MatchedPath;
use metrics::counter;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// A request was answered.
pub(super) fn request(route: Option<&MatchedPath>, status: u16) {
    let route = route.map_or("unmatched", MatchedPath::as_str).to_owned();
    let labels = [("route", route), ("status", status.to_string())];
    counter!("bowline_control_requests_total", &labels).increment(1);
}

/// A token was signed.
pub(super) fn issued(kind: &'static str) {
    counter!("bowline_control_tokens_total", "kind" => kind).increment(1);
}

/// One recorder per process, whoever comes first.
pub(super) fn handle() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            // Another recorder may be there already, put by the program around us: then ours
            // stays empty, which is what it should say.
            let _ = metrics::set_global_recorder(recorder);
            handle
        })
        .clone()
}
