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

use self::connection::Database;
use self::reader::Reader;
use self::transport::RowWriter;
use crate::health::Reports;
use crate::inbox::{Opened, Opening};
use crate::numbering::Numbers;
use crate::send_queue::SendQueues;
use crate::{Bus, BusError, BusHealth, Inbox, Lane};

/// Replicas that share a PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    database: Arc<Database>,
    reports: Arc<Reports>,
    opened: Opened,
    queues: SendQueues,
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
        let queues = SendQueues::start(&reports, |lane| RowWriter {
            database: Arc::clone(&database),
            lane,
            numbers: Arc::clone(&numbers),
        });
        Ok(Self { database, reports, opened: Opened::default(), queues })
    }

    /// Reads into an inbox what is sent from now on.
    pub(crate) async fn feed(&self, opening: &mut Opening<'_>) -> Result<(), BusError> {
        let (database, reporter) = (Arc::clone(&self.database), self.reports.reporter());
        let reader = Reader::new(database, opening.me, opening.feed.clone(), reporter);
        let connection = reader.at_end().await?;
        opening.start(reader.run(connection));
        Ok(())
    }
}

#[async_trait::async_trait]
impl Bus for Postgres {
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        let mut opening = self.opened.begin(me);
        self.feed(&mut opening).await?;
        Ok(opening.done())
    }

    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError> {
        self.queues.send(to, lane, messages).await.map(drop)
    }

    fn health(&self) -> watch::Receiver<BusHealth> {
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
