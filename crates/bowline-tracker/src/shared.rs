//! What all requests of a tracker share.

use std::sync::Arc;

use bowline_federation::OwnKeys;
use bowline_sbp::federation::GatewayId;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::announcer::Announcers;
use crate::config::TrackerLimits;
use crate::registry::Capacity;
use crate::threads::RegistryThreads;
use crate::throttles::Throttles;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: GatewayId,
    /// Signs the answers.
    pub(crate) keys: Arc<OwnKeys>,
    pub(crate) registry: RegistryThreads,
    pub(crate) announcers: Announcers,
    pub(crate) announcing: Semaphore,
    pub(crate) throttles: Throttles,
    pub(crate) limits: TrackerLimits,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    pub(crate) fn capacity(&self) -> Capacity {
        let TrackerLimits { records, records_per_gateway, gateways, .. } = self.limits;
        Capacity { records, records_per_gateway, gateways }
    }
}
