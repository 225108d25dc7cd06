//! One connection to a Redis.
//!
//! Made here and not by the client library, so that TLS trusts what all other connections of this
//! process trust, and every step is bounded. Errors are told in our words: those of the library and of
//! the server may quote what was sent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_net::outbound;
use bowline_net::trust::{ServerCheck, tls_config};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::url::{BadRedisUrl, RedisUrl};
use crate::BusError;
use crate::send_queue::{ANSWER_LIMIT, no_answer};

pub(super) struct Server {
    url: RedisUrl,
    tls: Option<Arc<ClientConfig>>,
}

/// An open connection. Closed when it is dropped, even if Redis does not read.
pub(super) struct Connection {
    pub(super) commands: MultiplexedConnection,
    driver: Driver,
}

/// The task that reads and writes the socket; it ends when the connection does.
struct Driver(JoinHandle<()>);

impl Server {
    pub(super) fn new(url: &RedisUrl) -> Result<Self, BadRedisUrl> {
        let tls = match url.tls {
            true => Some(Arc::new(tls_config(ServerCheck::Host, url.ca_file.as_deref())?)),
            false => None,
        };
        Ok(Self { url: url.clone(), tls })
    }

    /// `patience`: how long a command may take.
    pub(super) async fn connect(&self, patience: Duration) -> Result<Connection, BusError> {
        let connected = timeout(ANSWER_LIMIT, self.connect_unbounded(patience));
        connected.await.unwrap_or_else(|_| Err(no_answer()))
    }

    async fn connect_unbounded(&self, patience: Duration) -> Result<Connection, BusError> {
        let host = self.url.host.as_str();
        let socket = TcpStream::connect((host, self.url.port)).await.map_err(io_failed)?;
        socket.set_nodelay(true).map_err(io_failed)?;
        let Some(tls) = &self.tls else {
            return log_in(&self.url.login, socket, patience).await;
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| BusError::Refused("its name cannot be in a certificate".into()))?;
        let socket = TlsConnector::from(Arc::clone(tls)).connect(name, socket).await;
        log_in(&self.url.login, socket.map_err(io_failed)?, patience).await
    }
}

async fn log_in<S>(
    login: &RedisConnectionInfo,
    socket: S,
    patience: Duration,
) -> Result<Connection, BusError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(patience));
    let made = MultiplexedConnection::new_with_config(login, socket, config).await;
    let (mut commands, driver) = made.map_err(|error| failed(&error))?;
    let driver = Driver(tokio::spawn(driver));
    // Without a password nothing was sent yet; the kernel connects to a Redis that is stopped, too.
    let answered = redis::cmd("PING").exec_async(&mut commands).await;
    answered.map_err(|error| failed(&error))?;
    Ok(Connection { commands, driver })
}

impl Connection {
    /// Ends when the connection does.
    pub(super) async fn lost(&mut self) -> BusError {
        let _ = (&mut self.driver.0).await;
        BusError::Unreachable("it closed the connection".into())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.url).finish()
    }
}

/// What went wrong, without what the server or the library says about it.
pub(super) fn failed(error: &RedisError) -> BusError {
    if error.kind() == ErrorKind::AuthenticationFailed {
        return BusError::Refused("its password or user is wrong".into());
    }
    if error.is_timeout() {
        return no_answer();
    }
    match error.code() {
        Some("WRONGPASS" | "NOAUTH") => BusError::Refused("its password or user is wrong".into()),
        Some("LOADING") => BusError::Unreachable("it is starting".into()),
        // The first word of its answer, which names the error: `OOM`, `READONLY`, `NOPERM`.
        Some(code) => BusError::Refused(format!("it answers {code}")),
        None => BusError::Unreachable("the connection broke".into()),
    }
}

fn io_failed(error: std::io::Error) -> BusError {
    if let Some(why) = outbound::untrusted(&error) {
        return BusError::Refused(format!(
            "TLS: its certificate is not trusted: {why}; name the file of its authority with --ca-file, or \
             with ?cafile= in bus.url, and the host as the certificate has it"
        ));
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => BusError::Refused(format!("TLS: {error}")),
        None => BusError::Unreachable(error.kind().to_string()),
    }
}
