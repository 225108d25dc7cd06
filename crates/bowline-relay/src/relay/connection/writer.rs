//! Writes the outbound queue to the socket, all of it at once.
//!
//! The queue is one buffer of whole frames; the writer exchanges it for its own empty one and
//! hands it to the socket in as few calls as the socket allows. A buffer lives only as long as
//! something is in it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bowline_net::Stream;
use tokio::io::AsyncWrite as _;

use crate::relay::buffer_pool;
use crate::relay::outbound_queue::{CloseCause, OutboundQueue};

/// A socket that has taken this much since it blocked is slow, not stuck.
const MOVES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct SocketWriter {
    writing: Vec<u8>,
    written: usize,
    flushed: bool,
    /// Since when the socket takes too little, and how much it took since.
    blocked: Option<(Instant, usize)>,
}

impl SocketWriter {
    /// Writes until nothing waits or the socket takes no more. Ready when the connection is to
    /// end, or has.
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

    /// The same without checking whether the connection shall end: used while it closes.
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

    /// Since when the socket has taken nothing to speak of.
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

    /// The socket takes no more now: senders are told, and the write timeout begins.
    fn pending(
        &mut self,
        queue: &OutboundQueue,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CloseCause, io::Error>> {
        let mut state = queue.lock();
        state.set_blocked();
        if let Some(cause) = state.cause() {
            return Poll::Ready(Ok(cause));
        }
        state.sleep(cx.waker());
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
