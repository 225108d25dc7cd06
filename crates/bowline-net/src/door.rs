//! The listener: accepts connections within limits, passes their requests to a service, and drains
//! on shutdown.
//!
//! An accept loop of our own, because the framework's has no timeout for request heads: sockets
//! that send a byte now and then would stay open for ever (measured). Nor has it a write timeout
//! for clients that send a request and never read.
//!
//! Connections come from its sockets, and from inside the process by an [`Entrance`]; both are served in
//! the same way.
//!
//! Invariants
//! - A connection holds a permit of the global limit and of the limit of its address or device, or it
//!   is not served.
//! - No connection is taken in the clear from another machine, unless the configuration says so
//!   ([`crate::exposure`]).
//! - TLS handshake, request head, the idle time between two requests and every write have a deadline.
//!   Bodies have one where they are read ([`crate::body`]).
//! - A client that closes its sending side after its request still gets its answer, for a while
//!   ([`crate::reads`]).
//! - HTTP/2 is served over TLS alone, to clients that ask for it, and within the same limits
//!   (the module `http2`).
//! - Once stopped, no new connection is accepted, and connections end after the current response.

mod connection;
mod entrance;
mod http2;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::Service;

pub use self::connection::taken_over;
use self::connection::{Remote, connection, secured};
use self::entrance::Entering;
pub use self::entrance::{Entrance, EntryRefused};
use crate::exposure::{DoorConfig, PlainAddress, TakenFrom};
use crate::loopback;
use crate::peer::{ConnectionPermit, OpenConnections};
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
    /// The same per IPv4 address, IPv6 network or device; further ones are closed at once. 127.0.0.1,
    /// ::1 and trusted proxies are exempt. 0: no limit.
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
    /// Requests that run at once on one connection of HTTP/2; further ones are refused. 0: HTTP/2 is not
    /// offered.
    pub http2_streams: u32,
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
    places: Arc<Semaphore>,
    open: Arc<OpenConnections>,
    entrance: Entrance,
    entering: mpsc::UnboundedReceiver<Entering>,
}

impl Door {
    /// Binds the address, if it may.
    pub async fn open(config: DoorConfig, limits: DoorLimits) -> Result<Self, DoorError> {
        let taken_from = config.taken_from()?;
        let DoorConfig { address, tls, behind_proxy: trusted, .. } = config;
        let http2 = limits.http2_streams > 0;
        let certificate = tls.map(|tls| Certificate::load(tls, http2)).transpose()?.map(Arc::new);
        let listener = TcpListener::bind(address).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => DoorError::AddressInUse { address },
            _ => DoorError::Listen { address, reason: error.to_string() },
        })?;
        loopback::without_pacing(&listener, address.ip());
        let address = listener.local_addr().unwrap_or(address);
        let places = Arc::new(Semaphore::new(limits.connections));
        let open = OpenConnections::new(limits.connections_per_address);
        let (entrance, entering) = Entrance::new(Arc::clone(&places), Arc::clone(&open));
        Ok(Self {
            listener,
            address,
            certificate,
            limits,
            trusted,
            taken_from,
            places,
            open,
            entrance,
            entering,
        })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn is_tls(&self) -> bool {
        self.certificate.is_some()
    }

    /// The way in for connections that begin inside the process. What enters before [`Door::serve`]
    /// waits for it.
    pub fn entrance(&self) -> Entrance {
        self.entrance.clone()
    }

    /// Serves until `stop` is cancelled; then its connections end, which [`Connections`] waits for.
    /// Each request has a [`Peer`] in its extensions.
    pub async fn serve<S, B>(self, service: S, stop: CancellationToken) -> Connections
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let renewing = self.certificate.clone().map(|certificate| certificate.watch());
        let _renewing = renewing.map(|watch| AbortOnDropHandle::new(tokio::spawn(watch)));
        let connections = TaskTracker::new();
        let Self { certificate, limits, trusted, mut entering, .. } = self;
        let state = Arc::new(DoorState { certificate, limits, trusted, stop });
        let accepting = Accepting {
            listener: self.listener,
            taken_from: self.taken_from,
            places: self.places,
            open: self.open,
            state: &state,
        };
        let accepting = accepting.run(|socket: TcpStream, from: SocketAddr, place| {
            let (state, service) = (Arc::clone(&state), service.clone());
            connections.spawn(async move {
                if let Some(stream) = secured(socket, &state).await {
                    connection(stream, Remote::Address(from.ip()), state, service, place).await;
                }
            });
        });
        let entering = async {
            while let Some(Entering { stream, device, place }) = entering.recv().await {
                let (state, service) = (Arc::clone(&state), service.clone());
                connections.spawn(connection(
                    stream,
                    Remote::Device(device),
                    state,
                    service,
                    place,
                ));
            }
        };
        tokio::select! {
            _ = async { tokio::join!(accepting, entering) } => {}
            () = state.stop.cancelled() => {}
        }
        connections.close();
        Connections(connections)
    }
}

/// The accept loop of a listener.
struct Accepting<'a> {
    listener: TcpListener,
    taken_from: TakenFrom,
    places: Arc<Semaphore>,
    open: Arc<OpenConnections>,
    state: &'a DoorState,
}

impl Accepting<'_> {
    async fn run(self, serve: impl Fn(TcpStream, SocketAddr, ConnectionPermit)) {
        let (state, mut warnings) = (self.state, Warnings::default());
        while let Ok(place) = Arc::clone(&self.places).acquire_owned().await {
            let (socket, from) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
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
            let Ok(of_address) = self.open.from_address(from.ip(), &state.trusted) else {
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
            serve(socket, from, ConnectionPermit::new(place, of_address));
        }
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

#[cfg(test)]
mod tests;
