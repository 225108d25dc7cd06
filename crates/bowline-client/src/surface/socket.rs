//! One WebSocket to a gateway.
//!
//! The only module that uses tungstenite: its interface is protocol frames, and every failure is an
//! [`Ending`].

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bowline_net::dial::{DialedStream, dial};
use bowline_net::outbound;
use bowline_sbp::frame::{ClientFrame, ServerFrame};
use bowline_sbp::id::SessionId;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message, error::ProtocolError};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use super::config::{ConfigError, SurfaceConfig};
use super::ending::Ending;

/// The path of a session's socket, up to its id.
const WS_PATH: &str = "/v1/sbp/ws/";
/// Timeout of DNS, TCP, TLS and the upgrade together.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Write timeout of a frame.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// Timeout for flushing a connection that ends, before the next attempt.
const PARTING_PATIENCE: Duration = Duration::from_secs(1);

/// The address and the credentials. No `Debug`: it holds the key.
#[derive(Clone)]
pub(super) struct Target {
    url: Url,
    socket: Option<PathBuf>,
    authorization: Option<HeaderValue>,
}

impl Target {
    pub(super) fn new(config: &SurfaceConfig) -> Result<Self, ConfigError> {
        let bare = Self::of(&config.gateway, config.session_id)?;
        let authorization = match &config.bearer {
            Some(key) => {
                let value = HeaderValue::try_from(format!("Bearer {key}"));
                let mut value = value.map_err(|_| ConfigError::Bearer)?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        Ok(Self { socket: config.socket.clone(), authorization, ..bare })
    }

    /// A session at a gateway that is shown no key.
    pub(super) fn of(gateway: &Url, session: SessionId) -> Result<Self, ConfigError> {
        let mut url = gateway.clone();
        let scheme = match url.scheme() {
            "http" | "ws" => "ws",
            "https" | "wss" => "wss",
            _ => return Err(ConfigError::Scheme),
        };
        url.set_scheme(scheme).map_err(|()| ConfigError::Scheme)?;
        if !outbound::is_private(&url) {
            return Err(ConfigError::Insecure);
        }
        url.set_path(&format!("{}{WS_PATH}{session}", gateway.path().trim_end_matches('/')));
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self { url, socket: None, authorization: None })
    }

    /// Another session of the same gateway.
    pub(super) fn for_session(mut self, session: SessionId) -> Self {
        if let Some((base, _)) = self.url.path().rsplit_once(WS_PATH) {
            let path = format!("{base}{WS_PATH}{session}");
            self.url.set_path(&path);
        }
        self
    }

    /// Whether the gateway is a process of this machine, as far as its address says.
    pub(super) fn is_on_this_machine(&self) -> bool {
        self.socket.is_none() && self.url.scheme() == "ws"
    }

    #[cfg(test)]
    pub(super) fn shows_a_key(&self) -> bool {
        self.authorization.is_some()
    }

    pub(super) async fn open(self) -> Result<OpenSocket, Ending> {
        let mut request = self.url.as_str().into_client_request().map_err(ending)?;
        if let Some(authorization) = self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization);
        }
        let connecting = async {
            Ok(match &self.socket {
                Some(path) => {
                    let broken = |error| ending(Error::Io(error));
                    let stream = UnixStream::connect(path).await.map_err(broken)?;
                    let upgraded = client_async_with_config(request, stream, Some(limits())).await;
                    OpenSocket::File(Box::new(Socket(upgraded.map_err(ending)?.0)))
                }
                None => {
                    let dialed = dial(&self.url).await;
                    let stream = dialed.map_err(|error| Ending::Broken(error.to_string()))?;
                    let upgraded = client_async_with_config(request, stream, Some(limits())).await;
                    OpenSocket::Net(Box::new(Socket(upgraded.map_err(ending)?.0)))
                }
            })
        };
        match timeout(CONNECT_PATIENCE, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(Ending::Broken(format!(
                "no connection within {} s",
                CONNECT_PATIENCE.as_secs()
            ))),
        }
    }
}

pub(super) fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(32 << 20))
        .max_frame_size(Some(32 << 20))
        .read_buffer_size(8 << 10)
        .write_buffer_size(8 << 10)
        // Enough for the longest message with every character escaped.
        .max_write_buffer_size(8 << 20)
}

/// A connected socket, by the way that it was opened.
pub(super) enum OpenSocket {
    Net(Box<Socket<DialedStream>>),
    File(Box<Socket<UnixStream>>),
}

/// A connected socket.
pub(super) struct Socket<S>(pub(super) WebSocketStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(super) async fn say(&mut self, frame: &ClientFrame) -> Result<(), Ending> {
        let sending = self.0.send(Message::text(frame.to_json()));
        let sent = timeout(WRITE_PATIENCE, sending).await;
        self.written(sent.ok()).await
    }

    /// The next frame; none for a ping or another message without content. Cancel-safe.
    pub(super) async fn hear(&mut self) -> Result<Option<ServerFrame>, Ending> {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => {
                serde_json::from_str(&text).map(Some).map_err(|_| Ending::Unreadable)
            }
            Some(Ok(Message::Ping(_))) => {
                // tungstenite has queued the pong; the gateway waits for it (SBP-L2-06).
                let flushed = timeout(WRITE_PATIENCE, self.0.flush()).await;
                self.written(flushed.ok()).await.map(|()| None)
            }
            Some(Ok(Message::Close(close))) => {
                Err(Ending::Closed(close.map_or(1000, |close| close.code.into())))
            }
            Some(Ok(_)) => Ok(None),
            Some(Err(error)) => Err(ending(error)),
            None => Err(Ending::Broken("the connection broke off".into())),
        }
    }

    /// Flushes the last frames, including the answer to a close.
    pub(super) async fn part(mut self) {
        let _ = timeout(PARTING_PATIENCE, self.0.flush()).await;
    }

    async fn written(&mut self, written: Option<Result<(), Error>>) -> Result<(), Ending> {
        match written {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.last_words().await.unwrap_or_else(|| ending(error))),
            None => Err(Ending::Broken(format!(
                "the gateway read nothing for {} s",
                WRITE_PATIENCE.as_secs()
            ))),
        }
    }

    /// Reads the remaining frames after a failed write. A closed connection is often noticed by a
    /// write first, and a close code such as 4009 (replaced) must not be missed: reconnecting would
    /// take the session from the new surface. No pong can be sent, so this confirms nothing.
    async fn last_words(&mut self) -> Option<Ending> {
        let reading = async {
            loop {
                if let Message::Close(close) = self.0.next().await?.ok()? {
                    return close.map(|close| Ending::Closed(close.code.into()));
                }
            }
        };
        timeout(PARTING_PATIENCE, reading).await.ok().flatten()
    }
}

fn ending(error: Error) -> Ending {
    Ending::Broken(match error {
        Error::Http(response) => return Ending::Answered(response.status()),
        Error::Capacity(_) => return Ending::Oversized,
        Error::Io(error) => sentence(&error),
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            "the connection broke off".into()
        }
        error => format!("the gateway does not speak WebSocket: {error}"),
    })
}

fn sentence(error: &io::Error) -> String {
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
            "the gateway's network is unreachable".into()
        }
        io::ErrorKind::TimedOut => "the gateway does not answer".into(),
        _ => format!("the connection failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::surface::SurfaceContext;

    fn config(gateway: &str) -> SurfaceConfig {
        SurfaceConfig {
            gateway: gateway.parse().unwrap(),
            socket: None,
            session_id: "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f".parse().unwrap(),
            session_token: String::new(),
            roaming_token: None,
            follow: true,
            bearer: None,
            surface: SurfaceContext::default(),
            join: false,
            take_over: false,
            approves: true,
            backoff: Default::default(),
        }
    }

    #[test]
    fn sbp_l2_01_the_address_of_a_session_follows_from_the_gateways() {
        let path = "/v1/sbp/ws/0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
        for (gateway, base) in [
            ("http://127.0.0.1:8080", "ws://127.0.0.1:8080"),
            ("http://[::1]:8080/", "ws://[::1]:8080"),
            ("https://example.org", "wss://example.org"),
            ("https://example.org/bowline/?x=1#y", "wss://example.org/bowline"),
        ] {
            let target = Target::new(&config(gateway)).ok().unwrap();
            assert_eq!(target.url.as_str(), format!("{base}{path}"));
        }
    }

    #[test]
    fn what_can_never_connect_is_refused_at_once() {
        assert_eq!(Target::new(&config("ftp://example.org")).err(), Some(ConfigError::Scheme));
        let broken = SurfaceConfig { bearer: Some("a\nb".into()), ..config("http://localhost") };
        assert_eq!(Target::new(&broken).err(), Some(ConfigError::Bearer));
    }

    #[test]
    fn no_token_is_sent_to_another_machine_in_the_clear() {
        for gateway in ["http://example.org", "ws://192.0.2.1:8080", "http://x.localhost:8080"] {
            let refused = Target::new(&config(gateway)).err();
            assert_eq!(refused, Some(ConfigError::Insecure), "{gateway}");
        }
    }

    #[test]
    fn failures_read_as_sentences() {
        for (error, why) in [
            (io::Error::from(io::ErrorKind::ConnectionRefused), "connection refused"),
            (io::Error::from(io::ErrorKind::BrokenPipe), "the connection broke off"),
            (io::Error::other("no such host"), "the connection failed: no such host"),
            (
                io::Error::other(rustls::Error::DecryptError),
                "no secure connection: cannot decrypt peer's message",
            ),
        ] {
            assert_eq!(ending(Error::Io(error)), Ending::Broken(why.into()));
        }
    }
}
