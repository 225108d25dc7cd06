//! One stream of a tunnel, as a program sees it: like a TCP connection that survives lost networks.
//!
//! Invariants
//! - An end of file means that the peer sent everything. A stream that was cut off gives an error.
//! - A stream that is dropped before both directions have ended is reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bowline_sbrp::tunnel::{EndDelivery, ReadOutcome, ResetReason, StreamId, WriteOutcome};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::core::TunnelCore;

/// One stream of a tunnel: bytes both ways, in order, over as many sessions as it takes. Dropping
/// it before both directions have ended resets it.
#[derive(Debug)]
pub struct TunnelStream {
    core: Option<Arc<TunnelCore>>,
    id: StreamId,
}

impl TunnelStream {
    pub(super) fn new(core: Arc<TunnelCore>, id: StreamId) -> Self {
        Self { core: Some(core), id }
    }

    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    /// Completes when the peer has received everything that was written and the end, or with an error when
    /// the stream was cut off before. What was written is in this process's memory until then. It waits
    /// for a shutdown, and has to complete before the stream is dropped.
    pub fn finished(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let (core, id) = (self.core.clone(), self.id);
        async move {
            let core = core.ok_or(io::ErrorKind::NotConnected)?;
            match std::future::poll_fn(|cx| core.poll_delivered(id, cx)).await {
                EndDelivery::Delivered | EndDelivery::Waiting => Ok(()),
                EndDelivery::Reset(reason) => Err(reset(reason)),
            }
        }
    }

    /// Ends both directions and says why.
    pub fn refuse(self, reason: ResetReason) {
        if let Some(core) = &self.core {
            core.reset(self.id, reason);
        }
    }

    /// Dropping it does nothing any more.
    pub(super) fn disarm(mut self) {
        self.core = None;
    }

    fn core(&self) -> io::Result<&Arc<TunnelCore>> {
        self.core.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The next bytes as they came, without a copy; `None` at the end.
    pub async fn next_bytes(&mut self) -> io::Result<Option<Bytes>> {
        self.next_piece().await
    }

    /// The same without exclusive access, for one reader beside one writer.
    pub(super) async fn next_piece(&self) -> io::Result<Option<Bytes>> {
        let core = self.core()?;
        match std::future::poll_fn(|cx| core.poll_read(self.id, usize::MAX, cx)).await {
            ReadOutcome::Bytes(bytes) => Ok(Some(bytes)),
            ReadOutcome::End | ReadOutcome::Blocked => Ok(None),
            ReadOutcome::Reset(reason) => Err(reset(reason)),
        }
    }

    /// Writes all of it, for one writer beside one reader.
    pub(super) async fn write_whole(&self, mut bytes: &[u8]) -> io::Result<()> {
        let core = self.core()?;
        while !bytes.is_empty() {
            let outcome = std::future::poll_fn(|cx| core.poll_write(self.id, bytes, cx)).await;
            bytes = &bytes[wrote(outcome)?..];
        }
        Ok(())
    }

    /// Says that nothing more is written.
    pub(super) fn end(&self) -> io::Result<()> {
        self.core()?.end(self.id);
        Ok(())
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match ready!(self.core()?.poll_read(self.id, buffer.remaining(), cx)) {
            ReadOutcome::Bytes(bytes) => buffer.put_slice(&bytes),
            ReadOutcome::End | ReadOutcome::Blocked => {}
            ReadOutcome::Reset(reason) => return Poll::Ready(Err(reset(reason))),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(wrote(ready!(self.core()?.poll_write(self.id, bytes, cx))))
    }

    /// What was written is sent without being asked for.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does not wait for the peer; [`TunnelStream::finished`] does.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            core.forget(self.id);
        }
    }
}

fn wrote(outcome: WriteOutcome) -> io::Result<usize> {
    match outcome {
        WriteOutcome::Wrote(count) => Ok(count),
        WriteOutcome::Ended | WriteOutcome::Blocked => Err(io::ErrorKind::BrokenPipe.into()),
        WriteOutcome::Reset(reason) => Err(reset(reason)),
    }
}

fn reset(reason: ResetReason) -> io::Error {
    let kind = match reason {
        ResetReason::Cancelled | ResetReason::TunnelLost => io::ErrorKind::ConnectionReset,
        ResetReason::NotPermitted => io::ErrorKind::PermissionDenied,
        ResetReason::NotOffered | ResetReason::Unreachable | ResetReason::TooMany => {
            io::ErrorKind::ConnectionRefused
        }
    };
    io::Error::new(kind, reason)
}
