//! Sends batches as rows: one statement a batch, with one notification for each replica.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bowline_sbp::session::ReplicaId;
use tokio_postgres::Statement;
use uuid::Uuid;

use super::connection::{Connection, Database, failed};
use super::{channel, stored};
use crate::numbering::Numbers;
use crate::send_queue::{Outgoing, Transport};
use crate::{BusError, Lane};

const PUT: &str = "
    WITH put AS (
        INSERT INTO bowline_bus (replica, lane, sender, number, body)
        SELECT replica, $1::smallint, sender, number, body
        FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::bytea[])
             WITH ORDINALITY AS message (replica, sender, number, body, place)
        ORDER BY place
    )
    SELECT count(pg_notify(channel, $1::smallint::text)) FROM unnest($6::text[]) AS channel";

/// Sends in one lane.
pub(super) struct RowWriter {
    pub(super) database: Arc<Database>,
    pub(super) lane: Lane,
    pub(super) numbers: Arc<Numbers>,
}

pub(super) struct Writing {
    connection: Connection,
    put: Statement,
}

impl Transport for RowWriter {
    type Connection = Writing;

    async fn connect(&self) -> Result<Writing, BusError> {
        let connection = self.database.connect().await?;
        let put = connection.client.prepare(PUT).await.map_err(|error| failed(&error))?;
        Ok(Writing { connection, put })
    }

    async fn lost(&self, writing: &mut Writing) -> BusError {
        writing.connection.lost().await
    }

    /// Rows wait for who does not read at the moment: nobody is taken for silent.
    async fn write(
        &self,
        writing: &mut Writing,
        batch: &[Outgoing],
    ) -> Result<HashSet<ReplicaId>, BusError> {
        let mut replicas: Vec<Uuid> = Vec::new();
        let (mut senders, mut numbers, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for outgoing in batch {
            for message in &outgoing.messages {
                let number = self.numbers.next();
                replicas.push(outgoing.to.0);
                senders.push(number.sender);
                numbers.push(number.number as i64);
                bodies.push(&message[..]);
            }
        }
        let channels: BTreeSet<String> = batch.iter().map(|each| channel(each.to)).collect();
        let channels: Vec<String> = channels.into_iter().collect();
        let lane = stored(self.lane);
        let client = &writing.connection.client;
        let put = client
            .query(&writing.put, &[&lane, &replicas, &senders, &numbers, &bodies, &channels])
            .await;
        put.map(|_| HashSet::new()).map_err(|error| failed(&error))
    }
}
