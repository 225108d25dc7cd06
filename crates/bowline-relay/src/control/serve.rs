//! The listener of a control plane, and its shutdown.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use bowline_net::loopback::is_loopback;
use bowline_net::{Door, DoorError};
use tokio_util::sync::CancellationToken;

use super::config::{BadConfig, ControlLimits, Listen};
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
    #[error("{address} can be reached from outside, and API keys would travel in the clear")]
    Plain { address: SocketAddr },
    #[error(transparent)]
    Door(#[from] DoorError),
    #[error("the operating system gives no thread: {0}")]
    Thread(String),
    #[error("cannot ask relays: {0}")]
    Client(String),
}

/// Binds the address: with TLS, on loopback, or in plain HTTP if `insecure_plain` is set.
pub async fn open_door(listen: &Listen, limits: &ControlLimits) -> Result<Door, ControlStartError> {
    let Listen { address, tls, insecure_plain, trusted_proxies } = listen.clone();
    if tls.is_none() && !is_loopback(address.ip()) && !insecure_plain {
        return Err(ControlStartError::Plain { address });
    }
    Ok(Door::open(address, tls, trusted_proxies, limits.door()).await?)
}

/// Serves until `stop` is cancelled, then waits for open requests to finish.
pub(super) async fn serve(door: Door, router: Router, stop: CancellationToken) {
    let connections = door.serve(router, stop).await;
    connections.ended(LAST_CALL).await;
}
