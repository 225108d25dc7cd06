//! The body of a peer's answer, read piece by piece within its limits.

use std::time::Instant;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout_at;

use crate::fault::PeerFault;
use crate::limits::ReadLimits;

/// A body of which no more than the limit is ever taken.
#[derive(Debug)]
pub struct PeerBody {
    body: Incoming,
    limits: ReadLimits,
    began: Instant,
    last: Instant,
    received: usize,
}

impl PeerBody {
    /// Refuses a body that is announced to be larger than the limit before any of it is read.
    pub(crate) fn new(body: Incoming, limits: ReadLimits) -> Result<Self, PeerFault> {
        if body.size_hint().lower() > limits.body as u64 {
            return Err(PeerFault::TooLarge { most: limits.body });
        }
        let now = Instant::now();
        Ok(Self { body, limits, began: now, last: now, received: 0 })
    }

    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PeerFault> {
        loop {
            let (until, why) = self.limits.deadline(self.began, self.last, self.received);
            let frame = match timeout_at(until.into(), self.body.frame()).await {
                Err(_) => return Err(PeerFault::Late(why)),
                Ok(None) => return Ok(None),
                Ok(Some(frame)) => frame.map_err(|_| PeerFault::BrokenOff)?,
            };
            // Trailers say nothing that counts.
            let Ok(piece) = frame.into_data() else { continue };
            if piece.is_empty() {
                continue;
            }
            self.last = Instant::now();
            self.received = self.received.saturating_add(piece.len());
            if self.received > self.limits.body {
                return Err(PeerFault::TooLarge { most: self.limits.body });
            }
            return Ok(Some(piece));
        }
    }

    /// The whole body.
    pub async fn read(mut self) -> Result<Bytes, PeerFault> {
        // Copied together: a piece holds the whole buffer that it came in.
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.into())
    }
}
