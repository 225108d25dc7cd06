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

#[derive(Debug)]
struct FedInbox {
    control: mpsc::Receiver<Vec<Numbered>>,
    text: mpsc::Receiver<Vec<Numbered>>,
    latest_control: Latest,
    latest_text: Latest,
    /// Aborted when this is dropped.
    _readers: JoinSet<()>,
}

impl FedInbox {
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

/// An inbox that is being opened: its readers are started one after another.
pub(crate) struct Opening<'a> {
    opened: &'a Opened,
    pub(crate) me: ReplicaId,
    pub(crate) feed: Feed,
    readers: JoinSet<()>,
    handles: Vec<AbortHandle>,
    inbox: (mpsc::Receiver<Vec<Numbered>>, mpsc::Receiver<Vec<Numbered>>),
}

impl Opening<'_> {
    pub(crate) fn start(&mut self, reader: impl Future<Output = ()> + Send + 'static) {
        self.handles.push(self.readers.spawn(reader));
    }

    pub(crate) fn done(self) -> Box<dyn Inbox> {
        self.opened.add(self.me, self.handles);
        let (control, text) = self.inbox;
        Box::new(FedInbox {
            control,
            text,
            latest_control: Latest::default(),
            latest_text: Latest::default(),
            _readers: self.readers,
        })
    }
}

/// The readers of the inboxes that a bus has opened, to stop them when an inbox is replaced.
#[derive(Debug, Default)]
pub(crate) struct Opened(Mutex<HashMap<ReplicaId, Vec<AbortHandle>>>);

impl Opened {
    /// Begins to open an inbox. The readers of an earlier one of that replica are stopped.
    pub(crate) fn begin(&self, me: ReplicaId) -> Opening<'_> {
        let earlier = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&me);
        earlier.iter().flatten().for_each(AbortHandle::abort);
        let (control, control_messages) = mpsc::channel(WAITING);
        let (text, text_messages) = mpsc::channel(WAITING);
        Opening {
            opened: self,
            me,
            feed: Feed { control, text },
            readers: JoinSet::new(),
            handles: Vec::new(),
            inbox: (control_messages, text_messages),
        }
    }

    fn add(&self, me: ReplicaId, readers: Vec<AbortHandle>) {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|_, readers| readers.iter().any(|reader| !reader.is_finished()));
        opened.insert(me, readers);
    }
}
