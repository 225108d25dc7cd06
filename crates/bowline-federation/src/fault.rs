//! What can be wrong with a peer, and what it is to blame for: one table.
//!
//! Invariant: nobody is blamed for what somebody else said of it. A token or record that leads to the
//! wrong gateway is not that gateway's lie.

use std::time::Duration;

use bowline_sbp::bundle::OpenError;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::{GatewayId, ManifestError, RegistryError};

use crate::limits::Lateness;
use crate::pins::PinsUnavailable;
use crate::target::BadTarget;

/// Why a peer was not asked, or its answer not taken. Without tokens, keys and content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerFault {
    #[error("the peer is not asked: {0}")]
    Target(#[from] BadTarget),
    #[error("the peer is not asked: {0}")]
    NotPublic(String),
    #[error("the peer is left alone for {} s, because it failed or lied", .wait.as_secs() + 1)]
    BackedOff { wait: Duration },
    #[error("the peer cannot be reached: {0}")]
    Unreachable(String),
    #[error("the peer was not heard: {0}")]
    Late(Lateness),
    #[error("the peer's answer broke off")]
    BrokenOff,
    #[error("the peer's answer is over {most} bytes")]
    TooLarge { most: usize },
    #[error("the peer sent a redirect, and redirects are not followed")]
    Redirect,
    #[error("the peer's answer is compressed, which was not asked for")]
    Encoded,
    #[error("the peer answered {0}")]
    Status(u16),
    #[error("the peer is asked for too much at once; it wants to be asked again in {} s", .wait.as_secs())]
    Limited { wait: Duration },
    #[error("the peer does not have it")]
    NotFound,
    #[error("the peer's manifest is not accepted: {0}")]
    Manifest(ManifestError),
    #[error("the peer's manifest says that it serves elsewhere")]
    Elsewhere,
    #[error("the peer's key is not the one that signed")]
    OtherSigner,
    #[error("the peer is no tracker")]
    NoTracker,
    #[error("the tracker's answer is not accepted: {0}")]
    Registry(RegistryError),
    #[error("the peer's answer cannot be read")]
    Unreadable,
    #[error("the peer sent another bundle than the one that was asked for")]
    OtherBundle,
    #[error("the peer's bundle is not accepted: {0}")]
    Bundle(OpenError),
    #[error("the peer's bundle cannot be kept here: {0}")]
    Spool(String),
    #[error(transparent)]
    Pins(#[from] PinsUnavailable),
}

/// What a fault says of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Nothing: we did not ask, or it answered as it may.
    None,
    /// It failed, as any server may: left alone for a moment.
    Failure,
    /// It did what no honest server does: left alone for long.
    Lie,
}

impl PeerFault {
    pub fn blame(&self) -> Blame {
        match self {
            Self::Target(_) | Self::NotPublic(_) | Self::BackedOff { .. } => Blame::None,
            Self::Limited { .. } => Blame::None,
            Self::NotFound | Self::NoTracker | Self::Elsewhere | Self::OtherSigner => Blame::None,
            Self::Spool(_) | Self::Pins(_) => Blame::None,
            Self::Status(500..) => Blame::Failure,
            Self::Status(_) => Blame::None,
            Self::Unreachable(_) | Self::BrokenOff | Self::Unreadable => Blame::Failure,
            // Networks are slow, and another gateway's limits may be higher than ours.
            Self::Late(_) | Self::TooLarge { .. } => Blame::Failure,
            Self::Redirect | Self::Encoded => Blame::Lie,
            Self::Manifest(error) => match error {
                ManifestError::OtherGateway { .. } => Blame::None,
                ManifestError::Unreadable | ManifestError::Future => Blame::Failure,
                // Each replica of a gateway may sign its own.
                ManifestError::Older => Blame::None,
                ManifestError::KeyChanged { .. } => Blame::Failure,
                ManifestError::Signature => Blame::Lie,
            },
            Self::Registry(RegistryError::Unreadable | RegistryError::Time) => Blame::Failure,
            Self::Registry(_) => Blame::Lie,
            Self::OtherBundle | Self::Bundle(_) => Blame::Lie,
        }
    }
}

impl From<ManifestError> for PeerFault {
    fn from(error: ManifestError) -> Self {
        Self::Manifest(error)
    }
}

impl From<RegistryError> for PeerFault {
    fn from(error: RegistryError) -> Self {
        Self::Registry(error)
    }
}

impl PeerFault {
    /// What whoever asked us for something of that gateway is told, with what can be done about it.
    pub fn told(&self, gateway: &GatewayId) -> Failure {
        let code = match self {
            Self::BackedOff { .. } | Self::Limited { .. } => Code::Unavailable,
            Self::Late(_) => Code::UpstreamTimeout,
            // Whose it is, has to be said by a person.
            Self::Manifest(_) | Self::Pins(PinsUnavailable::Full { .. }) => Code::Forbidden,
            Self::Pins(PinsUnavailable::Store(_)) => Code::NotNow,
            Self::Spool(_) => Code::Internal,
            Self::TooLarge { .. } => Code::TooLarge,
            Self::OtherBundle | Self::Bundle(_) => Code::TokenIntegrity,
            _ => Code::Upstream,
        };
        let remedy = match self {
            Self::BackedOff { .. } => {
                format!("; `bowline peers check {gateway}` asks it at once and says what is wrong")
            }
            Self::Manifest(ManifestError::KeyChanged { shown, .. }) => format!(
                "; if it has a new key, `bowline peers approve {gateway} {shown}` accepts that one, or \
                 the `key` in `federation.peers`"
            ),
            _ => String::new(),
        };
        let mut failure = Failure::new(code, format!("the gateway {gateway}: {self}{remedy}"));
        if let Self::BackedOff { wait } | Self::Limited { wait } = self {
            failure.retry_after = Some(wait.as_secs() + 1);
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use bowline_sbp::gateway_key::GatewayIdentity;

    use super::*;

    #[test]
    fn sbp_l6_06_who_is_told_of_a_fault_is_told_what_to_do() {
        let home = "home".parse().unwrap();
        let wait = Duration::from_secs(90);
        let backed_off = PeerFault::BackedOff { wait }.told(&home);
        assert_eq!((backed_off.code, backed_off.retry_after), (Code::Unavailable, Some(91)));
        assert!(backed_off.message.contains("`bowline peers check home`"), "{backed_off:?}");
        let key = |n| GatewayIdentity::from_seed(&[n; 32]).public().fingerprint();
        let changed = ManifestError::KeyChanged { pinned: key(1), shown: key(2) };
        let changed = PeerFault::from(changed).told(&home);
        let approve = format!("`bowline peers approve home {}`", key(2));
        assert_eq!((changed.code, changed.retry_after), (Code::Forbidden, None));
        assert!(changed.message.contains(&approve), "{changed:?}");
        let full = PeerFault::from(PinsUnavailable::Full { most: 3 }).told(&home);
        assert!(full.message.contains("federation.peers"), "{full:?}");
    }
}
