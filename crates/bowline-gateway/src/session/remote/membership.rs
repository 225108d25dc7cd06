//! What happens to live sessions when replicas come and go. Who is alive is decided elsewhere, by
//! leases; this is what follows from it.

use std::sync::Arc;
use std::time::Duration;

use bowline_bus::BusError;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::session::{Command, ReplicaId};
use tokio::sync::watch;
use uuid::Uuid;

use super::{beat, read};
use crate::liveness::LocalSessions;
use crate::session::live::Live;
use crate::session::registry::LiveSessions;

/// How soon the inbox under a new id is tried to be opened again.
const PAUSE: Duration = Duration::from_millis(500);

#[async_trait::async_trait]
impl LocalSessions for Arc<LiveSessions> {
    async fn take_over(&self, sessions: Vec<SessionId>) {
        for id in sessions {
            if self.look_at(id).is_none() {
                LiveSessions::take_over(self, [id]).await;
                continue;
            }
            // An actor without a lease may have been loaded before these turns came. When it has to
            // reply it looks whether that is so, and ends: the next one has the turns.
            let handle = self.handle(id);
            tokio::spawn(async move {
                let _ = handle.call(Command::Join { turn: TurnId(Uuid::nil()) }).await;
            });
        }
    }

    fn replica_dead(&self, replica: ReplicaId) {
        self.edge_dead(replica);
    }

    async fn abandon_all(&self) -> ReplicaId {
        loop {
            match LiveSessions::abandon_all(self).await {
                Ok(me) => return me,
                Err(error) => {
                    tracing::warn!(%error, "cannot go on under a new id yet");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn suspend(&self, suspended: bool) {
        self.suspended.send_replace(suspended);
    }
}

impl LiveSessions {
    /// Resolves when this replica may no longer serve surfaces: they are closed with 1012, and find
    /// another one.
    pub(crate) async fn suspended(&self) {
        // Never fails: the sender is here.
        let _ = self.suspended.subscribe().wait_for(|suspended| *suspended).await;
    }

    /// Whether this replica takes turns. One that may have lost its lease does not: its database may say nothing
    /// for long, and another replica may be well.
    pub(in crate::session) fn may_begin(&self) -> Result<(), Failure> {
        if self.gate.is_open() {
            return Ok(());
        }
        let message = "the lease of this replica cannot be renewed; try again, or at another one";
        Err(Failure { retry_after: Some(1), ..Failure::new(Code::NotNow, message) })
    }

    /// Begins to read messages of other replicas. Before this replica registers: whoever finds it
    /// in the store can reach it.
    pub(crate) async fn listen(self: &Arc<Self>) -> Result<(), BusError> {
        let identity = self.identity();
        let inbox = self.remote.open(identity.me).await?;
        tokio::spawn(read(Arc::downgrade(self), inbox, identity.ended.clone()));
        tokio::spawn(beat::send(Arc::downgrade(self), identity));
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
