//! Reads whole request bodies, with limits on size and time (G11).

use std::time::Duration;

use bytes::Bytes;
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
    let collected = Limited::new(body, most).collect();
    match tokio::time::timeout(within, collected).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge { most }),
        Ok(Err(_)) => Err(BodyError::BrokenOff),
        Err(_) => Err(BodyError::TooSlow),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
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
    async fn g11_a_body_that_is_announced_over_the_limit_is_not_read() {
        let read = read(Never(6), 5, LONG).await;
        assert_eq!(read, Err(BodyError::TooLarge { most: 5 }));
    }

    #[tokio::test(start_paused = true)]
    async fn g11_a_body_has_a_time() {
        assert_eq!(read(Never(5), 5, LONG).await, Err(BodyError::TooSlow));
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
