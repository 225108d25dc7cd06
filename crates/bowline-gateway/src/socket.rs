//! A surface's WebSocket: frames in and out, a timeout on every write, and the close handshake.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message as Packet, Utf8Bytes, WebSocket};
use bowline_sbp::error::Close;
use bowline_sbp::frame::{ClientFrame, ServerFrame};
use futures_util::SinkExt;
use tokio::time::error::Elapsed;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::error::ProtocolError;

/// The read buffer of a socket. Surfaces send little; the library's default is 128 KiB each.
pub(crate) const READ_BUFFER: usize = 2 << 10;
/// Bytes that are buffered before they are written.
pub(crate) const WRITE_BATCH: usize = 64 << 10;
/// How long the peer may take to answer a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How a socket ends.
#[derive(Debug)]
pub(crate) enum SocketEnd {
    /// A last frame, then a close frame.
    With(Box<ServerFrame>, Close),
    /// A close frame.
    Bare(Close),
    /// A close frame for a violation of the WebSocket protocol: its code (RFC 6455, 7.4.1) and
    /// reason.
    Broken(u16, &'static str),
    /// The peer closed; the library has queued the answering close frame.
    Answered,
    /// The peer disconnected or does not read: no close frame is sent.
    Silent,
}

impl SocketEnd {
    pub(crate) fn with(frame: ServerFrame, close: Close) -> Self {
        SocketEnd::With(Box::new(frame), close)
    }

    /// Whether this gateway ends it, and the peer is expected at another one.
    pub(crate) fn restarts(&self) -> bool {
        matches!(self, SocketEnd::Bare(Close::ServiceRestart))
    }
}

/// What was received from the peer.
pub(crate) enum Received {
    Frame(Box<ClientFrame>),
    Pong(Vec<u8>),
    Unreadable(String),
    Gone(SocketEnd),
}

/// The socket, with a timeout on every write.
pub(crate) struct Socket {
    socket: WebSocket,
    write_timeout: Duration,
}

impl Socket {
    pub(crate) fn new(socket: WebSocket, write_timeout: Duration) -> Self {
        Self { socket, write_timeout }
    }

    pub(crate) async fn frame(&mut self) -> Received {
        loop {
            return match self.socket.recv().await {
                None => Received::Gone(SocketEnd::Silent),
                Some(Ok(Packet::Text(text))) => match ClientFrame::read(&text) {
                    Ok(frame) => Received::Frame(Box::new(frame)),
                    Err(error) => Received::Unreadable(error.to_string()),
                },
                Some(Ok(Packet::Binary(_))) => {
                    Received::Unreadable("frames are JSON text, not binary".into())
                }
                Some(Ok(Packet::Pong(payload))) => Received::Pong(payload.to_vec()),
                // The library answers pings by itself.
                Some(Ok(Packet::Ping(_))) => continue,
                Some(Ok(Packet::Close(_))) => Received::Gone(SocketEnd::Answered),
                Some(Err(error)) => Received::Gone(broken(error)),
            };
        }
    }

    pub(crate) async fn send(&mut self, frame: &ServerFrame) -> Result<(), SocketEnd> {
        self.feed(frame).await?;
        self.flush().await
    }

    pub(crate) async fn feed(&mut self, frame: &ServerFrame) -> Result<(), SocketEnd> {
        self.write(Packet::Text(Utf8Bytes::from(frame.to_json()))).await
    }

    pub(crate) async fn ping(&mut self, payload: [u8; 8]) -> Result<(), SocketEnd> {
        self.feed_ping(payload).await?;
        self.flush().await
    }

    pub(crate) async fn feed_ping(&mut self, payload: [u8; 8]) -> Result<(), SocketEnd> {
        self.write(Packet::Ping(payload.to_vec().into())).await
    }

    async fn write(&mut self, packet: Packet) -> Result<(), SocketEnd> {
        let timeout = self.write_timeout;
        let mut fed = self.socket.feed(packet);
        // The buffer nearly always has room, and then no timer is needed.
        match poll_once(&mut fed).await {
            Poll::Ready(written) => written_in_time(Ok(written)),
            Poll::Pending => written_in_time(tokio::time::timeout(timeout, fed).await),
        }
    }

    pub(crate) async fn flush(&mut self) -> Result<(), SocketEnd> {
        let timeout = self.write_timeout;
        let mut flushed = self.socket.flush();
        match poll_once(&mut flushed).await {
            Poll::Ready(written) => written_in_time(Ok(written)),
            Poll::Pending => written_in_time(tokio::time::timeout(timeout, flushed).await),
        }
    }

    /// Sends the close frame, then reads until the peer closes: closing a TCP connection with
    /// unread input would reset it and lose what is not sent yet.
    pub(crate) async fn end(mut self, end: SocketEnd) {
        let (code, reason) = match end {
            SocketEnd::Silent => return,
            SocketEnd::Answered => {
                count(Close::Normal.parts().0);
                let _ = self.flush().await;
                return;
            }
            SocketEnd::Bare(close) => close.parts(),
            SocketEnd::Broken(code, reason) => (code, reason),
            SocketEnd::With(frame, close) => {
                if self.feed(&frame).await.is_err() {
                    return;
                }
                close.parts()
            }
        };
        count(code);
        let goodbye = Packet::Close(Some(CloseFrame { code, reason: reason.into() }));
        if self.write(goodbye).await.is_err() || self.flush().await.is_err() {
            return;
        }
        let answer = async { while let Some(Ok(_)) = self.socket.recv().await {} };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, answer).await;
    }
}

fn count(code: u16) {
    metrics::counter!("bowline_surface_closes_total", "code" => code.to_string()).increment(1);
}

/// A protocol violation gets a close frame with its code; a broken connection gets none.
fn broken(error: axum::Error) -> SocketEnd {
    let error = error.into_inner();
    match error.downcast_ref() {
        Some(WsError::Capacity(_)) => SocketEnd::Bare(Close::TooBig),
        Some(WsError::Utf8(_)) => SocketEnd::Broken(1007, "text is not UTF-8"),
        Some(WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => SocketEnd::Silent,
        Some(WsError::Protocol(_)) => SocketEnd::Broken(1002, "against the WebSocket protocol"),
        _ => SocketEnd::Silent,
    }
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

fn written_in_time(written: Result<Result<(), axum::Error>, Elapsed>) -> Result<(), SocketEnd> {
    let slow = match written {
        Ok(Ok(())) => return Ok(()),
        // The connection's own write timeout fired first.
        Ok(Err(error)) => matches!(
            error.into_inner().downcast_ref(),
            Some(WsError::Io(error)) if error.kind() == ErrorKind::TimedOut
        ),
        Err(_) => true,
    };
    if slow {
        metrics::counter!("bowline_slow_surfaces_total").increment(1);
    }
    Err(SocketEnd::Silent)
}
