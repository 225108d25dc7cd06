//! The task of one connection: it reads and forwards messages, writes its outbound queue, runs its
//! timers, and closes.
//!
//! One task and one poll for both directions: an idle connection costs a small struct and a timer,
//! and no buffer. Reading never waits for writing; it does wait for space in the receiver's queue
//! (see [`inbound`]), which is the back-pressure on a fast sender.

mod close;
mod dispatch;
mod forward;
mod idle_timer;
mod inbound;
#[cfg(test)]
mod tests;
mod writer;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bowline_net::Stream;
use bowline_net::rate::{Bucket, Rate};
use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::{ConnectionId, RouteCache};
use futures_util::FutureExt as _;
use tokio::time::Sleep;

use super::Shared;
use super::config::RelayLimits;
use super::membership::Membership;
use super::outbound_queue::{CloseCause, OutboundQueue};
use super::ws::decode::Decoder;
use super::ws::encode;
use idle_timer::{Due, IdleTimer};
use writer::SocketWriter;

/// A connection whose token was accepted.
pub(crate) struct Connection {
    stream: Stream,
    membership: Membership,
    shared: Arc<Shared>,
    writer: SocketWriter,
    /// Bytes that were read and not processed yet: an incomplete frame, or messages on hold.
    input: Vec<u8>,
    /// The input may hold a whole frame: process it before reading more bytes.
    again: bool,
    /// How many bytes the input needs before the next frame can be read.
    needs: usize,
    /// The last read filled its buffer, so more bytes are probably ready.
    rushing: bool,
    decoder: Decoder,
    /// A fragmented message that is complete but could not be forwarded yet.
    gathered: Option<Vec<u8>>,
    hold: Hold,
    /// Messages and bytes forwarded since the meters were last updated.
    passed: (usize, usize),
    bucket: Bucket,
    /// When the sender last got `rate_limited`.
    warned: Option<Instant>,
    idle: IdleTimer,
    timer: Pin<Box<Sleep>>,
}

/// Which end of a pair the connection belongs to.
#[derive(Debug)]
pub(crate) enum Side {
    Client { session: SessionId },
    Daemon { routes: RouteCache<Arc<OutboundQueue>> },
}

impl Side {
    pub(crate) fn daemon() -> Self {
        Self::Daemon { routes: RouteCache::default() }
    }

    fn role(&self) -> Role {
        match self {
            Self::Client { .. } => Role::Client,
            Self::Daemon { .. } => Role::Daemon,
        }
    }

    fn other_role(&self) -> Role {
        match self {
            Self::Client { .. } => Role::Daemon,
            Self::Daemon { .. } => Role::Client,
        }
    }
}

/// Why the input is not processed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    No,
    /// The receiver's queue is full. This task's waker is registered there since drain number
    /// `drains`.
    Full {
        receiver: ConnectionId,
        drains: u64,
    },
    /// The receiver is closing; this connection is about to be notified or closed.
    Lifecycle,
    /// Too many of the relay's own messages are queued for this connection.
    Own,
    /// The connection exceeded its message rate (SBRP-RELAY-07).
    Rate {
        until: Instant,
    },
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionEnd {
    /// The peer broke a rule: the control code it gets, and the WebSocket close code.
    Refused { code: ControlCode, session: Option<SessionId>, close: u16 },
    /// Another task closed it.
    Ended(CloseCause),
    /// The peer sent a close frame.
    Closed(Option<u16>),
    /// Slow consumer: its socket accepted too little data for too long.
    Slow,
    /// The socket failed, or the peer does not answer pings.
    Lost,
    /// A bug in the relay.
    Panicked,
}

impl Connection {
    pub(crate) fn new(
        stream: Stream,
        read_ahead: &[u8],
        membership: Membership,
        shared: Arc<Shared>,
    ) -> Self {
        let now = Instant::now();
        let limits = &shared.config.limits;
        Self {
            stream,
            membership,
            writer: SocketWriter::default(),
            input: read_ahead.to_vec(),
            again: !read_ahead.is_empty(),
            needs: 0,
            rushing: false,
            decoder: Decoder::default(),
            gathered: None,
            hold: Hold::No,
            passed: (0, 0),
            bucket: Bucket::new(Rate::per_second(limits.rate_frames), now),
            warned: None,
            idle: IdleTimer::new(now),
            timer: Box::pin(tokio::time::sleep_until((now + limits.ping_every).into())),
            shared,
        }
    }

    /// Serves the connection until it closes. A failure or panic in it ends only this connection
    /// (SBRP-RELAY-17).
    pub(crate) async fn run(mut self) {
        let ran = AssertUnwindSafe(poll_fn(|cx| self.poll(cx))).catch_unwind().await;
        let end = ran.unwrap_or_else(|_| {
            self.shared.meters.panicked();
            tracing::error!("a connection ended by a defect of the relay");
            ConnectionEnd::Panicked
        });
        self.membership.leave(&self.shared);
        let patience = self.limits().farewell;
        let _ = tokio::time::timeout(patience, self.close(end)).await;
    }

    fn limits(&self) -> &RelayLimits {
        &self.shared.config.limits
    }

    /// Writes, reads and checks the timers, each once. A task with more work is polled again after
    /// the other tasks: a receiver writes while the data is still in the CPU cache, and a
    /// connection that always has input cannot starve its own timers.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        if let Poll::Ready(written) = self.writer.poll(&mut self.stream, &self.membership.queue, cx)
        {
            return Poll::Ready(written.map_or(ConnectionEnd::Lost, ConnectionEnd::Ended));
        }
        let took_in = match self.poll_inbound(cx) {
            Poll::Ready(Err(end)) => return Poll::Ready(end),
            taken => taken.is_ready(),
        };
        match self.poll_time(cx) {
            Poll::Ready(Err(end)) => return Poll::Ready(end),
            Poll::Pending if !took_in => {}
            _ => cx.waker().wake_by_ref(),
        }
        Poll::Pending
    }

    /// Runs the timers that are due; pending when none is.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionEnd>> {
        let now = Instant::now();
        let limits = &self.shared.config.limits;
        if self.hold != Hold::No || self.writer.blocked_since().is_some() {
            // While its input is on hold nothing is read, and while it is slow to receive its pong is
            // late: silence does not mean a dead peer. The write timeout judges a peer that takes nothing.
            self.idle.heard(now);
        }
        let mut due = match self.idle.due(now, limits.ping_every, limits.pong_timeout) {
            Due::At(at) => at,
            Due::Dead => return Poll::Ready(Err(ConnectionEnd::Lost)),
            Due::Ping => {
                self.membership.queue.lock().append(encode::ping);
                return Poll::Ready(Ok(()));
            }
        };
        if let Some(blocked) = self.writer.blocked_since() {
            let deadline = blocked + limits.write_timeout;
            if now >= deadline {
                return Poll::Ready(Err(ConnectionEnd::Slow));
            }
            due = due.min(deadline);
        }
        if let Hold::Rate { until } = self.hold {
            if now >= until {
                return Poll::Ready(Ok(()));
            }
            due = due.min(until);
        }
        // A timer that fires too early is cheaper than resetting it for every message.
        if self.timer.is_elapsed() || self.timer.deadline() > due.into() {
            self.timer.as_mut().reset(due.into());
        }
        self.timer.as_mut().poll(cx).map(Ok)
    }
}
