//! The front door: accepts connections within bounds, hands their requests to a service, and stops in
//! good order.
//!
//! An accept loop of our own, because the framework's has no limit on how long a request head may take:
//! sockets that send a byte now and then would stay for ever (measured). Nor has it one for clients that
//! ask and never read.
//!
//! Invariants
//! - A connection has a place among all and among those of its address, or it is not served.
//! - TLS handshake, request head and every write have a deadline. A body's is the reader's
//!   ([`crate::body`]).
//! - Once told to stop, nobody new is accepted, and connections end with the answer under way.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::{Service, ServiceExt as _};

use crate::loopback;
use crate::peer::{self, Addresses, Peer, Place};
use crate::stall::StallGuard;
use crate::stream::Stream;
use crate::tls::{BadCertificate, Certificate, Tls};

/// The pause after a connection could not be accepted: out of descriptors, most likely, and some
/// close meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two warnings that an address has too many connections.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// The smallest bound that hyper takes for a request head.
const SMALLEST_HEAD: usize = 8 << 10;

/// Bounds of a door (G11, G12).
#[derive(Debug, Clone, PartialEq)]
pub struct DoorLimits {
    /// Connections open at once; more wait for one to close.
    pub connections: usize,
    /// The same for one address, or one network of IPv6; more are closed at once. This machine and
    /// trusted proxies are exempt. 0: no limit.
    pub connections_per_address: usize,
    /// The largest request head, in bytes; at least 8 KiB.
    pub request_head: usize,
    /// How long a TLS handshake and a request head may take, each.
    pub header_timeout: Duration,
    /// How long a client may take nothing of what it is sent.
    pub write_timeout: Duration,
}

/// Why a door is not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DoorError {
    #[error("the address {address} is already in use")]
    AddressInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {reason}")]
    Listen { address: SocketAddr, reason: String },
    #[error(transparent)]
    Tls(#[from] BadCertificate),
}

impl DoorError {
    /// What to do about it; `usual` is an address that such a server usually has.
    pub fn hint(&self, usual: &str) -> String {
        match self {
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

/// A listener that has its address. Nobody is served before [`Door::serve`].
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Option<Arc<Certificate>>,
    limits: DoorLimits,
    trusted: Vec<IpNet>,
}

impl Door {
    /// Takes the address. With `tls`, connections speak TLS; `trusted` are proxies that say who is
    /// behind them.
    pub async fn open(
        address: SocketAddr,
        tls: Option<Tls>,
        trusted: Vec<IpNet>,
        limits: DoorLimits,
    ) -> Result<Self, DoorError> {
        let certificate = tls.map(Certificate::load).transpose()?.map(Arc::new);
        let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => DoorError::AddressInUse { address },
            _ => DoorError::Listen { address, reason: error.to_string() },
        })?;
        loopback::without_pacing(&listener, address.ip());
        let address = listener.local_addr().unwrap_or(address);
        Ok(Self { listener, address, certificate, limits, trusted })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn is_tls(&self) -> bool {
        self.certificate.is_some()
    }

    /// Serves until told to stop; then its connections end, which [`Connections`] waits for. Each
    /// request has a [`Peer`] in its extensions.
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
        let hall = Arc::new(Hall {
            certificate: self.certificate,
            limits: self.limits,
            trusted: self.trusted,
            stop,
        });
        let mut warned = None;
        loop {
            let place = tokio::select! {
                place = Arc::clone(&places).acquire_owned() => place,
                () = hall.stop.cancelled() => break,
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
                () = hall.stop.cancelled() => break,
            };
            let Ok(of_address) = addresses.place(from.ip(), &hall.trusted) else {
                if warned.is_none_or(|at: Instant| at.elapsed() > WARN_EVERY) {
                    warned = Some(Instant::now());
                    tracing::warn!(
                        most = hall.limits.connections_per_address,
                        "connections of one address are refused: it has as many as it may; a proxy \
                         has to be trusted"
                    );
                }
                continue;
            };
            let place = Place::new(place, of_address);
            connections.spawn(connection(stream, from, Arc::clone(&hall), service.clone(), place));
        }
        connections.close();
        Connections(connections)
    }
}

/// What all connections of a door share.
#[derive(Debug)]
struct Hall {
    certificate: Option<Arc<Certificate>>,
    limits: DoorLimits,
    trusted: Vec<IpNet>,
    stop: CancellationToken,
}

/// Connections of a door that accepts no more.
#[derive(Debug)]
pub struct Connections(TaskTracker);

impl Connections {
    /// Waits until all have ended, for at most so long. Whether they have.
    pub async fn ended(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.0.wait()).await.is_ok()
    }
}

async fn connection<S, B>(
    stream: TcpStream,
    from: SocketAddr,
    hall: Arc<Hall>,
    service: S,
    place: Place,
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
    let limits = &hall.limits;
    let stream = match &hall.certificate {
        None => Stream::Plain(stream),
        Some(certificate) => {
            let accepting = certificate.acceptor().accept(stream);
            match tokio::time::timeout(limits.header_timeout, accepting).await {
                Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
                // Mistakes of the other side are its own; there is nothing to say about them.
                _ => return,
            }
        }
    };
    let answer = {
        let hall = Arc::clone(&hall);
        service_fn(move |mut request: Request<Incoming>| {
            let address = peer::behind(from.ip(), request.headers(), &hall.trusted);
            request.extensions_mut().insert(Peer { address, place: place.clone() });
            service.clone().oneshot(request)
        })
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.request_head.max(SMALLEST_HEAD))
        .serve_connection(TokioIo::new(StallGuard::new(stream, limits.write_timeout)), answer)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = hall.stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The socket of a connection that is HTTP no more, and what was read of it already. Writes have no
/// deadline from here on: whoever takes it over sets its own.
pub fn taken_over(upgraded: Upgraded) -> Option<(Stream, Bytes)> {
    let parts = upgraded.downcast::<TokioIo<StallGuard<Stream>>>().ok()?;
    Some((parts.io.into_inner().into_inner(), parts.read_buf))
}

#[cfg(test)]
mod tests;
