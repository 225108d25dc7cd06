//! The socket side: accepts connections within bounds, and stops in good order.
//!
//! An own accept loop, because a framework's has no limit on how long a request head may take.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::line::Ending;
use super::stream::Stream;
use super::{Shared, http};

/// How long requests under way may take once all connections have ended.
const LAST_CALL: Duration = Duration::from_secs(2);

/// A connection's place among those that may be open at once.
#[derive(Debug, Clone)]
pub(crate) struct Place(
    #[expect(dead_code, reason = "held, never read")] Arc<OwnedSemaphorePermit>,
);

/// Serves until told to stop, then lets all connections end.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, stop: impl Future) {
    tokio::pin!(stop);
    let places = Arc::new(Semaphore::new(shared.config.limits.connections));
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            _ = &mut stop => break,
        };
        let Ok(place) = place else { break };
        let (stream, from) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: a short pause lets some close.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            _ = &mut stop => break,
        };
        let place = Place(Arc::new(place));
        shared.requests.spawn(connection(stream, from, Arc::clone(&shared), place));
    }
    shared.stopping.store(true, Ordering::Release);
    drop(listener);
    drain(&shared).await;
}

async fn connection(stream: TcpStream, from: SocketAddr, shared: Arc<Shared>, place: Place) {
    let _ = stream.set_nodelay(true);
    let limits = &shared.config.limits;
    let stream = match &shared.certificate {
        None => Stream::Plain(stream),
        Some(certificate) => {
            let accepting = certificate.acceptor().accept(stream);
            match tokio::time::timeout(limits.header_timeout, accepting).await {
                Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
                // Mistakes of the other side are its own.
                _ => return,
            }
        }
    };
    let service = {
        let shared = Arc::clone(&shared);
        service_fn(move |request: Request<Incoming>| {
            http::answer(Arc::clone(&shared), from, place.clone(), request)
        })
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.request_head.max(8 << 10))
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = shared.quit.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Not ready, everybody told to come back, what waits is sent, then out (G16).
async fn drain(shared: &Shared) {
    shared.quit.cancel();
    shared.requests.close();
    shared.connections.close();
    let ended = async {
        // Again and again: somebody may have been on its way in.
        loop {
            shared.harbour.close_all(Ending::Restart);
            let pause = Duration::from_millis(100);
            if tokio::time::timeout(pause, shared.connections.wait()).await.is_ok() {
                break;
            }
        }
    };
    if tokio::time::timeout(shared.config.limits.drain, ended).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
    let _ = tokio::time::timeout(LAST_CALL, shared.requests.wait()).await;
}
