//! Serves connections until the stop, then drains (G16).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use bowline_net::Door;
use tokio_util::sync::CancellationToken;

use crate::http::App;

/// How long connections may take to close after everything else has ended.
const LAST_CALL: Duration = Duration::from_secs(3);

/// Serves until the stop. Then: not ready, surfaces closed with a restart code, running turns
/// drained, responses sent. `lease`: cancelled when the lease need not be kept any more.
pub(crate) async fn serve(door: Door, router: Router, app: Arc<App>, lease: CancellationToken) {
    let connections = door.serve(router, app.stop.clone()).await;
    app.ready.store(false, Ordering::Release);
    app.surfaces.close();
    let turns = tokio::time::timeout(app.engine.limits.drain, app.sessions.drained()).await;
    if turns.is_err() {
        tracing::warn!(
            "some turns were still running after limits.drain; the next start continues them"
        );
    }
    app.sessions.retire().await;
    lease.cancel();
    // After the turns, which may need them.
    app.engine.mcp.stop().await;
    let last = async {
        app.surfaces.wait().await;
        connections.ended(LAST_CALL).await;
    };
    let _ = tokio::time::timeout(LAST_CALL, last).await;
}
