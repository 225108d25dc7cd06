//! Runs a service for each stream that a device opens in one tunnel.

use std::sync::Arc;

use bowline_sbrp::tunnel::{ResetReason, StreamId};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::core::{Accepted, TunnelCore};
use super::peer::TunnelPeer;
use super::services::{PING, Services, echo};

/// Returns when the device has closed the tunnel and the services of the streams that it had ended are done.
/// Dropping the future ends all of them.
pub(super) async fn accept(
    core: Arc<TunnelCore>,
    mut streams: mpsc::UnboundedReceiver<Accepted>,
    services: Arc<dyn Services>,
    peer: TunnelPeer,
) {
    let mut running = JoinSet::new();
    let mut tasks: Vec<(StreamId, AbortHandle)> = Vec::new();
    while let Some((stream, service)) = streams.recv().await {
        while running.try_join_next().is_some() {}
        tasks.retain(|(_, task)| !task.is_finished());
        let id = stream.id();
        let task = if service == PING {
            running.spawn(echo(stream))
        } else if !services.offers(&service) {
            stream.refuse(ResetReason::NotOffered);
            continue;
        } else if !peer.may_open(&service) {
            stream.refuse(ResetReason::NotPermitted);
            continue;
        } else {
            let services = Arc::clone(&services);
            let peer = peer.clone();
            running.spawn(async move { services.run(peer, service, stream).await })
        };
        tasks.push((id, task));
    }
    for (id, task) in tasks {
        if !core.peer_has_ended(id) {
            task.abort();
        }
    }
    while running.join_next().await.is_some() {}
    // A service may have handed its stream on.
    core.without_streams().await;
}
