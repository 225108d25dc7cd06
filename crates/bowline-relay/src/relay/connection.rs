//! One connection's task: reads and passes on, writes what waits, keeps time, and says goodbye.
//!
//! One task and one poll for both directions: a connection that says nothing costs a small struct
//! and a timer, and no buffer. Reading never waits for writing; it does wait for whoever is to
//! receive (see [`inbound`]), and that is how a fast sender is held back.

mod dispatch;
mod farewell;
mod forward;
mod inbound;
mod outbound;
mod pulse;
#[cfg(test)]
mod tests;

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
use bowline_sbrp::relay::{Link, RouteCache};
use futures_util::FutureExt as _;
use tokio::time::Sleep;

use super::Shared;
use super::config::Limits;
use super::line::{Ending, Line};
use super::welcome::Mooring;
use super::ws::decode::Decoder;
use super::ws::encode;
use outbound::Outbound;
use pulse::{Due, Pulse};

/// A connection that was let in.
pub(crate) struct Connection {
    stream: Stream,
    mooring: Mooring,
    shared: Arc<Shared>,
    outbound: Outbound,
    /// Bytes that came and were not taken yet: part of a message, or messages that wait.
    input: Vec<u8>,
    /// The input can be looked at again without more bytes.
    again: bool,
    /// How many bytes the input needs before there is anything to say about it.
    needs: usize,
    /// The last read took all there was room for: more is coming.
    rushing: bool,
    decoder: Decoder,
    /// A message that came in parts and could not be passed on yet.
    gathered: Option<Vec<u8>>,
    hold: Hold,
    /// Messages and bytes passed on since that was last counted.
    passed: (usize, usize),
    bucket: Bucket,
    /// When the sender was last told of the rate.
    warned: Option<Instant>,
    pulse: Pulse,
    timer: Pin<Box<Sleep>>,
}

/// Whose connection it is.
#[derive(Debug)]
pub(crate) enum Who {
    Client { session: SessionId },
    Daemon { routes: RouteCache<Arc<Line>> },
}

impl Who {
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

/// Why the input is not looked at now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    No,
    /// The receiver has no room; it wakes us, and knows us since that drain.
    Full {
        receiver: Link,
        drains: u64,
    },
    /// The receiver is about to go, and we are about to be told.
    Lifecycle,
    /// Too much that we said ourselves still waits to be written.
    Own,
    /// Too many messages (SBRP-RELAY-07).
    Rate {
        until: Instant,
    },
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It broke a rule: what it is told, and the close code.
    Refused { code: ControlCode, session: Option<SessionId>, close: u16 },
    /// Somebody else decided.
    Ended(Ending),
    /// The other side said goodbye.
    Closed(Option<u16>),
    /// It does not take what it is sent.
    Slow,
    /// The socket is gone, or nobody is behind it.
    Lost,
    /// A defect of ours.
    Panicked,
}

impl Connection {
    pub(crate) fn new(
        stream: Stream,
        read_ahead: &[u8],
        mooring: Mooring,
        shared: Arc<Shared>,
    ) -> Self {
        let now = Instant::now();
        let limits = &shared.config.limits;
        Self {
            stream,
            mooring,
            outbound: Outbound::default(),
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
            pulse: Pulse::new(now),
            timer: Box::pin(tokio::time::sleep_until((now + limits.ping_every).into())),
            shared,
        }
    }

    /// Serves the connection to its end. Whatever happens in it ends only this one
    /// (SBRP-RELAY-17).
    pub(crate) async fn run(mut self) {
        let ran = AssertUnwindSafe(poll_fn(|cx| self.poll(cx))).catch_unwind().await;
        let end = ran.unwrap_or_else(|_| {
            self.shared.meters.panicked();
            tracing::error!("a connection ended by a defect of the relay");
            End::Panicked
        });
        self.mooring.leave(&self.shared);
        let patience = self.limits().farewell;
        let _ = tokio::time::timeout(patience, self.farewell(end)).await;
    }

    fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    /// Writes, reads and looks at the clock, each once. Whoever has more to do comes again after
    /// the others: a receiver writes while what it was handed is still in the processor's cache,
    /// and nobody who always has something to say escapes the clock by it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if let Poll::Ready(written) = self.outbound.poll(&mut self.stream, &self.mooring.line, cx) {
            return Poll::Ready(written.map_or(End::Lost, End::Ended));
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

    /// Does what is due; pending when nothing is.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let now = Instant::now();
        let limits = &self.shared.config.limits;
        if self.hold != Hold::No {
            // Who is not listened to cannot be dead.
            self.pulse.heard(now);
        }
        let mut due = match self.pulse.due(now, limits.ping_every, limits.pong_timeout) {
            Due::At(at) => at,
            Due::Dead => return Poll::Ready(Err(End::Lost)),
            Due::Ping => {
                self.mooring.line.lock().append(encode::ping);
                return Poll::Ready(Ok(()));
            }
        };
        if let Some(blocked) = self.outbound.blocked_since() {
            let deadline = blocked + limits.write_timeout;
            if now >= deadline {
                return Poll::Ready(Err(End::Slow));
            }
            due = due.min(deadline);
        }
        if let Hold::Rate { until } = self.hold {
            if now >= until {
                return Poll::Ready(Ok(()));
            }
            due = due.min(until);
        }
        // A timer that fires too early is cheaper than one that is set anew for every message.
        if self.timer.is_elapsed() || self.timer.deadline() > due.into() {
            self.timer.as_mut().reset(due.into());
        }
        self.timer.as_mut().poll(cx).map(Ok)
    }
}
