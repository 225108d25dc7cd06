//! Serves until shutdown, then closes every connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_net::{Door, Peer};
use hyper::Request;
use hyper::body::Incoming;

use super::outbound_queue::CloseCause;
use super::{Shared, http};

/// How long open HTTP requests may take after all WebSocket connections have closed.
const LAST_CALL: Duration = Duration::from_secs(2);

/// Serves until `stop` resolves, then closes all connections.
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

/// Closes every connection with the code for a restart, after its queue is written (G16).
async fn drain(shared: &Shared) {
    shared.connections.close();
    let ended = async {
        // Repeated, because a connection may still have been joining.
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
