//! The inbox of a replica that is filled by reading tasks.
//!
//! One for all servers: each reader puts what it reads into a [`Feed`], and several may feed one inbox.
//! A reader that is ahead waits, so that the rest stays in the server, whose bounds hold. An inbox that
//! is dropped, or replaced by a later one of the same replica, stops its readers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::numbering::{Latest, Numbered};
use crate::{Inbox, Lane};

/// Batches that wait in a lane.
const WAITING: usize = 4;

/// Where readers put what they read.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    control: mpsc::Sender<Vec<Numbered>>,
    text: mpsc::Sender<Vec<Numbered>>,
}

impl Feed {
    pub(crate) async fn put(&self, lane: Lane, messages: Vec<Numbered>) {
        let sender = match lane {
            Lane::Control => &self.control,
            Lane::Text => &self.text,
        };
        // Fails only when the inbox is dropped, and this task is about to be aborted.
        let _ = sender.send(messages).await;
    }
}

/// The readers that feed one inbox.
pub(crate) type Readers = JoinSet<()>;

#[derive(Debug)]
pub(crate) struct FedInbox {
    control: mpsc::Receiver<Vec<Numbered>>,
    text: mpsc::Receiver<Vec<Numbered>>,
    latest_control: Latest,
    latest_text: Latest,
    /// Aborted when this is dropped.
    _readers: Readers,
}

impl FedInbox {
    pub(crate) fn channels() -> (Feed, impl FnOnce(Readers) -> Self) {
        let (control, control_messages) = mpsc::channel(WAITING);
        let (text, text_messages) = mpsc::channel(WAITING);
        let inbox = move |readers| Self {
            control: control_messages,
            text: text_messages,
            latest_control: Latest::default(),
            latest_text: Latest::default(),
            _readers: readers,
        };
        (Feed { control, text }, inbox)
    }

    async fn read(&mut self) -> Vec<(Lane, Bytes)> {
        // Both channels close only together, when the readers were stopped by a later inbox.
        let (lane, messages) = tokio::select! {
            Some(messages) = self.control.recv() => (Lane::Control, messages),
            Some(messages) = self.text.recv() => (Lane::Text, messages),
            else => std::future::pending().await,
        };
        let latest = match lane {
            Lane::Control => &mut self.latest_control,
            Lane::Text => &mut self.latest_text,
        };
        let timely = messages.into_iter().filter(|message| latest.take(message.number));
        timely.map(|message| (lane, message.body)).collect()
    }
}

#[async_trait::async_trait]
impl Inbox for FedInbox {
    async fn next(&mut self) -> Vec<(Lane, Bytes)> {
        loop {
            let messages = self.read().await;
            if !messages.is_empty() {
                return messages;
            }
        }
    }
}

/// The readers of the inboxes that a bus has opened, to stop them when an inbox is replaced.
#[derive(Debug, Default)]
pub(crate) struct Opened(Mutex<HashMap<ReplicaId, Vec<AbortHandle>>>);

impl Opened {
    /// Stops the readers of an earlier inbox.
    pub(crate) fn stop(&self, me: ReplicaId) {
        let earlier = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&me);
        earlier.iter().flatten().for_each(AbortHandle::abort);
    }

    pub(crate) fn add(&self, me: ReplicaId, readers: Vec<AbortHandle>) {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|_, readers| readers.iter().any(|reader| !reader.is_finished()));
        opened.insert(me, readers);
    }
}
