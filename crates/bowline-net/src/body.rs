//! Reads whole request bodies, with limits on size and time (G11).

use std::pin::pin;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the body is over {most} bytes")]
    TooLarge { most: usize },
    #[error("the body broke off")]
    BrokenOff,
    #[error("the body took too long")]
    TooSlow,
}

/// Reads a whole body of at most `most` bytes, within that time. One that is announced to be larger
/// is refused before any of it is read.
pub async fn read<B>(body: B, most: usize, within: Duration) -> Result<Bytes, BodyError>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > most as u64 {
        return Err(BodyError::TooLarge { most });
    }
    let collected = collect(Limited::new(body, most));
    match tokio::time::timeout(within, collected).await {
        Ok(Ok(collected)) => Ok(collected),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge { most }),
        Ok(Err(_)) => Err(BodyError::BrokenOff),
        Err(_) => Err(BodyError::TooSlow),
    }
}

/// Copies the chunks of a body together as they come. A chunk is a part of the connection's read buffer
/// and holds all of it: kept as they are, a client that sends a byte at a time would hold 8 KiB for
/// each (measured).
async fn collect<B>(body: B) -> Result<Bytes, B::Error>
where
    B: Body,
{
    let mut body = pin!(body);
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(mut chunk) = frame?.into_data() else { continue };
        if collected.is_empty() && body.is_end_stream() {
            return Ok(chunk.copy_to_bytes(chunk.remaining()));
        }
        collected.put(chunk);
    }
    Ok(collected.freeze())
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use http_body_util::Full;
    use hyper::body::{Frame, SizeHint};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn g11_a_body_has_a_size() {
        let body = |text: &'static str| Full::new(Bytes::from(text));
        assert_eq!(read(body("hello"), 5, LONG).await, Ok("hello".into()));
        assert_eq!(read(body("hello"), 4, LONG).await, Err(BodyError::TooLarge { most: 4 }));
    }

    #[tokio::test]
    async fn g11_a_chunk_is_not_held_until_the_body_is_whole() {
        let held = Arc::new(AtomicUsize::new(0));
        assert_eq!(read(Chunks::of(100, &held), 100, LONG).await, Ok(vec![b'x'; 100].into()));
        assert_eq!(read(Chunks::of(1, &held), 1, LONG).await, Ok("x".into()));
        let refused = read(Chunks::of(101, &held), 100, LONG).await;
        assert_eq!(refused, Err(BodyError::TooLarge { most: 100 }));
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn g11_a_body_that_is_announced_over_the_limit_is_not_read() {
        let read = read(Never(6), 5, LONG).await;
        assert_eq!(read, Err(BodyError::TooLarge { most: 5 }));
    }

    #[tokio::test(start_paused = true)]
    async fn g11_a_body_has_a_time() {
        assert_eq!(read(Never(5), 5, LONG).await, Err(BodyError::TooSlow));
    }

    /// A body of so many chunks, which checks that those before were let go.
    struct Chunks {
        left: usize,
        held: Arc<AtomicUsize>,
    }

    impl Chunks {
        fn of(left: usize, held: &Arc<AtomicUsize>) -> Self {
            Self { left, held: Arc::clone(held) }
        }
    }

    /// A chunk of one byte, which counts while it is there.
    struct Chunk(Arc<AtomicUsize>);

    impl AsRef<[u8]> for Chunk {
        fn as_ref(&self) -> &[u8] {
            b"x"
        }
    }

    impl Drop for Chunk {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl Body for Chunks {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
            self.left = left;
            assert_eq!(self.held.fetch_add(1, Ordering::Relaxed), 0, "a chunk is held");
            let chunk = Bytes::from_owner(Chunk(Arc::clone(&self.held)));
            Poll::Ready(Some(Ok(Frame::data(chunk))))
        }
    }

    /// A body that announces so many bytes and never sends anything.
    struct Never(u64);

    impl Body for Never {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            Poll::Pending
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0)
        }
    }
}
