//! A bus over PostgreSQL, for installations without Redis: rows of an unlogged table.
//!
//! Senders insert and notify, the replica deletes what it reads. It does not read "all after the last
//! id": ids are given before the commit, and one that commits late would be passed over. Notifications
//! may be lost, so a slow poll looks, too. Rows that nobody reads are deleted after a minute.

mod connection;
mod reader;
mod transport;

use std::sync::Arc;

use bowline_sbp::session::ReplicaId;
use bowline_store::postgres::PostgresConfig;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::connection::Database;
use self::reader::Reader;
use self::transport::RowWriter;
use crate::health::Reports;
use crate::inbox::{FedInbox, Feed, Opened, Readers};
use crate::numbering::Numbers;
use crate::outbox::Outbox;
use crate::{Bus, BusError, Health, Inbox, Lane};

/// Replicas that share a PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    database: Arc<Database>,
    reports: Arc<Reports>,
    opened: Opened,
    control: Outbox,
    text: Outbox,
}

impl Postgres {
    /// Makes the table if it is missing. Must follow the opening of the store, which takes a database
    /// with tables of others for a foreign one.
    pub async fn connect(config: &PostgresConfig) -> Result<Self, BusError> {
        Self::numbered(config, Arc::new(Numbers::new())).await
    }

    /// Shares the numbers with another bus that feeds the same inboxes.
    pub(crate) async fn numbered(
        config: &PostgresConfig,
        numbers: Arc<Numbers>,
    ) -> Result<Self, BusError> {
        let database = Arc::new(Database(config.clone()));
        database.make_table().await?;
        let reports = Reports::new();
        let outbox = |lane| {
            let (database, numbers) = (Arc::clone(&database), Arc::clone(&numbers));
            Outbox::start(RowWriter { database, lane, numbers }, reports.reporter())
        };
        let (control, text) = (outbox(Lane::Control), outbox(Lane::Text));
        Ok(Self { database, reports, opened: Opened::default(), control, text })
    }

    /// Reads into an inbox what is sent from now on.
    pub(crate) async fn feed(
        &self,
        me: ReplicaId,
        feed: &Feed,
        readers: &mut Readers,
    ) -> Result<AbortHandle, BusError> {
        let database = Arc::clone(&self.database);
        let reader = Reader::new(database, me, feed.clone(), self.reports.reporter());
        let connection = reader.at_end().await?;
        Ok(readers.spawn(reader.run(connection)))
    }
}

#[async_trait::async_trait]
impl Bus for Postgres {
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        self.opened.stop(me);
        let (feed, inbox) = FedInbox::channels();
        let mut readers = Readers::new();
        let reading = self.feed(me, &feed, &mut readers).await?;
        self.opened.add(me, vec![reading]);
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

/// How a lane is stored.
fn stored(lane: Lane) -> i16 {
    match lane {
        Lane::Control => 0,
        Lane::Text => 1,
    }
}

/// The channel that a replica listens to; what is notified there is [`stored`] of the lane.
fn channel(replica: ReplicaId) -> String {
    format!("bowline_bus_{}", replica.0.simple())
}
