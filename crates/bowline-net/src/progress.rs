//! Progress of a connection that is slow: what counts as a sign that its peer is alive.
//!
//! A deadline for a whole message ends every slow connection, whatever it achieves. So deadlines are for
//! progress, and progress has to be seen. A socket says that it can take more only when a third of its
//! buffer is free, and the buffer of a distant peer is large: at 5 KB/s that is minutes of silence.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket takes more as soon as less than half of this waits to be sent: at 5 KB/s, every 3 s.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 32 << 10;

/// How much TLS may hold back of what was written, in bytes: deadlines above it see no progress while
/// that is sent.
pub(crate) const TLS_BUFFER: usize = 16 << 10;

/// Has a TCP socket show progress while it sends slowly. Failure is ignored: it then shows less of it.
pub fn show<'s>(socket: impl Into<SockRef<'s>>) {
    #[cfg(target_os = "linux")]
    let _ = socket.into().set_tcp_notsent_lowat(UNSENT);
    #[cfg(not(target_os = "linux"))]
    let _ = socket.into();
}

/// Whether anything moved on a connection since it was asked last.
#[derive(Debug, Clone, Default)]
pub struct SignsOfLife(Arc<AtomicBool>);

impl SignsOfLife {
    /// Whether bytes came, or the peer took bytes that had waited for it, since this was called last.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    fn seen(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stream that records signs of life of its peer: bytes that come, and room for bytes that had to wait.
/// That a buffer takes bytes while it has room says nothing about the peer.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    signs: SignsOfLife,
    /// The last write had to wait.
    blocked: bool,
}

impl<S> Watched<S> {
    pub fn new(stream: S) -> (Self, SignsOfLife) {
        let signs = SignsOfLife::default();
        (Self { stream, signs: signs.clone(), blocked: false }, signs)
    }

    fn written<T>(&mut self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &written {
            Poll::Pending => self.blocked = true,
            Poll::Ready(Ok(_)) if self.blocked => {
                self.blocked = false;
                self.signs.seen();
            }
            Poll::Ready(_) => {}
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.signs.seen();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.written(written)
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

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_buffer_that_takes_bytes_is_no_sign_of_life_and_a_peer_that_does_is() {
        let (near, mut far) = tokio::io::duplex(100);
        let (mut watched, signs) = Watched::new(near);
        watched.write_all(&[7; 100]).await.unwrap();
        assert!(!signs.take(), "it went into a buffer");
        {
            let mut more = std::pin::pin!(watched.write_all(&[7; 10]));
            assert!(poll!(&mut more).is_pending() && !signs.take());
            far.read_exact(&mut [0; 100]).await.unwrap();
            more.await.unwrap();
        }
        assert!(signs.take(), "the peer made room");
        assert!(!signs.take(), "once");
        far.write_all(b"x").await.unwrap();
        watched.read_u8().await.unwrap();
        assert!(signs.take(), "a byte came");
    }
}
