//! The socket side of the gateway: accepts connections within bounds, and stops in good order.
//!
//! An own accept loop, because the framework's has no limit on how long a request head may take:
//! sockets that send a byte now and then would stay for ever (measured).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::http::App;
use crate::limits::Limits;
use crate::stall::StallGuard;

/// How long connections may take to finish once everything else has.
const LAST_CALL: Duration = Duration::from_secs(3);

/// A connection's place among those that may be open at once.
#[derive(Debug, Clone)]
pub(crate) struct Place(
    #[expect(dead_code, reason = "held, never read")] Arc<OwnedSemaphorePermit>,
);

/// Serves until told to stop, then lets everything under way end.
pub(crate) async fn serve(listener: TcpListener, router: Router, app: Arc<App>) {
    let limits = app.engine.limits.clone();
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = app.stop.cancelled() => break,
        };
        let Ok(place) = place else { break };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: a short pause lets some close.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = app.stop.cancelled() => break,
        };
        let (router, app, limits) = (router.clone(), Arc::clone(&app), limits.clone());
        connections.spawn(connection(stream, router, app, limits, place));
    }
    app.ready.store(false, Ordering::Release);
    drop(listener);
    stop(&app, &connections, &limits).await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    app: Arc<App>,
    limits: Limits,
    place: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    // Shared with a surface that the connection may become: it holds the place until it leaves.
    let place = Place(Arc::new(place));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(place.clone());
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.request_head.max(8 << 10))
        .serve_connection(TokioIo::new(StallGuard::new(stream, limits.write_timeout)), service)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = app.stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // Mistakes of the other side are its own; there is nothing to say about them.
    let _ = connection.await;
}

/// SIGTERM's order (G16): not ready, surfaces told to come back, turns brought to their end,
/// answers sent.
async fn stop(app: &App, connections: &TaskTracker, limits: &Limits) {
    app.surfaces.close();
    connections.close();
    let turns = tokio::time::timeout(limits.drain, app.sessions.drained()).await;
    if turns.is_err() {
        tracing::warn!("some turns were still running; the next start takes them up");
    }
    app.sessions.retire().await;
    // No turn needs them any more.
    app.engine.mcp.stop().await;
    let last = async {
        app.surfaces.wait().await;
        connections.wait().await;
    };
    let _ = tokio::time::timeout(LAST_CALL, last).await;
}

/// Whether only this machine can reach the address.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().is_loopback()
}
