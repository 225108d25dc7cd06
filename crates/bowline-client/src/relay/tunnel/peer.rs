//! Who is at the other end of a tunnel.

use std::sync::Arc;

use crate::relay::devices::PairedDevice;

/// A device or a stranger, as a service is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelPeer {
    /// A paired device.
    Device(Arc<PairedDevice>),
    /// A client without a proof, which the configuration allows.
    Plain,
}

impl TunnelPeer {
    pub(super) fn key(&self) -> Option<[u8; 32]> {
        match self {
            Self::Device(device) => Some(*device.key.as_bytes()),
            Self::Plain => None,
        }
    }

    /// Whether it may open this service.
    pub fn may_open(&self, service: &str) -> bool {
        match self {
            Self::Device(device) => device.may_open(service),
            Self::Plain => true,
        }
    }
}
