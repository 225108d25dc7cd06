//! Connects to peers: resolve, check, dial exactly what was checked, then TLS.
//!
//! The one way out of this crate. Each pool of connections has a dialer of its own kind, so a
//! connection that was allowed for a peer of the configuration is never used for a stranger. Proxies of
//! the environment are not asked: behind one, another machine would resolve the name again.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_net::dial::MaybeTls;
use bowline_net::trust::{self, NoTlsConfig, ServerCheck};
use bowline_net::{loopback, progress};
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::lookup::{Lookup, LookupError, checked};
use crate::target::Reach;

/// How long one address may take before the next one is tried.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);

/// Opens connections to peers of one kind.
#[derive(Debug, Clone)]
pub struct Dialer {
    reach: Reach,
    lookup: Arc<dyn Lookup>,
    tls: TlsSettings,
}

/// TLS for HTTP/2 and HTTP/1.1.
#[derive(Clone)]
pub struct TlsSettings(Arc<ClientConfig>);

impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsSettings")
    }
}

impl TlsSettings {
    /// Trusts what all other connections of the process trust.
    pub fn load() -> Result<Self, NoTlsConfig> {
        let mut config = trust::tls_config(ServerCheck::Host, None)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialFault {
    #[error("its address has no host")]
    NoHost,
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Dialer {
    pub fn new(reach: Reach, lookup: Arc<dyn Lookup>, tls: TlsSettings) -> Self {
        Self { reach, lookup, tls }
    }

    async fn dial(self, to: Uri) -> Result<TokioIo<PeerStream>, DialFault> {
        let host = to.host().ok_or(DialFault::NoHost)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_tls = to.scheme_str() == Some("https");
        let port = to.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let addresses = checked(&*self.lookup, host, port, self.reach).await?;
        let stream = first_of(&addresses).await?;
        progress::show(&stream);
        if !is_tls {
            return Ok(TokioIo::new(PeerStream { stream: MaybeTls::Plain(stream), h2: false }));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(self.tls.0).connect(name, stream).await?;
        let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(TokioIo::new(PeerStream { stream: MaybeTls::Tls(Box::new(stream)), h2 }))
    }
}

/// A connection to the first address that answers.
async fn first_of(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for (at, address) in addresses.iter().enumerate() {
        let is_last = at + 1 == addresses.len();
        let patience = if is_last { Duration::MAX } else { ADDRESS_PATIENCE };
        match timeout(patience, connect(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    loopback::without_pacing(&socket, address.ip());
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<PeerStream>;
    type Error = DialFault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialFault>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialFault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(self.clone().dial(to))
    }
}

/// A connection to a peer.
#[derive(Debug)]
pub struct PeerStream {
    stream: MaybeTls<TcpStream>,
    h2: bool,
}

impl Connection for PeerStream {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.h2 { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
