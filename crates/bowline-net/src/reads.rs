//! What a connection reads: arriving bytes are noted, and the end of the input is held back while a
//! response runs.
//!
//! A client may close its sending side after its request and wait for the answer. One that went away
//! looks the same. hyper either ends the response in both cases, or notices neither, and then the
//! work for a client that is gone goes on. So the end is reported to hyper when the response has
//! ended, or after a grace time.
//!
//! A request body that ends too early is held back, too: its reader gives up by its own timeout.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

/// Where a connection is in its exchange of requests and responses: shared by the parts that find it
/// out and those that need it. One task uses all of them, so the order of memory does not matter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exchange(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    has_read: AtomicBool,
    responding: AtomicBool,
}

impl Exchange {
    pub(crate) fn wait_for_head(&self) {
        self.0.has_read.store(false, Ordering::Relaxed);
        self.0.responding.store(false, Ordering::Relaxed);
    }

    pub(crate) fn respond(&self) {
        self.0.responding.store(true, Ordering::Relaxed);
    }

    /// The connection is no longer HTTP: the end of its input means what the new protocol says.
    pub(crate) fn upgrade(&self) {
        self.0.responding.store(false, Ordering::Relaxed);
    }

    /// Whether bytes arrived since the wait for the current head began.
    pub(crate) fn has_read(&self) -> bool {
        self.0.has_read.load(Ordering::Relaxed)
    }

    fn is_responding(&self) -> bool {
        self.0.responding.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Reads<S> {
    stream: S,
    exchange: Exchange,
    grace: Duration,
    /// Cancelled when the client closes its sending side during a response: no request follows.
    half_closed: CancellationToken,
    /// Running once that has happened.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Reads<S> {
    pub(crate) fn new(
        stream: S,
        exchange: Exchange,
        grace: Duration,
        half_closed: CancellationToken,
    ) -> Self {
        Self { stream, exchange, grace, half_closed, timer: None }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Reads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.timer.is_none() {
            let before = buffer.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
            if buffer.filled().len() > before {
                self.exchange.0.has_read.store(true, Ordering::Relaxed);
                return read;
            }
            if !matches!(read, Poll::Ready(Ok(()))) || buffer.remaining() == 0 {
                return read;
            }
        }
        if !self.exchange.is_responding() {
            return Poll::Ready(Ok(()));
        }
        self.half_closed.cancel();
        let grace = self.grace;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(grace)));
        timer.as_mut().poll(cx).map(Ok)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Reads<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
