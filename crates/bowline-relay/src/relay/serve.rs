//! Serves until told to stop, then has every connection end.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_net::{Door, Peer};
use hyper::Request;
use hyper::body::Incoming;

use super::outbound_queue::CloseCause;
use super::{Shared, http};

/// How long requests under way may take once all connections have ended.
const LAST_CALL: Duration = Duration::from_secs(2);

/// Serves until told to stop, then lets all connections end.
pub(crate) async fn serve(door: Door, shared: Arc<Shared>, stop: impl Future) {
    let service = {
        let shared = Arc::clone(&shared);
        tower::service_fn(move |mut request: Request<Incoming>| {
            let shared = Arc::clone(&shared);
            async move {
                let peer = request.extensions_mut().remove::<Peer>();
                let peer = peer.expect("the door says who asks");
                Ok::<_, Infallible>(http::answer(shared, peer, request).await)
            }
        })
    };
    let told = async {
        stop.await;
        shared.stopping.store(true, Ordering::Release);
        shared.quit.cancel();
    };
    let (requests, ()) = tokio::join!(door.serve(service, shared.quit.clone()), told);
    drain(&shared).await;
    requests.ended(LAST_CALL).await;
}

/// Everybody is told to come back, and what waits is sent (G16).
async fn drain(shared: &Shared) {
    shared.connections.close();
    let ended = async {
        // Again and again: somebody may have been on its way in.
        loop {
            shared.daemons.close_all(CloseCause::Restart);
            let pause = Duration::from_millis(100);
            if tokio::time::timeout(pause, shared.connections.wait()).await.is_ok() {
                break;
            }
        }
    };
    if tokio::time::timeout(shared.config.limits.drain, ended).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}
