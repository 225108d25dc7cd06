//! The journal of a migration at its destination, and the session that it becomes.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::bundle::{OpenError, Opened};
use bowline_sbp::error::Failure;
use bowline_sbp::federation::migration::{Event, Stage};
use bowline_sbp::id::AgentId;
use bowline_store::{Edge, EdgeKind, Error, NewImport};

use super::super::super::internal;
use super::super::ancestry::CameFromGateway;
use super::super::import::ImportPlan;
use super::Arrival;

/// The pause after the store failed.
const STORE_PAUSE: Duration = Duration::from_millis(500);

impl Arrival {
    /// Changes the journal. If the store fails, its present stage is read until that succeeds.
    pub(super) async fn record(&mut self, from: Stage, to: Stage) -> Event {
        let mut recorded = self.try_record(from, to).await;
        loop {
            match recorded {
                Ok(stage) => return Event::Recorded(stage),
                Err(Unrecorded::Unfit(failure)) => {
                    self.why = Some(failure);
                    return Event::Unfit;
                }
                Err(Unrecorded::Store(error)) => {
                    tracing::warn!(%error, "the journal of a migration cannot be written");
                    tokio::time::sleep(STORE_PAUSE).await;
                    let kept = self.engine.store.migration(self.kept.id).await;
                    let gone = || Error::Corrupt("a migration without a journal".into());
                    recorded = kept
                        .and_then(|kept| Ok(kept.ok_or_else(gone)?.stage))
                        .map_err(Unrecorded::Store);
                }
            }
        }
    }

    async fn try_record(&mut self, from: Stage, to: Stage) -> Result<Stage, Unrecorded> {
        let (store, id) = (Arc::clone(&self.engine.store), self.kept.id);
        let stage = match to {
            Stage::Staged => {
                // Whether it becomes a session is seen before it is anybody's.
                self.planned().await.map_err(Unrecorded::Unfit)?;
                let text = self.text.clone().unwrap_or_default();
                store.stage_migration(id, text.into_bytes()).await?
            }
            Stage::Active => {
                let (import, edge) = self.planned().await.map_err(|failure| {
                    Unrecorded::Store(Error::Unavailable(failure.to_string()))
                })?;
                let import = NewImport { tether: self.tether.clone(), ..import };
                let stage = store.activate_migration(id, import.clone()).await?;
                if stage == Stage::Active {
                    metrics::counter!("bowline_imports_total").increment(1);
                    self.made = Some((import, edge));
                }
                stage
            }
            Stage::Dropped(why) => store.drop_migration(id, from, why).await?,
            Stage::Reserving => from,
        };
        Ok(stage)
    }

    /// The session that the bundle becomes.
    async fn planned(&mut self) -> Result<(NewImport, Edge), Failure> {
        if self.text.is_none() {
            let staged = self.engine.store.staged_bundle(self.kept.id).await?;
            let staged = staged.and_then(|bytes| String::from_utf8(bytes).ok());
            self.text = Some(staged.ok_or_else(internal)?);
        }
        let text = self.text.clone().unwrap_or_default();
        // Hashing a long history would block the async runtime.
        let opened = tokio::task::spawn_blocking(move || Opened::read(&text)).await;
        let opened: Opened =
            opened.map_err(|_| internal())?.map_err(|error: OpenError| Failure::from(error))?;
        let own = opened.contents.session.agent.parse().ok();
        let own = own.filter(|own| self.engine.knows(own));
        let agent = self.asked.agent.clone().or(own).unwrap_or_else(AgentId::fallback);
        let plan = ImportPlan {
            id: self.asked.session,
            user: self.kept.user,
            agent,
            with_memory: self.asked.with_memory,
            export_id: None,
            consume: false,
            kind: EdgeKind::Import,
            key: self.asked.key.clone(),
            from: Some(CameFromGateway {
                gateway_id: self.kept.origin.clone(),
                url: self.asked.url.clone(),
            }),
        };
        self.engine.planned(opened, plan).await
    }
}

/// Why the journal was not changed.
enum Unrecorded {
    /// The bundle cannot become a session here.
    Unfit(Failure),
    Store(Error),
}

impl From<Error> for Unrecorded {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}
