//! The listener: accepts connections within limits, passes their requests to a service, and drains
//! on shutdown.
//!
//! An accept loop of our own, because the framework's has no timeout for request heads: sockets
//! that send a byte now and then would stay open for ever (measured). Nor has it a write timeout
//! for clients that send a request and never read.
//!
//! Invariants
//! - A connection holds a permit of the global limit and of the limit of its address, or it is not
//!   served.
//! - No connection is taken in the clear from another machine, unless the configuration says so
//!   ([`crate::exposure`]).
//! - TLS handshake, request head, the idle time between two requests and every write have a deadline.
//!   Bodies have one where they are read ([`crate::body`]).
//! - A client that closes its sending side after its request still gets its answer, for a while
//!   ([`crate::reads`]).
//! - Once stopped, no new connection is accepted, and connections end after the current response.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::{Service, ServiceExt as _};

use crate::exposure::{DoorConfig, PlainAddress, TakenFrom};
use crate::forwarded;
use crate::head_wait::HeadTimer;
use crate::linger::{EarlyAnswer, Linger};
use crate::loopback;
use crate::peer::{Addresses, ConnectionPermit, Peer};
use crate::reads::{Exchange, Reads};
use crate::stall::StallGuard;
use crate::stream::Stream;
use crate::tls::{BadCertificate, Certificate};

/// The pause after a failed accept: most likely the process is out of file descriptors, and some
/// connections close meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two warnings about refused connections.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// The longest keep-alive time: a deadline has to be a point in time.
const LONGEST_KEEP_ALIVE: Duration = Duration::from_secs(365 * 24 * 3600);
/// The smallest limit for a request head that hyper accepts.
const SMALLEST_HEAD: usize = 8 << 10;

/// Limits of a listener (G11, G12).
#[derive(Debug, Clone, PartialEq)]
pub struct DoorLimits {
    /// Open connections; further ones wait for one to close.
    pub connections: usize,
    /// The same per IPv4 address or IPv6 network; further ones are closed at once. 127.0.0.1, ::1
    /// and trusted proxies are exempt. 0: no limit.
    pub connections_per_address: usize,
    /// The largest request head, in bytes; at least 8 KiB.
    pub request_head: usize,
    /// Timeout of the TLS handshake and of the request head, each.
    pub header_timeout: Duration,
    /// How long a connection may be idle between two requests; 0: it is closed after each response.
    pub keep_alive: Duration,
    /// How long a response goes on for a client that has closed its sending side: it may wait for
    /// the answer, or be gone.
    pub half_closed: Duration,
    /// How long a write may make no progress because the client does not read.
    pub write_timeout: Duration,
}

/// Why a listener could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DoorError {
    #[error(transparent)]
    Plain(#[from] PlainAddress),
    #[error("the address {address} is already in use")]
    AddressInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {reason}")]
    Listen { address: SocketAddr, reason: String },
    #[error(transparent)]
    Tls(#[from] BadCertificate),
}

impl DoorError {
    /// What to do about it; `usual` is the default address of such a server.
    pub fn hint(&self, usual: &str) -> String {
        match self {
            Self::Plain(_) => PlainAddress::HINT.into(),
            Self::AddressInUse { address } => {
                let next = SocketAddr::new(address.ip(), address.port().wrapping_add(1));
                format!("another program listens there; try --listen {next}")
            }
            Self::Listen { .. } => format!("try --listen {usual}"),
            Self::Tls(BadCertificate::File { .. }) => "check --tls-cert and --tls-key".into(),
            Self::Tls(_) => {
                "give the certificate chain and its key as PEM files that belong together".into()
            }
        }
    }
}

/// A bound listener. No connection is served before [`Door::serve`].
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Option<Arc<Certificate>>,
    limits: DoorLimits,
    trusted: Vec<IpNet>,
    taken_from: TakenFrom,
}

impl Door {
    /// Binds the address, if it may.
    pub async fn open(config: DoorConfig, limits: DoorLimits) -> Result<Self, DoorError> {
        let taken_from = config.taken_from()?;
        let DoorConfig { address, tls, behind_proxy: trusted, .. } = config;
        let certificate = tls.map(Certificate::load).transpose()?.map(Arc::new);
        let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => DoorError::AddressInUse { address },
            _ => DoorError::Listen { address, reason: error.to_string() },
        })?;
        loopback::without_pacing(&listener, address.ip());
        let address = listener.local_addr().unwrap_or(address);
        Ok(Self { listener, address, certificate, limits, trusted, taken_from })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn is_tls(&self) -> bool {
        self.certificate.is_some()
    }

    /// Serves until `stop` is cancelled; then its connections end, which [`Connections`] waits for.
    /// Each request has a [`Peer`] in its extensions.
    pub async fn serve<S, B>(self, service: S, stop: CancellationToken) -> Connections
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let renewing = self.certificate.clone().map(|certificate| certificate.watch());
        let _renewing = renewing.map(|watch| AbortOnDropHandle::new(tokio::spawn(watch)));
        let connections = TaskTracker::new();
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let addresses = Addresses::new(self.limits.connections_per_address);
        let state = Arc::new(DoorState {
            certificate: self.certificate,
            limits: self.limits,
            trusted: self.trusted,
            stop,
        });
        let mut warnings = Warnings::default();
        loop {
            let place = tokio::select! {
                place = Arc::clone(&places).acquire_owned() => place,
                () = state.stop.cancelled() => break,
            };
            let Ok(place) = place else { break };
            let (stream, from) = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
                () = state.stop.cancelled() => break,
            };
            if !self.taken_from.takes(from.ip(), &state.trusted) {
                warnings.log(|| {
                    tracing::warn!(
                        from = %from.ip(),
                        "a connection in the clear was closed: it is from none of the proxies of \
                         --behind-proxy"
                    );
                });
                continue;
            }
            let Ok(of_address) = addresses.place(from.ip(), &state.trusted) else {
                warnings.log(|| {
                    tracing::warn!(
                        from = %from.ip(),
                        most = state.limits.connections_per_address,
                        "connections of one address are refused: it has as many as it may; a proxy \
                         has to be named with --behind-proxy"
                    );
                });
                continue;
            };
            let place = ConnectionPermit::new(place, of_address);
            connections.spawn(connection(stream, from, Arc::clone(&state), service.clone(), place));
        }
        connections.close();
        Connections(connections)
    }
}

/// Refused connections come as fast as strangers make them: the log says so now and then.
#[derive(Debug, Default)]
struct Warnings {
    last: Option<Instant>,
}

impl Warnings {
    fn log(&mut self, warn: impl FnOnce()) {
        if self.last.is_none_or(|last| last.elapsed() > WARN_EVERY) {
            self.last = Some(Instant::now());
            warn();
        }
    }
}

/// State shared by all connections of a listener.
#[derive(Debug)]
struct DoorState {
    certificate: Option<Arc<Certificate>>,
    limits: DoorLimits,
    trusted: Vec<IpNet>,
    stop: CancellationToken,
}

/// The remaining connections of a stopped listener.
#[derive(Debug)]
pub struct Connections(TaskTracker);

impl Connections {
    /// Waits until all have ended, for at most `within`; returns whether they have.
    pub async fn ended(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.0.wait()).await.is_ok()
    }
}

async fn connection<S, B>(
    stream: TcpStream,
    from: SocketAddr,
    state: Arc<DoorState>,
    service: S,
    place: ConnectionPermit,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let _ = stream.set_nodelay(true);
    let limits = &state.limits;
    let stream = match &state.certificate {
        None => Stream::Plain(stream),
        Some(certificate) => {
            let accepting = certificate.acceptor().accept(stream);
            match tokio::time::timeout(limits.header_timeout, accepting).await {
                Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
                // A failed or timed-out handshake is the client's fault: not logged.
                _ => return,
            }
        }
    };
    let (early, exchange) = (EarlyAnswer::default(), Exchange::default());
    let half_closed = CancellationToken::new();
    let answer = {
        let (state, early, exchange) = (Arc::clone(&state), early.clone(), exchange.clone());
        let half_closed = half_closed.clone();
        service_fn(move |mut request: Request<Incoming>| {
            exchange.respond();
            let address = forwarded::behind(from.ip(), request.headers(), &state.trusted);
            let is_forwarded = forwarded::is_forwarded(request.headers());
            let (place, half_closed) = (place.clone(), half_closed.clone());
            request.extensions_mut().insert(Peer { address, is_forwarded, place, half_closed });
            let has_body = !request.body().is_end_stream();
            let answering = service.clone().oneshot(request);
            let (early, exchange) = (early.clone(), exchange.clone());
            async move {
                let mut response = answering.await?;
                let status = response.status();
                early.set(has_body && (status.is_client_error() || status.is_server_error()));
                if status == StatusCode::SWITCHING_PROTOCOLS {
                    exchange.upgrade();
                }
                if status == StatusCode::PAYLOAD_TOO_LARGE {
                    // The rest of the body is not read, so no further request can follow.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        })
    };
    let stream = StallGuard::new(stream, limits.write_timeout);
    let timer = HeadTimer::new(limits.header_timeout, exchange.clone());
    let stream = Linger::new(stream, early);
    let stream = Reads::new(stream, exchange, limits.half_closed, half_closed.clone());
    let connection = http1::Builder::new()
        .timer(timer)
        .header_read_timeout(limits.keep_alive.min(LONGEST_KEEP_ALIVE))
        .keep_alive(!limits.keep_alive.is_zero())
        .max_buf_size(limits.request_head.max(SMALLEST_HEAD))
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = state.stop.cancelled() => connection.as_mut().graceful_shutdown(),
        () = half_closed.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The socket of an upgraded connection, and the bytes already read from it. Writes no longer have
/// a deadline: the caller has to set its own.
pub fn taken_over(upgraded: Upgraded) -> Option<(Stream, Bytes)> {
    let parts = upgraded.downcast::<TokioIo<Reads<Linger<StallGuard<Stream>>>>>().ok()?;
    let guarded = parts.io.into_inner().into_inner().into_inner();
    Some((guarded.into_inner(), parts.read_buf))
}

#[cfg(test)]
mod tests;
