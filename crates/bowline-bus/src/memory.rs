//! A bus within one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use crate::{Bus, BusError, Health, Inbox, Lane};

/// Messages that wait in one inbox; more are lost.
const WAITING: usize = 10_000;

type Inboxes = Arc<Mutex<HashMap<ReplicaId, mpsc::Sender<(Lane, Bytes)>>>>;

/// Replicas of one process; used by tests, and by a gateway that is alone.
#[derive(Debug, Clone)]
pub struct Memory {
    inboxes: Inboxes,
    health: watch::Sender<Health>,
}

#[derive(Debug)]
struct MemoryInbox(mpsc::Receiver<(Lane, Bytes)>);

impl Memory {
    pub fn new() -> Self {
        Self { inboxes: Inboxes::default(), health: watch::Sender::new(Health::Good) }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<ReplicaId, mpsc::Sender<(Lane, Bytes)>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait::async_trait]
impl Bus for Memory {
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        let (sender, inbox) = mpsc::channel(WAITING);
        let mut inboxes = self.locked();
        inboxes.retain(|_, other| !other.is_closed());
        inboxes.insert(me, sender);
        Ok(Box::new(MemoryInbox(inbox)))
    }

    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError> {
        let Some(inbox) = self.locked().get(&to).cloned() else { return Ok(()) };
        for message in messages {
            if inbox.try_send((lane, message)).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }
}

#[async_trait::async_trait]
impl Inbox for MemoryInbox {
    async fn next(&mut self) -> Vec<(Lane, Bytes)> {
        let mut messages = Vec::new();
        if self.0.recv_many(&mut messages, 256).await == 0 {
            // Replaced by a later inbox of the same replica.
            std::future::pending::<()>().await;
        }
        messages
    }
}
