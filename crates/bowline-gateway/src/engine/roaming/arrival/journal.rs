//! The journal of a migration at its destination, and the session that it becomes.
//!
//! Invariant: what the store could refuse of an import is refused when it is staged. Once the origin has confirmed, the
//! session is nobody else's, and it is made whatever has filled up since: without what is in the way.

use std::sync::Arc;
use std::time::Duration;

use bowline_net::backoff::Backoff;
use bowline_sbp::bundle::{OpenError, Opened};
use bowline_sbp::error::Failure;
use bowline_sbp::federation::migration::{Event, Stage};
use bowline_sbp::id::AgentId;
use bowline_store::{Edge, EdgeKind, Error, NewImport};

use super::super::super::internal;
use super::super::ancestry::CameFromGateway;
use super::super::import::ImportPlan;
use super::Arrival;

/// The pauses after the store failed.
const STORE_PAUSE: Backoff =
    Backoff { start: Duration::from_millis(500), cap: Duration::from_secs(30) };

impl Arrival {
    /// Changes the journal. If the store fails, its present stage is read until that succeeds. None: the process stops.
    pub(super) async fn record(&mut self, from: Stage, to: Stage) -> Option<Event> {
        let mut recorded = self.try_record(from, to).await;
        if recorded.is_ok() {
            self.store_failures = 0;
        }
        loop {
            match recorded {
                Ok(stage) => return Some(Event::Recorded(stage)),
                Err(Unrecorded::Unfit(failure)) => {
                    self.why = Some(failure);
                    return Some(Event::Unfit);
                }
                Err(Unrecorded::Store(error)) => {
                    let origin = &self.kept.origin;
                    tracing::error!(%origin, %error, "the journal of a migration cannot be written");
                    self.pause().await?;
                    let kept = self.engine.store.migration(self.kept.id).await;
                    let gone = || Error::Corrupt("a migration without a journal".into());
                    recorded = kept
                        .and_then(|kept| Ok(kept.ok_or_else(gone)?.stage))
                        .map_err(Unrecorded::Store);
                }
            }
        }
    }

    /// Longer each time, until something is written. None: the process stops.
    async fn pause(&mut self) -> Option<()> {
        let random = getrandom::u32().unwrap_or(u32::MAX / 2);
        let pause = STORE_PAUSE.delay(self.store_failures, random);
        self.store_failures = self.store_failures.saturating_add(1);
        self.engine.stop.run_until_cancelled(tokio::time::sleep(pause)).await
    }

    async fn try_record(&mut self, from: Stage, to: Stage) -> Result<Stage, Unrecorded> {
        let (store, id) = (Arc::clone(&self.engine.store), self.kept.id);
        let stage = match to {
            Stage::Staged => {
                // Whether it becomes a session is seen before it is anybody's.
                let (import, _) = self.planned().await.map_err(Unrecorded::Unfit)?;
                let text = self.text.clone().unwrap_or_default();
                let staged = store.stage_migration(id, text.into_bytes(), import).await;
                staged.map_err(|error| match error {
                    Error::MemoryFull(_) | Error::KeyReused => Unrecorded::Unfit(error.into()),
                    error => error.into(),
                })?
            }
            Stage::Active => self.activate().await?,
            Stage::Dropped(why) => store.drop_migration(id, from, why).await?,
            Stage::Reserving => from,
        };
        Ok(stage)
    }

    /// Makes the session live, as soon as what is in the way of it is left out.
    async fn activate(&mut self) -> Result<Stage, Unrecorded> {
        loop {
            let planned = self.planned().await;
            let (import, edge) =
                planned.map_err(|failure| Error::Unavailable(failure.to_string()))?;
            let import = NewImport { tether: self.tether.clone(), ..import };
            let activated =
                self.engine.store.activate_migration(self.kept.id, import.clone()).await;
            match activated {
                Ok(Stage::Active) => {
                    metrics::counter!("bowline_imports_total").increment(1);
                    self.made = Some((import, edge));
                    return Ok(Stage::Active);
                }
                Err(error) if self.leaves_out(&error) => {
                    let session = self.asked.session;
                    tracing::error!(%session, %error, "a session that has moved here is made without what is refused");
                }
                activated => return Ok(activated?),
            }
        }
    }

    /// Whether the session is made all the same. It is live nowhere else any more.
    fn leaves_out(&mut self, error: &Error) -> bool {
        match error {
            // They travel on with the session.
            Error::MemoryFull(_) => std::mem::take(&mut self.asked.with_memory),
            // A retry under the key is told of the other request.
            Error::KeyReused => self.asked.key.take().is_some(),
            _ => false,
        }
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
