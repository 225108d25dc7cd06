//! Writes that nobody waits for: what was used without being stored, and entries of the audit.
//!
//! They gather in memory and are written together, a little later: a transaction of their own costs
//! what the flush of one costs, however many they are. Not with the commits of live sessions: those
//! would wait for rows that they have nothing to do with.
//!
//! Invariants
//! - What waits is bounded. Beyond the bound the oldest entries of the audit are dropped, and usage
//!   of further keys is not counted: the database has been away for long.
//! - What surely was not written stays, and is written the next time. Where that is unknown it is
//!   dropped: something counted twice would refuse somebody a turn.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::audit;
use super::error::Fault;
use super::pool::{Connection, Pool};
use super::usage::{self, Usages};
use crate::{AuditEntry, Error, Result};

/// How long writes gather.
const GATHER: Duration = Duration::from_millis(500);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// The most entries of the audit that wait. Rows of usage have their own bound.
const MOST: usize = 100_000;

/// What waits to be written.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) usages: Usages,
    audit: Vec<AuditEntry>,
    /// Whether a task will write it.
    has_task: bool,
}

impl Waiting {
    pub(super) fn record(&mut self, entries: Vec<AuditEntry>) {
        self.audit.extend(entries);
        let surplus = self.audit.len().saturating_sub(MOST);
        self.audit.drain(..surplus);
    }

    fn is_empty(&self) -> bool {
        self.usages.is_empty() && self.audit.is_empty()
    }

    fn take(&mut self) -> (Usages, Vec<AuditEntry>) {
        (std::mem::take(&mut self.usages), std::mem::take(&mut self.audit))
    }
}

/// Writes that nobody waits for, and where they go.
#[derive(Debug, Clone)]
pub(super) struct LaterWrites {
    waiting: Arc<Mutex<Waiting>>,
    /// One at a time writes, so that a second one has nothing left to write when it returns.
    writing: Arc<tokio::sync::Mutex<()>>,
    pool: Pool,
    writer: Uuid,
}

impl LaterWrites {
    pub(super) fn new(pool: Pool, writer: Uuid) -> Self {
        Self { waiting: Arc::default(), writing: Arc::default(), pool, writer }
    }

    /// Adds something, and sees to it that it is written soon.
    pub(super) fn add(&self, add: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.locked();
        add(&mut waiting);
        // Without a runtime it is written when the store is settled or closed.
        if !waiting.has_task
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            waiting.has_task = true;
            runtime.spawn(self.clone().write_soon());
        }
    }

    /// Writes what waits now.
    pub(super) async fn write(&self) -> Result<()> {
        let _one = self.writing.lock().await;
        let (usages, audit) = self.locked().take();
        if usages.is_empty() && audit.is_empty() {
            return Ok(());
        }
        let (using, auditing) = (&usages, &audit);
        let write = move |tx: Arc<Connection>| async move {
            usage::add(&tx, using, self.writer).await?;
            audit::record(&tx, auditing).await
        };
        let Err(fault) = self.pool.transaction(write).await else { return Ok(()) };
        let is_unknown = matches!(fault, Fault::Unknown(_));
        let error = Error::from(fault);
        // If it were kept, what does not fit the schema would fail every later write as well.
        let never_fits = matches!(error, Error::Corrupt(_));
        if is_unknown || never_fits {
            tracing::warn!(%error, "what was used, and what is to be audited, may be missing");
        } else {
            let mut waiting = self.locked();
            let newer = std::mem::take(&mut waiting.audit);
            waiting.usages.merge(usages);
            waiting.record(audit);
            waiting.record(newer);
        }
        Err(error)
    }

    /// Writes what waits until nothing does.
    async fn write_soon(self) {
        loop {
            tokio::time::sleep(GATHER).await;
            match self.write().await {
                Ok(()) => {}
                Err(Error::Closed) => return,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
            let mut waiting = self.locked();
            if waiting.is_empty() {
                waiting.has_task = false;
                return;
            }
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
