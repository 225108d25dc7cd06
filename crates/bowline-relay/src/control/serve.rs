//! The socket side: accepts connections within bounds, and stops in good order.
//!
//! An own accept loop, because the framework's has no limit on how long a request head may take:
//! sockets that send a byte now and then would stay for ever.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::config::{BadConfig, Limits};
use super::registry::OpenError;

/// How long connections may take to finish once told to stop.
const LAST_CALL: Duration = Duration::from_secs(5);

/// Why a control plane did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] BadConfig),
    #[error(transparent)]
    Registry(#[from] OpenError),
    #[error("{address} can be reached from outside, and API keys would travel in the clear")]
    Plain { address: SocketAddr },
    #[error("the address {address} is already in use")]
    AddressInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {reason}")]
    Listen { address: SocketAddr, reason: String },
    #[error("the operating system gives no thread: {0}")]
    Thread(String),
    #[error("cannot ask relays: {0}")]
    Client(String),
}

/// Listens in the clear: on loopback, or where the caller insists.
pub async fn bind(address: SocketAddr, insecure_plain: bool) -> Result<TcpListener, StartError> {
    if !address.ip().is_loopback() && !insecure_plain {
        return Err(StartError::Plain { address });
    }
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
        _ => StartError::Listen { address, reason: error.to_string() },
    })
}

/// What becomes of a stream before HTTP is spoken on it.
pub trait Wrap<S>: Clone + Send + Sync + 'static {
    fn wrap(&self, stream: TcpStream) -> impl Future<Output = std::io::Result<S>> + Send;
}

impl<S, F, Fut> Wrap<S> for F
where
    F: Fn(TcpStream) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = std::io::Result<S>> + Send,
{
    fn wrap(&self, stream: TcpStream) -> impl Future<Output = std::io::Result<S>> + Send {
        self(stream)
    }
}

/// Serves until told to stop, then lets everything under way end.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    listener: TcpListener,
    router: Router,
    wrap: impl Wrap<S>,
    limits: Limits,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = stop.cancelled() => break,
        };
        let Ok(place) = place else { break };
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: a short pause lets some close.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let (router, wrap, limits, stop) =
            (router.clone(), wrap.clone(), limits.clone(), stop.clone());
        connections.spawn(async move {
            let _ = stream.set_nodelay(true);
            let wrapped = tokio::time::timeout(limits.header_timeout, wrap.wrap(stream)).await;
            if let Ok(Ok(stream)) = wrapped {
                connection(stream, peer, router, limits, stop, place).await;
            }
        });
    }
    drop(listener);
    connections.close();
    let _ = tokio::time::timeout(LAST_CALL, connections.wait()).await;
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: SocketAddr,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.request_head.max(8 << 10))
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // Mistakes of the other side are its own; there is nothing to say about them.
    let _ = connection.await;
}
