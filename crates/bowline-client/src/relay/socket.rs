//! One WebSocket to a relay: receives frames, sends messages, reports every end as a
//! [`LossReason`].
//!
//! Only this file uses tungstenite. The driver reads; a separate task writes, so that a relay that
//! stops reading for a while can still be read from. The writer takes all queued messages, then
//! flushes once. Deadlines count progress: a slow connection is not a lost one.

use std::io;
use std::time::Duration;

use bowline_net::dial::{DialedStream, dial};
use bowline_net::progress::{SignsOfLife, Watched};
use bowline_net::stall::StallGuard;
use bowline_sbrp::frame::{Frame, MAX_FRAME, Violation};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use super::reasons::LossReason;

type WebSocket<S> = WebSocketStream<S>;

/// The connection, with a deadline for writes that make no progress.
type RelayStream = Watched<StallGuard<DialedStream>>;

/// A connection that the relay accepted.
#[derive(Debug)]
pub(super) struct RelaySocket<S = RelayStream> {
    incoming: SplitStream<WebSocket<S>>,
    outbox: mpsc::Sender<Bytes>,
    writer: JoinHandle<()>,
    signs: SignsOfLife,
}

impl RelaySocket {
    /// Connects with a token. It is sent in a header, because URLs end up in logs.
    pub(super) async fn open(relay: &str, token: &str) -> Result<Self, LossReason> {
        let unreachable = |error: Error| LossReason::Unreachable(sentence(error));
        let unusable = |_| LossReason::Unreachable("the address cannot be used".into());
        let url: Url = relay.parse().map_err(unusable)?;
        let mut request = relay.into_client_request().map_err(unreachable)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| LossReason::Unreachable("the token is none".into()))?;
        bearer.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, bearer);
        let connecting = async {
            let dialed = dial(&url).await;
            let stream = dialed.map_err(|error| LossReason::Unreachable(error.to_string()))?;
            let (stream, signs) = Watched::new(StallGuard::new(stream, WRITE_PATIENCE));
            match client_async_with_config(request, stream, Some(limits())).await {
                Ok((socket, _)) => Ok(Self::over(socket, signs)),
                Err(Error::Http(response)) => Err(LossReason::Refused(response.status().as_u16())),
                Err(error) => Err(unreachable(error)),
            }
        };
        let connected = timeout(CONNECT_PATIENCE, connecting).await;
        connected.unwrap_or_else(|_| Err(LossReason::Unreachable("it does not answer".into())))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> RelaySocket<S> {
    fn over(socket: WebSocket<S>, signs: SignsOfLife) -> Self {
        let (sink, incoming) = socket.split();
        let (outbox, messages) = mpsc::channel(OUTBOX);
        Self { incoming, outbox, writer: tokio::spawn(write(sink, messages)), signs }
    }

    /// Whether the relay showed that it is there since this was asked last: also a message that is only
    /// half here, or half sent.
    pub(super) fn shows_life(&self) -> bool {
        self.signs.take()
    }

    /// The next frame, or `None` for a WebSocket message that only proves liveness. Cancel safe.
    pub(super) async fn recv(&mut self) -> Result<Option<Frame>, LossReason> {
        let next = tokio::select! {
            biased;
            next = self.incoming.next() => next,
            // The writer gave up.
            () = self.outbox.closed() => return Err(LossReason::Stuck),
        };
        match next {
            Some(Ok(Message::Binary(message))) => {
                Frame::decode(message).map(Some).map_err(LossReason::Garbled)
            }
            Some(Ok(Message::Text(_))) => Err(LossReason::Garbled(Violation::MalformedFrame)),
            Some(Ok(Message::Close(close))) => {
                Err(LossReason::Closed(close.map_or(1005, |close| close.code.into())))
            }
            // WebSocket's own pings: tungstenite answers them on the next read.
            Some(Ok(_)) => Ok(None),
            Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => {
                Err(LossReason::Garbled(Violation::PayloadTooLarge))
            }
            Some(Err(_)) | None => Err(LossReason::Broken),
        }
    }

    /// A sender to the outbox, for callers that reserve room before they take a message.
    pub(super) fn outbox(&self) -> mpsc::Sender<Bytes> {
        self.outbox.clone()
    }

    /// Queues a message, and waits for room. It fails when the writer has given up, because the relay
    /// takes nothing more.
    pub(super) async fn send(&self, message: Bytes) -> Result<(), LossReason> {
        self.outbox.send(message).await.map_err(|_| LossReason::Stuck)
    }

    /// Sends the queued messages and the close frame, each with a short deadline.
    pub(super) async fn close(self) {
        let Self { mut incoming, outbox, mut writer, .. } = self;
        drop(outbox);
        let parting = async {
            let _ = (&mut writer).await;
            // Wait for the relay's close frame; if the socket is closed earlier, the kernel may
            // discard ours.
            while let Some(Ok(_)) = incoming.next().await {}
        };
        if timeout(PARTING_PATIENCE, parting).await.is_err() {
            writer.abort();
        }
    }

    /// Drops the connection and its queued messages.
    pub(super) fn abandon(self) {
        self.writer.abort();
    }
}

async fn write<S: AsyncRead + AsyncWrite + Unpin>(
    mut sink: SplitSink<WebSocket<S>, Message>,
    mut messages: mpsc::Receiver<Bytes>,
) {
    let mut batch = Vec::with_capacity(OUTBOX);
    while messages.recv_many(&mut batch, OUTBOX).await > 0 {
        let writing = async {
            for message in batch.drain(..) {
                sink.feed(Message::Binary(message)).await?;
            }
            sink.flush().await
        };
        if let Err::<(), Error>(error) = writing.await {
            tracing::debug!(error = sentence(error), "writing to the relay failed");
            return;
        }
    }
    let _ = timeout(PARTING_PATIENCE, sink.close()).await;
}

fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME))
        // There is one connection in a process, and each read costs a system call.
        .read_buffer_size(256 << 10)
        .write_buffer_size(256 << 10)
        .max_write_buffer_size(1 << 20)
}

fn sentence(error: Error) -> String {
    match error {
        Error::Io(error) => match error.kind() {
            io::ErrorKind::TimedOut => "it does not answer".into(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                "the connection broke off".into()
            }
            _ => error.to_string(),
        },
        Error::Protocol(ProtocolError::HandshakeIncomplete) => "the connection broke off".into(),
        Error::Protocol(error) => format!("it is no WebSocket server: {error}"),
        // The text of other errors may contain the URL.
        _ => "the address cannot be used".into(),
    }
}

/// The deadline of DNS, TCP, TLS and the WebSocket upgrade together.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a write may make no progress.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// The deadline of an orderly close.
const PARTING_PATIENCE: Duration = Duration::from_secs(1);
/// The most messages queued for the writer: 4 MiB of the longest.
const OUTBOX: usize = 64;
