//! Who may read the metrics of a relay or a control plane: whoever is on its machine, and who shows
//! the key that its operator set for it.
//!
//! They name nobody, but they tell how many there are and when they come.

use std::fmt;

use bowline_net::Peer;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What everybody else is told.
pub(crate) const METRICS_REFUSED: &str = "metrics are for this server's own machine, or for who shows the \
     key of --metrics-key-file as `Authorization: Bearer …`";

/// Who may read metrics. By default only who is on this machine.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MetricsAccess {
    /// The hash of the operator's key.
    key: Option<[u8; 32]>,
}

impl MetricsAccess {
    /// Also for who shows this key.
    pub fn with_key(key: &str) -> Self {
        Self { key: Some(Sha256::digest(key).into()) }
    }

    /// Whether the sender of a request may read them.
    pub(crate) fn allows(&self, peer: Option<&Peer>, headers: &HeaderMap) -> bool {
        let shown = || {
            let (scheme, key) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| Sha256::digest(key.trim()))
        };
        let is_right = |key: &[u8; 32]| {
            shown().is_some_and(|shown| shown.as_slice().ct_eq(key.as_slice()).into())
        };
        peer.is_some_and(Peer::is_local) || self.key.as_ref().is_some_and(is_right)
    }
}

impl fmt::Debug for MetricsAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsAccess").field("key", &self.key.is_some()).finish()
    }
}
