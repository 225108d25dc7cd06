//! How long a connection waits for a request head: long while it is idle between two requests, short
//! once a head has begun.
//!
//! Apart, because hyper has one timeout for both: its timer starts when the connection begins to
//! wait, also between two requests. A timer of our own makes the difference, because it sees the
//! bytes that arrive. hyper still decides when it waits for a head, so that the timeout never hits a
//! running response or an upgraded connection.
//!
//! Invariants
//! - The first head has to arrive within `head` of the start of the connection.
//! - A later head has to begin within the keep-alive time, and to arrive within `head` of the first
//!   byte that is read while waiting. (A first byte that came along with the request before does not
//!   count: such a head has the keep-alive time besides.)

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use crate::reads::Exchange;

/// hyper's timer for one connection; its timeout is the keep-alive time.
#[derive(Debug)]
pub(crate) struct HeadTimer {
    head: Duration,
    /// No head has been waited for yet.
    is_first: AtomicBool,
    exchange: Exchange,
}

impl HeadTimer {
    pub(crate) fn new(head: Duration, exchange: Exchange) -> Self {
        Self { head, is_first: AtomicBool::new(true), exchange }
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        let is_first = self.is_first.swap(false, Ordering::Relaxed);
        self.exchange.wait_for_head();
        let sleep = match is_first {
            true => tokio::time::sleep(self.head),
            false => tokio::time::sleep_until(deadline.into()),
        };
        Box::pin(HeadWait {
            sleep: Box::pin(sleep),
            head: self.head,
            has_begun: is_first,
            exchange: self.exchange.clone(),
        })
    }
}

/// The wait for one head. hyper polls it after each read that did not complete the head.
struct HeadWait {
    sleep: Pin<Box<tokio::time::Sleep>>,
    head: Duration,
    has_begun: bool,
    exchange: Exchange,
}

impl Sleep for HeadWait {}

impl Future for HeadWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_begun && self.exchange.has_read() {
            self.has_begun = true;
            self.sleep = Box::pin(tokio::time::sleep(self.head));
        }
        self.sleep.as_mut().poll(cx)
    }
}
