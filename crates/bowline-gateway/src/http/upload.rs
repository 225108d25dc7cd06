//! A request body that is passed on while it arrives, bounded in size and pace (G11).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, header};
use bowline_net::body::BodyError;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::sync::oneshot;

use super::body;
use super::error::ApiError;
use crate::limits::Limits;
use crate::model::Outgoing;

/// The size of a step when the beginning is read.
const STEP: usize = 64 << 10;

/// A body, of which the beginning may have been read.
pub(super) struct Upload {
    beginning: BytesMut,
    rest: Incoming,
    is_whole: bool,
    /// As the caller announced it.
    length: Option<u64>,
}

/// What has not been read yet.
struct Incoming {
    body: BodyDataStream,
    /// How many more bytes may come.
    left: usize,
    limit: usize,
    /// How long the next piece may take.
    patience: Duration,
}

impl Incoming {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        let piece = match tokio::time::timeout(self.patience, self.body.next()).await {
            Err(_) => return Some(Err(BodyError::TooSlow)),
            Ok(piece) => piece?,
        };
        Some(match piece {
            Err(_) => Err(BodyError::BrokenOff),
            Ok(piece) if piece.len() > self.left => Err(BodyError::TooLarge { most: self.limit }),
            Ok(piece) => {
                self.left -= piece.len();
                Ok(piece)
            }
        })
    }
}

impl Upload {
    /// How many bytes it has, as far as that is known.
    pub(super) fn announced(&self) -> usize {
        let announced = self.length.and_then(|length| usize::try_from(length).ok());
        announced.unwrap_or(self.beginning.len())
    }

    /// Refuses a body that says it is too large before any of it is read.
    pub(super) fn new(headers: &HeaderMap, body: Body, limits: &Limits) -> Result<Self, ApiError> {
        let limit = limits.passthrough_body;
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > limit as u64) {
            return Err(refused(BodyError::TooLarge { most: limit }));
        }
        let patience = limits.body_timeout;
        let rest = Incoming { body: body.into_data_stream(), left: limit, limit, patience };
        Ok(Self { beginning: BytesMut::new(), rest, is_whole: false, length })
    }

    /// What was read so far.
    pub(super) fn beginning(&self) -> &[u8] {
        &self.beginning
    }

    /// Whether all of it was read.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Reads a step further, up to `most` bytes in all.
    pub(super) async fn read_more(&mut self, most: usize) -> Result<(), ApiError> {
        // Doubling keeps the cost of looking at the beginning again and again linear.
        let enough = (self.beginning.len() * 2).max(STEP).min(most);
        while self.beginning.len() < enough {
            match self.rest.next().await {
                Some(piece) => self.beginning.extend_from_slice(&piece.map_err(refused)?),
                None => {
                    self.is_whole = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The body for an upstream, and where to look why it broke.
    pub(super) fn outgoing(self) -> (Outgoing, Broken) {
        let broken = Broken::default();
        let beginning = self.beginning.freeze();
        if self.is_whole {
            return (Outgoing::whole(beginning), broken);
        }
        let (sent, is_sent) = oneshot::channel();
        let why = Arc::clone(&broken.0);
        // `sent` is dropped with the state, at the end.
        let first = Some(beginning).filter(|beginning| !beginning.is_empty());
        let state = Some((first, self.rest, sent));
        let pieces = futures_util::stream::unfold(state, move |state| {
            let why = Arc::clone(&why);
            async move {
                let (first, mut rest, sent) = state?;
                if let Some(first) = first {
                    return Some((Ok(first), Some((None, rest, sent))));
                }
                match rest.next().await? {
                    Ok(piece) => Some((Ok(piece), Some((None, rest, sent)))),
                    Err(error) => {
                        let _ = why.set(error);
                        Some((Err(error), None))
                    }
                }
            }
        });
        let body = reqwest::Body::wrap_stream(pieces);
        (Outgoing::streamed(body, self.length, is_sent), broken)
    }
}

/// Why the body did not arrive whole, if it did not.
#[derive(Debug, Default)]
pub(super) struct Broken(Arc<OnceLock<BodyError>>);

impl Broken {
    pub(super) fn why(&self) -> Option<ApiError> {
        self.0.get().copied().map(refused)
    }
}

fn refused(error: BodyError) -> ApiError {
    body::refused(error, "limits.passthrough_body")
}
