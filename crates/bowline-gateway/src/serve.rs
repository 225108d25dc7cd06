//! The socket side of the gateway: serves until told to stop, and stops in good order (G16).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use bowline_net::Door;

use crate::http::App;

/// How long connections may take to finish once everything else has.
const LAST_CALL: Duration = Duration::from_secs(3);

/// Serves until told to stop. Then: not ready, surfaces told to come back, turns brought to their end,
/// answers sent.
pub(crate) async fn serve(door: Door, router: Router, app: Arc<App>) {
    let connections = door.serve(router, app.stop.clone()).await;
    app.ready.store(false, Ordering::Release);
    app.surfaces.close();
    let turns = tokio::time::timeout(app.engine.limits.drain, app.sessions.drained()).await;
    if turns.is_err() {
        tracing::warn!("some turns were still running; the next start takes them up");
    }
    app.sessions.retire().await;
    // No turn needs them any more.
    app.engine.mcp.stop().await;
    let last = async {
        app.surfaces.wait().await;
        connections.ended(LAST_CALL).await;
    };
    let _ = tokio::time::timeout(LAST_CALL, last).await;
}
