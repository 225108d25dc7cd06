//! The registry of a tracker in a server that is something else, too: a gateway of the role `both`.
//!
//! It has a store of its own there, as a tracker has. What it lacks is the distance: who breaks into this process has the
//! sessions as well, so a tracker for everybody should be a process of its own (SBP-L6-08).

use std::path::Path;
use std::sync::Arc;

use axum::{Router, middleware};
use bowline_federation::OwnKeys;
use bowline_sbp::federation::GatewayId;
use tokio_util::sync::CancellationToken;

use crate::config::TrackerConfig;
use crate::http;
use crate::shared::Shared;
use crate::tracker::{self, TrackerStartError};

/// An open registry, which signs with the keys of the server that it is part of.
#[derive(Debug, Clone)]
pub struct MountedRegistry(Arc<Shared>);

impl MountedRegistry {
    /// Opens the registry in `data`. Of the settings only the peers and the limits that are about announcements and
    /// look-ups count: the rest is the server's.
    pub fn open(
        config: TrackerConfig,
        data: &Path,
        id: GatewayId,
        keys: Arc<OwnKeys>,
    ) -> Result<Self, TrackerStartError> {
        let config = TrackerConfig { id, ..config };
        Ok(Self(Arc::new(tracker::open(config, data, keys, CancellationToken::new())?)))
    }

    /// The addresses of a registry, and no others.
    pub fn routes<S>(&self) -> Router<S> {
        let routes = http::registry(Arc::clone(&self.0));
        routes.layer(middleware::map_response(http::not_kept)).with_state(())
    }

    /// Deletes what has ended, for as long as it is polled.
    pub async fn upkeep(self) {
        tracker::upkeep(self.0).await;
    }
}
