//! How many bundles are packed and given to other gateways at once.
//!
//! A bundle is in memory as a whole, from when it is packed or read until its last byte is sent, and is as large as
//! `limits.import_body`. Without a bound, whoever may have one could ask for it often enough to use all memory up.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::GatewayId;
use hyper::body::{Frame, SizeHint};

/// The most bundles at once, for all gateways together.
const AT_ONCE: usize = 4;
/// For one of them: others come through beside it.
const FOR_ONE: usize = 2;
/// When a gateway may ask again, in seconds.
const ASK_AGAIN: u64 = 2;
/// How much of a bundle is handed to the connection at once.
const PIECE: usize = 64 << 10;

#[derive(Debug, Clone, Default)]
pub(crate) struct Giving(Arc<Mutex<HashMap<GatewayId, usize>>>);

impl Giving {
    /// A permit to have one more bundle for that gateway in memory.
    pub(crate) fn permit(&self, peer: &GatewayId) -> Result<GivingPermit, Failure> {
        let mut all = self.lock();
        let is_full = all.values().sum::<usize>() >= AT_ONCE;
        if is_full || all.get(peer).is_some_and(|own| *own >= FOR_ONE) {
            let why = "too many bundles are given to other gateways at once; ask again soon";
            let failure = Failure::new(Code::RateLimited, why);
            return Err(Failure { retry_after: Some(ASK_AGAIN), ..failure });
        }
        *all.entry(peer.clone()).or_default() += 1;
        Ok(GivingPermit { giving: self.clone(), peer: peer.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GatewayId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One bundle in memory, for as long as this lives.
#[derive(Debug)]
pub(crate) struct GivingPermit {
    giving: Giving,
    peer: GatewayId,
}

impl Drop for GivingPermit {
    fn drop(&mut self) {
        let mut all = self.giving.lock();
        if let Some(own) = all.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                all.remove(&self.peer);
            }
        }
    }
}

/// A bundle on its way to another gateway, as the body of an answer. In pieces, so that it is not at its end before
/// the last of it is on the connection.
#[derive(Debug)]
pub(crate) struct GivenBundle {
    left: Bytes,
    _permit: GivingPermit,
}

impl GivenBundle {
    pub(crate) fn new(bundle: Vec<u8>, permit: GivingPermit) -> Self {
        Self { left: bundle.into(), _permit: permit }
    }
}

impl HttpBody for GivenBundle {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let length = self.left.len().min(PIECE);
        let piece = self.left.split_to(length);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn gateway(id: &str) -> GatewayId {
        id.parse().unwrap()
    }

    #[test]
    fn g11_so_many_bundles_are_given_at_once_and_to_one_gateway() {
        let giving = Giving::default();
        let mut all: Vec<_> = (0..FOR_ONE).map(|_| giving.permit(&gateway("a")).unwrap()).collect();
        let refused = giving.permit(&gateway("a")).unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (Code::RateLimited, Some(ASK_AGAIN)));
        for id in ["b", "c"] {
            all.push(giving.permit(&gateway(id)).unwrap());
        }
        assert!(giving.permit(&gateway("d")).is_err());
        all.pop();
        giving.permit(&gateway("d")).unwrap();
        drop(all);
        assert!(giving.lock().is_empty(), "nobody is remembered for it");
    }

    #[tokio::test]
    async fn g11_a_bundle_is_given_until_its_last_byte_is_taken() {
        let giving = Giving::default();
        let bundle: Vec<u8> = (0..3 * PIECE + 7).map(|n| n as u8).collect();
        let mut body = GivenBundle::new(bundle.clone(), giving.permit(&gateway("a")).unwrap());
        assert_eq!(body.size_hint().exact(), Some(bundle.len() as u64));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), PIECE);
        assert_eq!(giving.lock().len(), 1);
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!([first, rest].concat(), bundle);
        assert!(giving.lock().is_empty());
    }
}
