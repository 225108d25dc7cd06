//! Lets a client that still sends its body read the answer that refuses it.
//!
//! A socket that is closed with unread input resets the connection, and the client may lose the
//! answer that it was about to read. So the sending side is closed first, and what still arrives is
//! thrown away, for a short time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a closed connection is still read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the last answer came before the body that it refuses: shared by the connection and the
/// service that knows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct EarlyAnswer(Arc<AtomicBool>);

impl EarlyAnswer {
    pub(crate) fn set(&self, is_early: bool) {
        self.0.store(is_early, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Linger<S> {
    stream: S,
    early: EarlyAnswer,
    /// Running once the sending side is closed.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Linger<S> {
    pub(crate) fn new(stream: S, early: EarlyAnswer) -> Self {
        Self { stream, early, timer: None }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> Linger<S> {
    /// Ready at the end of the input, or when the time is over.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // First, because a client that sends without a pause may use up the task's budget, and then
        // the timer would seem to run on.
        if self.timer.as_mut().is_none_or(|timer| timer.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(());
        }
        loop {
            let mut scratch = [0; 4096];
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
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
        if self.timer.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.early.0.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            self.timer = Some(Box::pin(tokio::time::sleep(PATIENCE)));
        }
        self.poll_discard(cx).map(Ok)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Linger<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}
