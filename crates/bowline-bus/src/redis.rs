//! A bus over Redis (6.2 or later): one Stream for each replica and lane.
//!
//! Senders append, the replica reads from the last entry it has seen. Streams are bounded, and expire a
//! minute after the last message, so that dead replicas leave nothing behind. Each lane has a connection
//! of its own to send and one to read: neither waits for the other, nor for a blocking read.

mod connection;
mod reader;
mod transport;
mod url;

use std::sync::Arc;

use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use self::url::{BadRedisUrl, RedisUrl};

use self::connection::Server;
use self::reader::Reader;
use self::transport::StreamWriter;
use crate::health::Reports;
use crate::inbox::{FedInbox, Feed, Opened, Readers};
use crate::numbering::Numbers;
use crate::outbox::Outbox;
use crate::{Bus, BusError, Health, Inbox, Lane};

/// Replicas that share a Redis.
#[derive(Debug)]
pub struct Redis {
    streams: Arc<Streams>,
    reports: Arc<Reports>,
    opened: Opened,
    control: Outbox,
    text: Outbox,
}

/// A Redis, and the prefix of this installation's keys in it.
#[derive(Debug)]
struct Streams {
    server: Server,
    prefix: String,
}

impl Streams {
    fn key(&self, replica: ReplicaId, lane: Lane) -> String {
        let lane = match lane {
            Lane::Control => "control",
            Lane::Text => "text",
        };
        format!("bowline:{}:{}:{lane}", self.prefix, replica.0)
    }
}

impl Redis {
    /// Connects in the background, and again whenever a connection is lost. Installations that share a
    /// Redis must differ in `prefix`. To be called within a runtime.
    pub fn new(url: &RedisUrl, prefix: &str) -> Result<Self, BadRedisUrl> {
        Self::numbered(url, prefix, Arc::new(Numbers::new()))
    }

    /// Shares the numbers with another bus that feeds the same inboxes.
    pub(crate) fn numbered(
        url: &RedisUrl,
        prefix: &str,
        numbers: Arc<Numbers>,
    ) -> Result<Self, BadRedisUrl> {
        let streams = Arc::new(Streams { server: Server::new(url)?, prefix: prefix.to_owned() });
        let reports = Reports::new();
        let outbox = |lane| {
            let (streams, numbers) = (Arc::clone(&streams), Arc::clone(&numbers));
            Outbox::start(StreamWriter { streams, lane, numbers }, reports.reporter())
        };
        let (control, text) = (outbox(Lane::Control), outbox(Lane::Text));
        Ok(Self { streams, reports, opened: Opened::default(), control, text })
    }

    fn reader(&self, me: ReplicaId, lane: Lane, feed: &Feed) -> Reader {
        let (streams, reporter) = (Arc::clone(&self.streams), self.reports.reporter());
        Reader::new(streams, me, lane, feed.clone(), reporter)
    }

    /// Reads into an inbox what is sent from now on.
    pub(crate) async fn feed(
        &self,
        me: ReplicaId,
        feed: &Feed,
        readers: &mut Readers,
    ) -> Result<Vec<AbortHandle>, BusError> {
        let mut control = self.reader(me, Lane::Control, feed);
        let mut text = self.reader(me, Lane::Text, feed);
        let (to_control, to_text) = tokio::try_join!(control.at_end(), text.at_end())?;
        Ok(vec![readers.spawn(control.run_on(to_control)), readers.spawn(text.run_on(to_text))])
    }

    /// Reads into an inbox as soon as Redis can be reached, from the start of the streams.
    pub(crate) fn feed_later(
        &self,
        me: ReplicaId,
        feed: &Feed,
        readers: &mut Readers,
    ) -> Vec<AbortHandle> {
        let lanes = [Lane::Control, Lane::Text];
        lanes.map(|lane| readers.spawn(self.reader(me, lane, feed).run())).into()
    }
}

#[async_trait::async_trait]
impl Bus for Redis {
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        self.opened.stop(me);
        let (feed, inbox) = FedInbox::channels();
        let mut readers = Readers::new();
        self.opened.add(me, self.feed(me, &feed, &mut readers).await?);
        Ok(Box::new(inbox(readers)))
    }

    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError> {
        let outbox = match lane {
            Lane::Control => &self.control,
            Lane::Text => &self.text,
        };
        outbox.send(to, messages).await
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.reports.health()
    }
}
