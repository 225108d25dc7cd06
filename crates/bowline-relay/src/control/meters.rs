//! The metrics of the control plane. Labels are routes, statuses and kinds, never names or ids.

use std::sync::OnceLock;

use axum::extract::MatchedPath;
use metrics::counter;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Counts an answered request.
pub(super) fn request(route: Option<&MatchedPath>, status: u16) {
    let route = route.map_or("unmatched", MatchedPath::as_str).to_owned();
    let labels = [("route", route), ("status", status.to_string())];
    counter!("bowline_control_requests_total", &labels).increment(1);
}

/// Counts a signed token.
pub(super) fn issued(kind: &'static str) {
    counter!("bowline_control_tokens_total", "kind" => kind).increment(1);
}

/// The process-wide Prometheus recorder, installed on the first call.
pub(super) fn handle() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            // The program may have installed another recorder already; then ours stays empty, as it
            // should.
            let _ = metrics::set_global_recorder(recorder);
            handle
        })
        .clone()
}
