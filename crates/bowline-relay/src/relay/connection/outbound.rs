//! Writing what waits: all of it at once, as often as the socket takes it.
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

use crate::relay::line::{Ending, Line};
use crate::relay::spare;

/// A socket that has taken this much since it blocked is slow, not stuck.
const MOVES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Outbound {
    writing: Vec<u8>,
    written: usize,
    flushed: bool,
    /// Since when the socket takes too little, and how much it took since.
    blocked: Option<(Instant, usize)>,
}

impl Outbound {
    /// Writes until nothing waits or the socket takes no more. Ready when the connection is to
    /// end, or has.
    pub(super) fn poll(
        &mut self,
        stream: &mut Stream,
        line: &Line,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Ending, io::Error>> {
        loop {
            match self.poll_write(stream, cx) {
                Poll::Ready(written) => written?,
                Poll::Pending => return self.pending(line, cx),
            }
            let (waiting, ending) = {
                let mut queue = line.lock();
                let waiting = queue.drained();
                let more = queue.take(&mut self.writing);
                let ending = queue.ending().filter(|_| !more);
                if !more {
                    queue.sleep(cx.waker());
                }
                (waiting, ending)
            };
            for sender in waiting {
                sender.wake();
            }
            if let Some(ending) = ending {
                return Poll::Ready(Ok(ending));
            }
            if self.writing.is_empty() {
                spare::give(&mut self.writing);
                self.blocked = None;
                return Poll::Pending;
            }
            self.flushed = false;
        }
    }

    /// The same without looking whether it shall end: for the last words.
    pub(super) fn poll_rest(
        &mut self,
        stream: &mut Stream,
        line: &Line,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), io::Error>> {
        loop {
            ready!(self.poll_write(stream, cx))?;
            if !line.lock().take(&mut self.writing) {
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

    /// The socket takes no more now: senders have to know, and the time counts.
    fn pending(&mut self, line: &Line, cx: &mut Context<'_>) -> Poll<Result<Ending, io::Error>> {
        let mut queue = line.lock();
        queue.set_blocked();
        if let Some(ending) = queue.ending() {
            return Poll::Ready(Ok(ending));
        }
        queue.sleep(cx.waker());
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
