//! The listener of a control plane, and its shutdown.

use std::time::Duration;

use axum::Router;
use bowline_net::{Door, DoorConfig, DoorError};
use tokio_util::sync::CancellationToken;

use super::config::{BadConfig, ControlLimits};
use super::registry::RegistryOpenError;

/// How long open requests may take to finish after the shutdown began.
const LAST_CALL: Duration = Duration::from_secs(5);

/// Why a control plane did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlStartError {
    #[error(transparent)]
    Config(#[from] BadConfig),
    #[error(transparent)]
    Registry(#[from] RegistryOpenError),
    #[error(transparent)]
    Door(#[from] DoorError),
    #[error("the operating system gives no thread: {0}")]
    Thread(String),
    #[error("cannot ask relays: {0}")]
    Client(String),
}

/// Binds the address of a control plane that runs without a relay.
pub async fn open_door(
    listen: DoorConfig,
    limits: &ControlLimits,
) -> Result<Door, ControlStartError> {
    Ok(Door::open(listen, limits.door()).await?)
}

/// Serves until `stop` is cancelled, then waits for open requests to finish.
pub(super) async fn serve(door: Door, router: Router, stop: CancellationToken) {
    let connections = door.serve(router, stop).await;
    connections.ended(LAST_CALL).await;
}
