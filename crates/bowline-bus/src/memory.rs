//! A bus within one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use crate::{Bus, BusError, BusHealth, Inbox, Lane};

/// Messages that wait in one lane of an inbox; more are lost.
const WAITING: usize = 10_000;

type Inboxes = HashMap<ReplicaId, Senders>;

#[derive(Debug, Clone)]
struct Senders {
    control: mpsc::Sender<Bytes>,
    text: mpsc::Sender<Bytes>,
}

/// Replicas of one process; used by tests, and by a gateway that is alone.
#[derive(Debug, Clone)]
pub struct Memory {
    inboxes: Arc<Mutex<Inboxes>>,
    health: watch::Sender<BusHealth>,
}

#[derive(Debug)]
struct MemoryInbox {
    control: mpsc::Receiver<Bytes>,
    text: mpsc::Receiver<Bytes>,
}

impl Memory {
    pub fn new() -> Self {
        Self { inboxes: Arc::default(), health: watch::Sender::new(BusHealth::Good) }
    }

    fn locked(&self) -> MutexGuard<'_, Inboxes> {
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
        let (control, control_messages) = mpsc::channel(WAITING);
        let (text, text_messages) = mpsc::channel(WAITING);
        let mut inboxes = self.locked();
        inboxes.retain(|_, other| !other.control.is_closed());
        inboxes.insert(me, Senders { control, text });
        Ok(Box::new(MemoryInbox { control: control_messages, text: text_messages }))
    }

    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError> {
        let Some(inbox) = self.locked().get(&to).cloned() else { return Ok(()) };
        let sender = match lane {
            Lane::Control => inbox.control,
            Lane::Text => inbox.text,
        };
        for message in messages {
            if sender.try_send(message).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn health(&self) -> watch::Receiver<BusHealth> {
        self.health.subscribe()
    }
}

#[async_trait::async_trait]
impl Inbox for MemoryInbox {
    async fn next(&mut self) -> Vec<(Lane, Bytes)> {
        let (mut control, mut text) = (Vec::new(), Vec::new());
        // Both lanes close only together, when the inbox is replaced.
        let (lane, messages) = tokio::select! {
            1.. = self.control.recv_many(&mut control, 256) => (Lane::Control, control),
            1.. = self.text.recv_many(&mut text, 256) => (Lane::Text, text),
            else => std::future::pending().await,
        };
        messages.into_iter().map(|message| (lane, message)).collect()
    }
}
