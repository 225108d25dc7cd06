//! Sends batches to streams: one pipeline a batch.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::session::ReplicaId;

use super::Streams;
use super::connection::{Connection, failed};
use crate::numbering::Numbers;
use crate::send_queue::{Outgoing, Transport};
use crate::{BusError, Lane};

/// Streams expire as long after the last message.
const EXPIRY_MS: u64 = 60_000;

/// How long the client library waits. Longer than any batch may take: who sends it counts the time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the field with the number of a message, and with the message itself.
pub(super) const NUMBER: &[u8] = b"n";
pub(super) const BODY: &[u8] = b"m";

/// The entries that a stream keeps, roughly.
fn kept(lane: Lane) -> usize {
    match lane {
        Lane::Control => 10_000,
        Lane::Text => 4096,
    }
}

/// Sends in one lane.
pub(super) struct StreamWriter {
    pub(super) streams: Arc<Streams>,
    pub(super) lane: Lane,
    pub(super) numbers: Arc<Numbers>,
}

impl Transport for StreamWriter {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, BusError> {
        self.streams.server.connect(PATIENCE).await
    }

    async fn lost(&self, connection: &mut Connection) -> BusError {
        connection.lost().await
    }

    async fn write(
        &self,
        connection: &mut Connection,
        batch: &[Outgoing],
    ) -> Result<HashSet<ReplicaId>, BusError> {
        let mut pipeline = redis::pipe();
        let mut keys = BTreeSet::new();
        for outgoing in batch {
            let key = self.streams.key(outgoing.to, self.lane);
            for message in &outgoing.messages {
                let number = self.numbers.next().encode();
                pipeline.cmd("XADD").arg(&key).arg("MAXLEN").arg("~").arg(kept(self.lane));
                pipeline.arg("*").arg(NUMBER).arg(&number[..]).arg(BODY).arg(&message[..]).ignore();
            }
            keys.insert(key);
        }
        for key in keys {
            pipeline.cmd("PEXPIRE").arg(key).arg(EXPIRY_MS).ignore();
        }
        let receivers = self.asked_for(batch);
        for receiver in &receivers {
            pipeline.cmd("EXISTS").arg(self.streams.reads(*receiver));
        }
        let answer: Result<Vec<bool>, _> = pipeline.query_async(&mut connection.commands).await;
        let read = answer.map_err(|error| failed(&error))?;
        let silent = receivers.into_iter().zip(read).filter(|(_, reads)| !reads);
        Ok(silent.map(|(receiver, _)| receiver).collect())
    }
}

impl StreamWriter {
    /// Those of whom the server is asked whether they read.
    fn asked_for(&self, batch: &[Outgoing]) -> Vec<ReplicaId> {
        match self.lane {
            Lane::Control => {
                let all: HashSet<_> = batch.iter().map(|outgoing| outgoing.to).collect();
                all.into_iter().collect()
            }
            Lane::Text => Vec::new(),
        }
    }
}
