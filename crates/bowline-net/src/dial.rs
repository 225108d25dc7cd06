//! Opens a connection for a protocol that is not HTTP requests, such as WebSocket: directly or through
//! the proxy of the environment, with TLS if the URL asks for it.
//!
//! A proxy is asked for a tunnel (`CONNECT`, RFC 9110 section 9.3.6), for `ws` and for `wss`: TLS is
//! spoken inside it, so the proxy learns host and port and nothing else. Which proxy, if any, decides
//! [`Proxy`]; which certificates are trusted, [`crate::trust`]. Both as for HTTP requests.

mod maybe_tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

pub use self::maybe_tls::MaybeTls;
use crate::proxy::{Proxy, authority};
use crate::{loopback, outbound, progress, trust};

/// A connection to a server, or through a proxy; the inner layer is TLS if the proxy speaks it.
pub type DialedStream = MaybeTls<MaybeTls<TcpStream>>;

/// Why there is no connection. The text names no user, password, path or query.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("its address has no host")]
    NoHost,
    #[error("{}", words(.0))]
    Server(io::Error),
    #[error("the proxy {proxy} cannot be reached: {}", words(.why))]
    ProxyUnreachable { proxy: String, why: io::Error },
    #[error("the proxy {proxy} did not answer in time")]
    ProxySilent { proxy: String },
    #[error("the proxy {proxy} refused ({status}){}", remedy(*.status))]
    ProxyRefused { proxy: String, status: u16 },
    #[error("the proxy {proxy} does not answer as an HTTP proxy")]
    ProxyGarbled { proxy: String },
    #[error(
        "the proxy {proxy} is a {scheme} proxy; only http:// and https:// proxies are supported"
    )]
    ProxyKind { proxy: String, scheme: String },
}

/// Connects to the server at `url` (`ws`, `wss`, `http` or `https`). The caller sets the deadline of
/// the whole; a proxy has one of its own, so that it is told apart from the server.
pub async fn dial(url: &Url) -> Result<DialedStream, DialError> {
    dial_by(url, Proxy::of(url).as_ref(), trust::client_config).await
}

async fn dial_by(
    url: &Url,
    proxy: Option<&Proxy>,
    tls: impl Fn() -> Result<Arc<ClientConfig>, rustls::Error>,
) -> Result<DialedStream, DialError> {
    let host = url.host_str().map(bare).ok_or(DialError::NoHost)?;
    let port = url.port_or_known_default().ok_or(DialError::NoHost)?;
    let stream = match proxy {
        None => MaybeTls::Plain(watched(host, port).await.map_err(DialError::Server)?),
        Some(proxy) => {
            let target = authority(url).ok_or(DialError::NoHost)?;
            let tunnel = timeout(PROXY_PATIENCE, through(proxy, &target, &tls)).await;
            tunnel.map_err(|_| DialError::ProxySilent { proxy: proxy.address() })??
        }
    };
    match url.scheme() {
        "wss" | "https" => secured(stream, host, &tls).await.map_err(DialError::Server),
        _ => Ok(MaybeTls::Plain(stream)),
    }
}

/// A tunnel to `target` through the proxy.
async fn through(
    proxy: &Proxy,
    target: &str,
    tls: &impl Fn() -> Result<Arc<ClientConfig>, rustls::Error>,
) -> Result<MaybeTls<TcpStream>, DialError> {
    let address = proxy.address();
    let is_tls = match proxy.uri().scheme_str() {
        Some("http") | None => false,
        Some("https") => true,
        Some(other) => {
            return Err(DialError::ProxyKind { proxy: address, scheme: other.to_owned() });
        }
    };
    let unreachable = |why| DialError::ProxyUnreachable { proxy: address.clone(), why };
    let host = proxy.uri().host().map(bare).unwrap_or_default();
    let port = proxy.uri().port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = watched(host, port).await.map_err(unreachable)?;
    let mut stream = match is_tls {
        true => secured(stream, host, tls).await.map_err(unreachable)?,
        false => MaybeTls::Plain(stream),
    };
    match ask_for_tunnel(&mut stream, proxy, target).await.map_err(unreachable)? {
        Some(200..=299) => Ok(stream),
        Some(status) => Err(DialError::ProxyRefused { proxy: address, status }),
        None => Err(DialError::ProxyGarbled { proxy: address }),
    }
}

/// Asks for a tunnel; the status of the answer, `None` if it is no answer of a proxy.
async fn ask_for_tunnel(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    proxy: &Proxy,
    target: &str,
) -> io::Result<Option<u16>> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(authorization) = proxy.authorization() {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await?;
    stream.flush().await?;
    let mut head = Vec::with_capacity(512);
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let status = status(&head);
            // In a tunnel the client speaks first: what comes before is not the server's.
            let is_tunnel = matches!(status, Some(200..=299));
            return Ok(status.filter(|_| !is_tunnel || end + 4 == head.len()));
        }
        if head.len() > LONGEST_HEAD || (head.len() >= 5 && !head.starts_with(b"HTTP/")) {
            return Ok(None);
        }
    }
}

/// The status in `HTTP/1.1 200 Connection established`.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok().filter(|status| (100..=599).contains(status))
}

/// Tries the addresses of a host one after the other.
/// A TCP connection that shows its progress while it is slow.
async fn watched(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = tcp(host, port).await?;
    progress::show(&stream);
    Ok(stream)
}

/// A TCP connection without a proxy, for targets that a person named: the first address that answers.
pub async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    let mut addresses = lookup_host((host, port)).await?.peekable();
    while let Some(address) = addresses.next() {
        // A black hole at one address leaves time for the next one.
        let patience = if addresses.peek().is_some() { ADDRESS_PATIENCE } else { Duration::MAX };
        match timeout(patience, tcp_to(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

async fn tcp_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    loopback::without_pacing(&socket, address.ip());
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn secured<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    tls: &impl Fn() -> Result<Arc<ClientConfig>, rustls::Error>,
) -> io::Result<MaybeTls<S>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(tls().map_err(io::Error::other)?);
    let mut stream = connector.connect(name, stream).await?;
    stream.get_mut().1.set_buffer_limit(Some(progress::TLS_BUFFER));
    Ok(MaybeTls::Tls(Box::new(stream)))
}

/// An IPv6 address without its brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn words(error: &io::Error) -> String {
    if let Some(why) = outbound::untrusted(error) {
        return format!("its certificate is not trusted: {why}");
    }
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return format!("no secure connection: {tls}");
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => "the connection broke off".into(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "its network is unreachable".into()
        }
        io::ErrorKind::TimedOut => "it does not answer".into(),
        _ => error.to_string(),
    }
}

/// What to do about a refusal, as the end of a sentence.
fn remedy(status: u16) -> &'static str {
    match status {
        407 => {
            ": it wants a user and a password; write them as HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"
        }
        403 | 405 => {
            ": it does not allow this host or port; ask who runs it, or list the host in NO_PROXY"
        }
        502..=504 => ": it cannot reach the host itself",
        _ => "",
    }
}

/// How long one address of a host may take before the next one is tried.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);
/// The deadline of a proxy, for TCP, TLS and its answer together.
const PROXY_PATIENCE: Duration = Duration::from_secs(8);
/// The longest head of a proxy's answer, in bytes.
const LONGEST_HEAD: usize = 16 << 10;

#[cfg(test)]
mod tests;
