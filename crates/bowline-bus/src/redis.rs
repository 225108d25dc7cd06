//! A bus over Redis (6.2 or later): one Stream for each replica and lane.
//!
//! Senders append, the replica reads from the last entry it has seen. Streams are bounded, and expire a
//! minute after the last message, so that dead replicas leave nothing behind. Each lane has a connection
//! of its own to send and one to read: neither waits for the other, nor for a blocking read.
//!
//! An append succeeds whether or not somebody reads. A replica that reads its control messages therefore keeps
//! a key that soon expires, and senders look for it with each batch: who is cut off from Redis alone can be
//! told from one that reads, and be sent to in another way ([`crate::Fallback`]).

mod connection;
mod reader;
mod transport;
mod url;

use std::sync::Arc;

use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use tokio::sync::watch;

pub use self::url::{BadRedisUrl, RedisUrl};

use self::connection::Server;
use self::reader::Reader;
use self::transport::StreamWriter;
use crate::health::Reports;
use crate::inbox::{Opened, Opening};
use crate::numbering::Numbers;
use crate::send_queue::{Receiver, SendQueues};
use crate::{Bus, BusError, BusHealth, Inbox, Lane};

/// Replicas that share a Redis.
#[derive(Debug)]
pub struct Redis {
    streams: Arc<Streams>,
    reports: Arc<Reports>,
    opened: Opened,
    queues: SendQueues,
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

    /// The key that is there while a replica reads its control messages.
    fn reads(&self, replica: ReplicaId) -> String {
        format!("bowline:{}:{}:reads", self.prefix, replica.0)
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
        let queues = SendQueues::start(&reports, |lane| StreamWriter {
            streams: Arc::clone(&streams),
            lane,
            numbers: Arc::clone(&numbers),
        });
        Ok(Self { streams, reports, opened: Opened::default(), queues })
    }

    /// Sends, and tells whether the receiver reads; it is known of the control lane only.
    pub(crate) async fn deliver(
        &self,
        to: ReplicaId,
        lane: Lane,
        messages: Vec<Bytes>,
    ) -> Result<Receiver, BusError> {
        self.queues.send(to, lane, messages).await
    }

    fn reader(&self, opening: &Opening<'_>, lane: Lane) -> Reader {
        let (streams, reporter) = (Arc::clone(&self.streams), self.reports.reporter());
        Reader::new(streams, opening.me, lane, opening.feed.clone(), reporter)
    }

    /// Reads into an inbox what is sent from now on.
    pub(crate) async fn feed(&self, opening: &mut Opening<'_>) -> Result<(), BusError> {
        let mut control = self.reader(opening, Lane::Control);
        let mut text = self.reader(opening, Lane::Text);
        let (to_control, to_text) = tokio::try_join!(control.at_end(), text.at_end())?;
        opening.start(control.run_on(to_control));
        opening.start(text.run_on(to_text));
        Ok(())
    }

    /// Reads into an inbox as soon as Redis can be reached, from the start of the streams.
    pub(crate) fn feed_later(&self, opening: &mut Opening<'_>) {
        for lane in [Lane::Control, Lane::Text] {
            opening.start(self.reader(opening, lane).run());
        }
    }
}

#[async_trait::async_trait]
impl Bus for Redis {
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        let mut opening = self.opened.begin(me);
        self.feed(&mut opening).await?;
        Ok(opening.done())
    }

    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError> {
        self.deliver(to, lane, messages).await.map(drop)
    }

    fn health(&self) -> watch::Receiver<BusHealth> {
        self.reports.health()
    }
}
