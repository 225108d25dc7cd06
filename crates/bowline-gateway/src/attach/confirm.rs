//! Commits a surface's cursor to the session: one command at a time, the newest position wins.
//!
//! Invariant: a `PONG` is sent only after the positions that the surface confirmed before its `PING`
//! are committed. So a client that sends both knows from the `PONG` that nothing up to there is
//! delivered again, whatever happens to the gateway (G3).

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bowline_sbp::error::Close;
use bowline_sbp::frame::ServerFrame;
use bowline_sbp::id::Seq;
use bowline_sbp::session::{Command, Reply};

use super::SurfaceTask;
use crate::session::SessionHandle;
use crate::socket::SocketEnd;

/// How long a surface that disconnects waits for its confirmed cursor to be committed.
const SETTLING: Duration = Duration::from_secs(2);

pub(super) struct Confirming {
    handle: SessionHandle,
    epoch: u64,
    wanted: Option<Seq>,
    flight: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
    /// Pings to be answered when the command in flight is done, and when the one after it is.
    pings: (u32, u32),
}

impl Confirming {
    pub(super) fn new(handle: SessionHandle, epoch: u64) -> Self {
        Self { handle, epoch, wanted: None, flight: None, pings: (0, 0) }
    }

    /// The surface has confirmed everything up to `seq`.
    pub(super) fn reached(&mut self, seq: Option<Seq>) {
        self.wanted = seq.or(self.wanted);
        self.start();
    }

    /// The surface has sent a `PING`. Returns whether it is to be answered now.
    pub(super) fn pinged(&mut self) -> bool {
        match (&self.flight, self.wanted) {
            (None, _) => return true,
            (Some(_), None) => self.pings.0 = self.pings.0.saturating_add(1),
            (Some(_), Some(_)) => self.pings.1 = self.pings.1.saturating_add(1),
        }
        false
    }

    fn start(&mut self) {
        if self.flight.is_some() {
            return;
        }
        let Some(seq) = self.wanted.take() else { return };
        let (handle, epoch) = (self.handle.clone(), self.epoch);
        self.flight = Some(Box::pin(async move {
            let reply = handle.call(Command::Confirmed { epoch, seq }).await;
            matches!(reply, Ok(Reply::Done))
        }));
    }

    /// Resolves when a position was committed or refused; never if none is in flight. Returns how
    /// many pings are to be answered.
    pub(super) async fn next(&mut self) -> Result<u32, ()> {
        let Some(flight) = &mut self.flight else { return std::future::pending().await };
        let taken = flight.await;
        self.flight = None;
        self.start();
        let (answered, later) = self.pings;
        self.pings = (later, 0);
        if taken { Ok(answered) } else { Err(()) }
    }

    /// Waits for the commands in flight.
    pub(super) async fn settle(&mut self) {
        let settled = async { while self.flight.is_some() && self.next().await.is_ok() {} };
        let _ = tokio::time::timeout(SETTLING, settled).await;
    }
}

impl SurfaceTask<'_> {
    /// A position was committed or refused: so many pings are to be answered.
    pub(super) async fn confirmed(&mut self, pings: Result<u32, ()>) -> Result<(), SocketEnd> {
        match pings {
            Ok(pings) => self.answer_pings(pings).await,
            // The cursor was not committed: after a reconnect, the turns behind it are sent again.
            Err(()) => Err(SocketEnd::Bare(Close::TryAgain)),
        }
    }

    pub(super) async fn pinged(&mut self) -> Result<(), SocketEnd> {
        match self.confirming.pinged() {
            true => self.answer_pings(1).await,
            false => Ok(()),
        }
    }

    pub(super) async fn answer_pings(&mut self, pings: u32) -> Result<(), SocketEnd> {
        for _ in 0..pings {
            self.socket.send(&ServerFrame::Pong {}).await?;
        }
        Ok(())
    }
}
