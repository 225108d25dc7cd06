//! What happens to live sessions when replicas come and go. Who is alive is decided elsewhere, by
//! leases; this is what follows from it.

use std::sync::Arc;

use bowline_bus::BusError;
use bowline_sbp::id::SessionId;
use bowline_sbp::session::ReplicaId;
use tokio::sync::watch;
use uuid::Uuid;

use super::read;
use crate::session::live::Live;
use crate::session::registry::{Identity, LiveSessions};

impl LiveSessions {
    /// Begins to read messages of other replicas. Before this replica registers: whoever finds it
    /// in the store can reach it.
    pub(crate) async fn listen(self: &Arc<Self>) -> Result<(), BusError> {
        let Identity { me, ended } = self.identity();
        let inbox = self.remote.open(me).await?;
        tokio::spawn(read(Arc::downgrade(self), inbox, ended));
        Ok(())
    }

    /// Starts the actors of sessions with unfinished turns whose owner is dead. They take the lease
    /// with their first write; if another replica was faster, its lease stands.
    pub(crate) async fn take_over(
        self: &Arc<Self>,
        sessions: impl IntoIterator<Item = SessionId>,
    ) -> Vec<watch::Receiver<Live>> {
        let mut started = Vec::new();
        for id in sessions {
            if self.stop.is_cancelled() {
                break;
            }
            started.push(self.actor(id).await.live.subscribe());
        }
        started
    }

    /// A replica was declared dead, as an edge and as an owner: its surfaces are gone, and sessions
    /// that it owned are looked for elsewhere.
    pub(crate) fn edge_dead(&self, replica: ReplicaId) {
        self.remote.peer_dead(replica);
    }

    /// This replica was declared dead, so whatever it owned may have other owners: ends its actors
    /// and proxies without another write, and goes on under a new id, which is to be registered.
    /// Surfaces are closed with 1012.
    pub(crate) async fn abandon_all(self: &Arc<Self>) -> Result<ReplicaId, BusError> {
        let new = ReplicaId(Uuid::new_v4());
        self.renamed(new).ended.cancel();
        self.listen().await?;
        Ok(new)
    }
}
