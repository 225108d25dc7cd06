//! One connection of HTTP/2: many requests at once, within the limits that a connection of HTTP/1.1 has.
//!
//! Apart, because the limits have to be kept in other ways. Nothing waits for a head here, so the time
//! without a request is measured; a client can stop reading one response and go on with the others, so
//! each has its own write timeout; and a client may open requests and take them back at once.
//!
//! To services a request looks as one of HTTP/1.1 does: `Host` says what `:authority` said.
//!
//! Invariants
//! - The first request has to be there within the time of a request head.
//! - A connection without running requests is closed after the keep-alive time, and one whose client does
//!   not answer a ping is, too.
//! - Of a response at most one piece and the send buffer are held beside what its service holds; one
//!   of which the client takes nothing for the write timeout is reset, and the others go on.
//! - There are no WebSockets: extended CONNECT is not offered.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

use super::connection::Remote;
use super::{DoorLimits, DoorState, LONGEST_KEEP_ALIVE, SMALLEST_HEAD};
use crate::peer::ConnectionPermit;
use crate::stall::StallGuard;
use crate::stream::Stream;

/// How much of a request's body is taken before its service reads it, in bytes.
const REQUEST_WINDOW: u32 = 256 << 10;
/// The same for all requests of a connection together.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How much of a response may wait for the socket, in bytes.
const SEND_BUFFER: usize = 64 << 10;
/// The largest piece of a response that is handed on at once, in bytes: the size of a frame.
const PIECE: usize = 16 << 10;
/// Requests that were taken back before they were served, and resets for errors of the client: with more
/// of them the connection is closed.
const RESETS: usize = 20;
const ERROR_RESETS: usize = 100;
/// After so much silence the client is asked whether it is there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection that is to close may take for what is left to send.
const CLOSING: Duration = Duration::from_secs(30);

/// Serves a connection to its end.
pub(super) async fn connection<S, B>(
    stream: Stream,
    from: Remote,
    state: Arc<DoorState>,
    service: S,
    place: ConnectionPermit,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limits = &state.limits;
    let room = Room::default();
    let requests = Requests::new(limits.write_timeout, room.clone());
    let answer = {
        let (state, begun) = (Arc::clone(&state), requests.begun.clone());
        // A client that is gone takes its requests with it, so none of them ever waits half closed.
        let half_closed = CancellationToken::new();
        service_fn(move |mut request: Request<Incoming>| {
            begun.send_modify(|begun| *begun += 1);
            as_http1(&mut request);
            let peer = from.peer(request.headers(), &state, &place, &half_closed);
            request.extensions_mut().insert(peer);
            let answering = service.clone().oneshot(request);
            async move {
                let mut response = answering.await?;
                // HTTP/2 has no such header. What is not read of a body is taken back without it.
                response.headers_mut().remove(CONNECTION);
                let reading = READING.with(Reading::clone);
                Ok::<_, Infallible>(response.map(|body| Pieces::new(body, reading)))
            }
        })
    };
    let stream = RoomWatch { stream: StallGuard::new(stream, limits.write_timeout), room };
    let mut builder = http2::Builder::new(requests.clone());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams)
        .max_header_list_size(limits.request_head.max(SMALLEST_HEAD).try_into().unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .initial_stream_window_size(REQUEST_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(PIECE as u32)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    let mut closing = false;
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = state.stop.cancelled(), if !closing => {}
            then = requests.idle(closing, limits) => if then == Then::End { return },
        }
        closing = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// What follows when a connection has been idle for long enough.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    /// The client is told, and what it has asked for meanwhile is answered.
    Close,
    /// It never asked for anything, or was told.
    End,
}

/// The running requests of a connection. Also where they run.
#[derive(Debug, Clone)]
struct Requests {
    /// How many there have been.
    begun: watch::Sender<u64>,
    running: watch::Sender<u64>,
    write_timeout: Duration,
    room: Room,
}

impl Requests {
    fn new(write_timeout: Duration, room: Room) -> Self {
        let (begun, running) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { begun, running, write_timeout, room }
    }

    /// Waits until no request has run for as long as a connection may be idle.
    async fn idle(&self, closing: bool, limits: &DoorLimits) -> Then {
        let (mut begun, mut running) = (self.begun.subscribe(), self.running.subscribe());
        loop {
            let (has_begun, is_running) =
                (*begun.borrow_and_update() > 0, *running.borrow_and_update() > 0);
            let (patience, then) = match (closing, has_begun) {
                (true, _) => (CLOSING, Then::End),
                (false, false) => (limits.header_timeout, Then::End),
                (false, true) => (limits.keep_alive.min(LONGEST_KEEP_ALIVE), Then::Close),
            };
            tokio::select! {
                _ = begun.changed() => {}
                _ = running.changed() => {}
                () = tokio::time::sleep(patience), if !is_running => return then,
            }
        }
    }
}

/// Runs a request until its response is sent, reset, or not read for too long.
impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Requests {
    fn execute(&self, request: F) {
        let (running, patience) = (Running::new(&self.running), self.write_timeout);
        let reading = Reading::new(self.room.clone());
        tokio::spawn(READING.scope(reading.clone(), async move {
            let _running = running;
            tokio::select! {
                () = request => {}
                // Dropped, it is reset.
                () = reading.stalled(patience) => {}
            }
        }));
    }
}

/// One of the running requests, counted until it is dropped.
struct Running(watch::Sender<u64>);

impl Running {
    fn new(all: &watch::Sender<u64>) -> Self {
        all.send_modify(|running| *running += 1);
        Self(all.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

tokio::task_local! {
    /// Of the request that this task runs.
    static READING: Reading;
}

/// Whether the client takes a response: since when its next piece waits for room.
///
/// While the socket is full the client is slow, or others of its responses are sent: it may be so for ever, as
/// long as it takes anything at all ([`StallGuard`]). So only a wait beside a socket with room counts.
#[derive(Debug, Clone)]
struct Reading {
    waits: Arc<(Mutex<Option<Instant>>, Notify)>,
    room: Room,
}

impl Reading {
    fn new(room: Room) -> Self {
        Self { waits: Arc::default(), room }
    }

    fn set(&self, since: Option<Instant>) {
        *self.waits.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
        if since.is_some() {
            self.waits.1.notify_one();
        }
    }

    fn since(&self) -> Option<Instant> {
        *self.waits.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a piece has waited for that long.
    async fn stalled(&self, patience: Duration) {
        loop {
            let Some(since) = self.since() else {
                self.waits.1.notified().await;
                continue;
            };
            let counted_from = since.max(self.room.since().unwrap_or_else(Instant::now));
            if counted_from.elapsed() >= patience {
                return;
            }
            tokio::time::sleep_until(counted_from + patience).await;
        }
    }
}

/// Since when the socket of a connection has room for what is sent; none: it is full.
#[derive(Debug, Clone)]
struct Room(Arc<Mutex<Option<Instant>>>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(Instant::now()))))
    }
}

impl Room {
    fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, is_full: bool) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (is_full, *since) {
            (true, _) => *since = None,
            (false, None) => *since = Some(Instant::now()),
            (false, Some(_)) => {}
        }
    }
}

/// A stream that says whether it has room.
#[derive(Debug)]
struct RoomWatch<S> {
    stream: S,
    room: Room,
}

impl<S> RoomWatch<S> {
    fn seen<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.room.set(written.is_pending());
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RoomWatch<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RoomWatch<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.seen(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.seen(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.seen(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A response's body in pieces, each asked for when there is room for the one before.
///
/// A body that is one large piece would be handed on whole: nobody could see whether the client reads it.
struct Pieces<E> {
    body: UnsyncBoxBody<Bytes, E>,
    rest: Bytes,
    reading: Reading,
}

impl<E> Pieces<E> {
    fn new(body: impl Body<Data = Bytes, Error = E> + Send + 'static, reading: Reading) -> Self {
        Self { body: body.boxed_unsync(), rest: Bytes::new(), reading }
    }
}

impl<E> Body for Pieces<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        self.reading.set(None);
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        self.reading.set(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

/// Makes a request look as one of HTTP/1.1 does.
fn as_http1(request: &mut Request<Incoming>) {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    if let Some(host) = authority.and_then(|text| HeaderValue::try_from(text).ok()) {
        let said = request.headers().get(HOST);
        let is_same =
            said.is_some_and(|said| said.as_bytes().eq_ignore_ascii_case(host.as_bytes()));
        // Two that differ stay two: whoever checks the host refuses such a request (RFC 9113, 8.3.1).
        if !is_same {
            request.headers_mut().append(HOST, host);
        }
    }
    if *request.method() == Method::CONNECT {
        return;
    }
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_body_is_handed_on_in_pieces_and_its_length_is_known() {
        let text = Bytes::from(vec![b'x'; 2 * PIECE + 1]);
        let reading = Reading::new(Room::default());
        let mut body = Pieces::new(http_body_util::Full::new(text.clone()), reading.clone());
        let mut whole = Vec::new();
        for left in [2 * PIECE + 1, PIECE + 1, 1] {
            assert_eq!(body.size_hint().exact(), Some(left as u64));
            assert!(!body.is_end_stream());
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece.len(), left.min(PIECE));
            assert!(reading.since().is_some(), "it waits for room");
            whole.extend_from_slice(&piece);
        }
        assert!(body.is_end_stream() && whole == text);
        assert!(body.frame().await.is_none() && reading.since().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn g12_a_piece_that_waits_for_too_long_beside_a_socket_with_room_ends_its_response() {
        let room = Room::default();
        let (reading, patience) = (Reading::new(room.clone()), Duration::from_secs(10));
        let stalled = reading.stalled(patience);
        tokio::pin!(stalled);
        let mut after = async |seconds| {
            tokio::time::timeout(Duration::from_secs(seconds), stalled.as_mut()).await.is_ok()
        };
        assert!(!after(100).await, "nothing waits");
        for _ in 0..3 {
            reading.set(Some(Instant::now()));
            assert!(!after(9).await, "the client takes it");
        }
        reading.set(None);
        assert!(!after(100).await, "the service has nothing to send");
        reading.set(Some(Instant::now()));
        room.set(true);
        assert!(!after(100).await, "the client is slow");
        room.set(false);
        assert!(!after(9).await);
        room.set(false);
        assert!(after(11).await, "it takes others, and not this one");
    }
}
