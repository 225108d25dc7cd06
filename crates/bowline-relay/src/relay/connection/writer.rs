//! Writes the outbound queue to the socket in one batch.
//!
//! The queue is one buffer of whole frames; the writer swaps it for its own empty one and passes it
//! to the socket in as few calls as possible. An empty buffer goes back to the pool.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bowline_net::Stream;
use tokio::io::AsyncWrite as _;

use crate::relay::buffer_pool;
use crate::relay::outbound_queue::{CloseCause, OutboundQueue};

/// A socket that has accepted this many bytes since it blocked is slow, not stuck: with the usual deadline
/// of 10 s, 1.6 KB/s.
const MOVES: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct SocketWriter {
    writing: Vec<u8>,
    written: usize,
    flushed: bool,
    /// When the socket blocked, and how many bytes it has accepted since.
    blocked: Option<(Instant, usize)>,
}

impl SocketWriter {
    /// Writes until the queue is empty or the socket blocks. Ready when the connection has to be
    /// closed, or the socket failed.
    pub(super) fn poll(
        &mut self,
        stream: &mut Stream,
        queue: &OutboundQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CloseCause, io::Error>> {
        loop {
            match self.poll_write(stream, cx) {
                Poll::Ready(written) => written?,
                Poll::Pending => return self.pending(queue, cx),
            }
            let (waiting, cause) = {
                let mut state = queue.lock();
                let waiting = state.drained();
                let more = state.take(&mut self.writing);
                let cause = state.cause().filter(|_| !more);
                if !more {
                    state.sleep(cx.waker());
                }
                (waiting, cause)
            };
            for sender in waiting {
                sender.wake();
            }
            if let Some(cause) = cause {
                return Poll::Ready(Ok(cause));
            }
            if self.writing.is_empty() {
                buffer_pool::give(&mut self.writing);
                self.blocked = None;
                return Poll::Pending;
            }
            self.flushed = false;
        }
    }

    /// Writes the rest of the queue without checking for a close cause: used while closing.
    pub(super) fn poll_rest(
        &mut self,
        stream: &mut Stream,
        queue: &OutboundQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), io::Error>> {
        loop {
            ready!(self.poll_write(stream, cx))?;
            if !queue.lock().take(&mut self.writing) {
                return Poll::Ready(Ok(()));
            }
            self.flushed = false;
        }
    }

    /// When the socket blocked, if it has accepted fewer than `MOVES` bytes since.
    pub(super) fn blocked_since(&self) -> Option<Instant> {
        self.blocked.map(|(since, _)| since)
    }

    fn poll_write(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), io::Error>> {
        while self.written < self.writing.len() {
            let rest = &self.writing[self.written..];
            let count = ready!(Pin::new(&mut *stream).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            self.moved(count);
        }
        if !self.flushed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.flushed = true;
        }
        self.written = 0;
        self.writing.clear();
        Poll::Ready(Ok(()))
    }

    /// The socket is blocked: marks the queue as blocked and starts the write timeout.
    fn pending(
        &mut self,
        queue: &OutboundQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CloseCause, io::Error>> {
        let (waiting, cause) = {
            let mut state = queue.lock();
            let waiting = state.set_blocked(self.writing.len() - self.written);
            if state.cause().is_none() {
                state.sleep(cx.waker());
            }
            (waiting, state.cause())
        };
        for sender in waiting {
            sender.wake();
        }
        if let Some(cause) = cause {
            return Poll::Ready(Ok(cause));
        }
        self.blocked.get_or_insert_with(|| (Instant::now(), 0));
        Poll::Pending
    }

    fn moved(&mut self, count: usize) {
        if let Some((_, moved)) = &mut self.blocked {
            *moved += count;
            if *moved >= MOVES || self.written == self.writing.len() {
                self.blocked = None;
            }
        }
    }
}
