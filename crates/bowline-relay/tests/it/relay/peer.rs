//! The other end of a connection: a client or a daemon, without its cryptography.

use bowline_sbrp::control::{Code, ControlCode};
use bowline_sbrp::frame::{Frame, Signal};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream};

use super::issuer::sid;
use super::server::PATIENCE;

pub(crate) struct Peer {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Peer {
    /// Connects, or gives the status and error of the refusal.
    pub(crate) async fn connect(url: &str) -> Result<Self, (u16, Value)> {
        Self::connect_as(url, None, None).await
    }

    pub(crate) async fn connect_as(
        url: &str,
        bearer: Option<&str>,
        connector: Option<Connector>,
    ) -> Result<Self, (u16, Value)> {
        let mut request = url.into_client_request().unwrap();
        if let Some(token) = bearer {
            let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
            request.headers_mut().insert("authorization", value);
        }
        let connecting =
            tokio_tungstenite::connect_async_tls_with_config(request, None, true, connector);
        match tokio::time::timeout(PATIENCE, connecting).await.expect("an answer in time") {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(Error::Http(answer)) => {
                let status = answer.status().as_u16();
                let body = answer.into_body().unwrap_or_default();
                Err((status, serde_json::from_slice(&body).unwrap_or_default()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn send(&mut self, frame: &Frame) {
        self.send_bytes(frame.encode()).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: impl Into<Bytes>) {
        self.socket.send(Message::Binary(bytes.into())).await.unwrap();
    }

    pub(crate) async fn signal(&mut self, session: u64, signal: Signal) {
        self.send(&Frame::Signal { session: sid(session), signal }).await;
    }

    /// The next frame, or the close code.
    pub(crate) async fn next(&mut self) -> Result<Frame, Option<u16>> {
        let next = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Binary(bytes))) => return Ok(Frame::decode(bytes).unwrap()),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(close))) => {
                        return Err(close.map(|close| u16::from(close.code)));
                    }
                    None | Some(Err(_)) => return Err(None),
                    Some(Ok(other)) => panic!("{other:?}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("something in time")
    }

    pub(crate) async fn expect(&mut self, frame: &Frame) {
        assert_eq!(self.next().await.as_ref(), Ok(frame));
    }

    /// A control frame with this code, of this session (0: the connection), without text
    /// (SBRP-RELAY-15).
    pub(crate) async fn expect_code(&mut self, code: ControlCode, session: u64) {
        match self.next().await {
            Ok(Frame::Control { session: of, control }) => {
                assert_eq!(control.code, Code::Known(code));
                assert_eq!(of.map_or(0, |of| of.to_wire()), session, "{code:?}");
                assert_eq!(control.text(), "", "text in production");
            }
            other => panic!("{other:?} instead of {code:?}"),
        }
    }

    /// The relay closes with this code, and nothing comes before that.
    pub(crate) async fn expect_close(&mut self, code: u16) {
        assert_eq!(self.next().await, Err(Some(code)));
    }

    /// A code, and then the close that goes with it.
    pub(crate) async fn expect_last(&mut self, code: ControlCode, session: u64) {
        self.expect_code(code, session).await;
        match self.next().await {
            Err(Some(_)) => {}
            other => panic!("{other:?} after {code:?}"),
        }
    }

    /// The connection works: a ping is answered, and nothing else comes first.
    pub(crate) async fn expect_quiet(&mut self) {
        let ping = bowline_sbrp::frame::PingPayload::new(b"quiet?").unwrap();
        self.send(&Frame::Ping(ping)).await;
        self.expect(&Frame::Pong(ping)).await;
    }

    pub(crate) async fn close(mut self) {
        let _ = self.socket.close(None).await;
        while let Some(Ok(_)) = self.socket.next().await {}
    }
}

pub(crate) fn data(session: u64, payload: impl Into<Bytes>) -> Frame {
    Frame::Data { session: sid(session), payload: payload.into() }
}
