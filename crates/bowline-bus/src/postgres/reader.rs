//! Reads the rows for this replica, by deleting them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_net::backoff::Retry;
use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Notification, Row, Statement};

use super::connection::{Connection, Database, failed};
use super::{channel, stored};
use crate::health::Reporter;
use crate::inbox::Feed;
use crate::numbering::{Number, Numbered};
use crate::send_queue::{ANSWER_LIMIT, BACKOFF, jitter, no_answer};
use crate::{BusError, Lane};

/// How often to look without a notification.
const POLL: Duration = Duration::from_secs(1);

/// How often to look for rows that nobody reads.
const SWEEP: Duration = Duration::from_secs(20);

/// How long a read may take. Longer than a send: what a read that was given up deletes is lost.
const READ_LIMIT: Duration = Duration::from_secs(5);

const TAKE: &str = "
    DELETE FROM bowline_bus WHERE replica = $1 AND lane = $2 AND id IN (
        SELECT id FROM bowline_bus WHERE replica = $1 AND lane = $2 ORDER BY id LIMIT 256
    )
    RETURNING id, sender, number, body";

const FORGET: &str = "DELETE FROM bowline_bus WHERE replica = $1";

/// Several replicas may sweep at the same time.
const SWEEP_OLD: &str = "
    DELETE FROM bowline_bus WHERE (replica, lane, id) IN (
        SELECT replica, lane, id FROM bowline_bus
        WHERE at < clock_timestamp() - interval '60 s' LIMIT 10000 FOR UPDATE SKIP LOCKED
    )";

pub(super) struct Reader {
    database: Arc<Database>,
    me: ReplicaId,
    feed: Feed,
    reporter: Reporter,
}

/// A connection that listens to this replica's channel.
pub(super) struct Listening {
    connection: Connection,
    notifications: mpsc::UnboundedReceiver<Notification>,
    take: Statement,
}

/// Set when there may be rows in a lane.
#[derive(Default)]
struct Wake {
    control: Notify,
    text: Notify,
    /// A lane has ended, and the connection with it.
    over: AtomicBool,
}

impl Reader {
    pub(super) fn new(
        database: Arc<Database>,
        me: ReplicaId,
        feed: Feed,
        reporter: Reporter,
    ) -> Self {
        Self { database, me, feed, reporter }
    }

    /// Listens, and deletes what was sent before.
    pub(super) async fn at_end(&self) -> Result<Listening, BusError> {
        let at_end = async {
            let listening = self.listen().await?;
            let client = &listening.connection.client;
            client.execute(FORGET, &[&self.me.0]).await.map_err(|error| failed(&error))?;
            Ok(listening)
        };
        timeout(ANSWER_LIMIT, at_end).await.unwrap_or_else(|_| Err(no_answer()))
    }

    pub(super) async fn run(self, listening: Listening) {
        let mut retry = Retry::new(BACKOFF);
        let mut attempt = Ok(listening);
        loop {
            let why = match attempt {
                Ok(listening) => {
                    retry.reset();
                    self.reporter.good();
                    self.read_all(listening).await
                }
                Err(why) => why,
            };
            self.reporter.bad(&why);
            sleep(retry.wait(jitter())).await;
            let listening = timeout(ANSWER_LIMIT, self.listen()).await;
            attempt = listening.unwrap_or_else(|_| Err(no_answer()));
        }
    }

    async fn listen(&self) -> Result<Listening, BusError> {
        let (connection, notifications) = self.database.connect_listening().await?;
        let listen = format!("LISTEN {}", channel(self.me));
        let listens = connection.client.batch_execute(&listen).await;
        listens.map_err(|error| failed(&error))?;
        let take = connection.client.prepare(TAKE).await.map_err(|error| failed(&error))?;
        Ok(Listening { connection, notifications, take })
    }

    /// Reads until the connection is lost.
    async fn read_all(&self, mut listening: Listening) -> BusError {
        let wake = Wake::default();
        let (connection, take) = (&listening.connection, &listening.take);
        // Neither is cut off, since it may hold rows that are deleted already. The one that goes on ends after
        // its next look: with half a connection, this replica would seem well and hear nothing.
        let lanes = async {
            tokio::join!(
                self.read_lane(Lane::Control, connection, take, &wake),
                self.read_lane(Lane::Text, connection, take, &wake),
            )
        };
        tokio::select! {
            (why, _) = lanes => why,
            never = wake.pass_on(&mut listening.notifications) => match never {},
            never = sweep(connection) => match never {},
        }
    }

    async fn read_lane(
        &self,
        lane: Lane,
        connection: &Connection,
        take: &Statement,
        wake: &Wake,
    ) -> BusError {
        let why = self.read_until_over(lane, connection, take, wake).await;
        wake.over.store(true, Ordering::Relaxed);
        wake.control.notify_one();
        wake.text.notify_one();
        why
    }

    async fn read_until_over(
        &self,
        lane: Lane,
        connection: &Connection,
        take: &Statement,
        wake: &Wake,
    ) -> BusError {
        loop {
            if wake.over.load(Ordering::Relaxed) {
                return no_answer();
            }
            let (me, lane_number) = (self.me.0, stored(lane));
            let wanted: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&me, &lane_number];
            let taken = connection.client.query(take, &wanted);
            let mut rows = match timeout(READ_LIMIT, taken).await {
                Ok(Ok(rows)) => rows,
                Ok(Err(error)) => return failed(&error),
                Err(_) => return no_answer(),
            };
            if rows.is_empty() {
                let _ = timeout(POLL, wake.of(lane).notified()).await;
                continue;
            }
            rows.sort_unstable_by_key(|row| row.get::<_, i64>("id"));
            self.feed.put(lane, rows.iter().map(message).collect()).await;
        }
    }
}

impl Wake {
    fn of(&self, lane: Lane) -> &Notify {
        match lane {
            Lane::Control => &self.control,
            Lane::Text => &self.text,
        }
    }

    async fn pass_on(
        &self,
        notifications: &mut mpsc::UnboundedReceiver<Notification>,
    ) -> std::convert::Infallible {
        while let Some(notification) = notifications.recv().await {
            match notification.payload() {
                "0" => self.control.notify_one(),
                _ => self.text.notify_one(),
            }
        }
        // The connection is lost: the lanes notice when they read.
        self.control.notify_one();
        self.text.notify_one();
        std::future::pending().await
    }
}

/// Deletes what nobody reads. If it fails, the lanes notice, or the next one succeeds.
async fn sweep(connection: &Connection) -> std::convert::Infallible {
    loop {
        let _ = connection.client.execute(SWEEP_OLD, &[]).await;
        sleep(SWEEP).await;
    }
}

fn message(row: &Row) -> Numbered {
    let number = row.get::<_, i64>("number") as u64;
    let body: Vec<u8> = row.get("body");
    Numbered { number: Number { sender: row.get("sender"), number }, body: Bytes::from(body) }
}
