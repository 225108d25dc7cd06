//! Reads one stream of this replica.
//!
//! A stream can begin anew: Redis restarted with an empty memory or an old copy of it, or the stream
//! expired. Its ids are times of the server's clock, which may be behind; so whenever a connection is
//! new or nothing came for a while, the stream's last id tells whether it is still the one we know.
//!
//! What was read is removed with the next read: it may be what people said, nobody needs it again, and it would
//! stay for as long as others send.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_net::backoff::Retry;
use bowline_sbp::session::ReplicaId;
use bytes::Bytes;
use redis::Value;
use tokio::time::sleep;

use super::Streams;
use super::connection::{Connection, failed};
use super::transport::{BODY, NUMBER};
use crate::health::Reporter;
use crate::inbox::Feed;
use crate::numbering::{Number, Numbered};
use crate::send_queue::{ANSWER_LIMIT, BACKOFF, jitter};
use crate::{BusError, Lane};

/// How long one read waits for messages.
const BLOCK: Duration = Duration::from_secs(1);

/// How long senders take this replica for one that reads after it said so, and how often it says so at most.
/// It says so between two reads, so this is longer than a read takes.
const READS_FOR: Duration = Duration::from_secs(3);
const READS_AGAIN: Duration = Duration::from_millis(500);

/// Messages of one read.
const AT_ONCE: usize = 256;

/// The place of an entry in its stream: milliseconds, and a number within them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct EntryId(u64, u64);

pub(super) struct Reader {
    streams: Arc<Streams>,
    me: ReplicaId,
    key: String,
    lane: Lane,
    /// The last entry that was read.
    position: EntryId,
    /// Whether it is still in the stream.
    is_kept: bool,
    /// When senders were last told that this replica reads.
    told: Option<Instant>,
    feed: Feed,
    reporter: Reporter,
}

impl Reader {
    pub(super) fn new(
        streams: Arc<Streams>,
        me: ReplicaId,
        lane: Lane,
        feed: Feed,
        reporter: Reporter,
    ) -> Self {
        let key = streams.key(me, lane);
        Self {
            streams,
            me,
            key,
            lane,
            position: EntryId::default(),
            is_kept: false,
            told: None,
            feed,
            reporter,
        }
    }

    /// Goes to the end of the stream.
    pub(super) async fn at_end(&mut self) -> Result<Connection, BusError> {
        let mut connection = self.connect().await?;
        let last = self.last_id(&mut connection).await?;
        (self.position, self.is_kept) = (last.unwrap_or_default(), last.is_some());
        self.tell_that_it_reads(&mut connection).await;
        Ok(connection)
    }

    pub(super) async fn run(mut self) {
        let mut retry = Retry::new(BACKOFF);
        loop {
            let why = match self.reconnect().await {
                Ok(connection) => {
                    retry.reset();
                    self.reporter.good();
                    self.read_all(connection).await
                }
                Err(why) => why,
            };
            self.reporter.bad(&why);
            sleep(retry.wait(jitter())).await;
        }
    }

    pub(super) async fn run_on(mut self, connection: Connection) {
        let why = self.read_all(connection).await;
        self.reporter.bad(&why);
        self.run().await;
    }

    async fn connect(&self) -> Result<Connection, BusError> {
        self.streams.server.connect(BLOCK + ANSWER_LIMIT).await
    }

    async fn reconnect(&mut self) -> Result<Connection, BusError> {
        let mut connection = self.connect().await?;
        self.notice_restart(&mut connection).await?;
        Ok(connection)
    }

    /// Reads until the connection is lost.
    async fn read_all(&mut self, mut connection: Connection) -> BusError {
        loop {
            match self.read(&mut connection).await {
                Ok(messages) if messages.is_empty() => {
                    if let Err(why) = self.notice_restart(&mut connection).await {
                        return why;
                    }
                }
                Ok(messages) => self.feed.put(self.lane, messages).await,
                Err(why) => return why,
            }
        }
    }

    async fn read(&mut self, connection: &mut Connection) -> Result<Vec<Numbered>, BusError> {
        self.tell_that_it_reads(connection).await;
        let EntryId(milliseconds, number) = self.position;
        let mut commands = redis::pipe();
        if self.is_kept {
            let next = format!("{milliseconds}-{}", number.saturating_add(1));
            commands.cmd("XTRIM").arg(&self.key).arg("MINID").arg(next).ignore();
        }
        commands.cmd("XREAD").arg("COUNT").arg(AT_ONCE).arg("BLOCK").arg(BLOCK.as_millis() as u64);
        commands.arg("STREAMS").arg(&self.key).arg(format!("{milliseconds}-{number}"));
        let answer = commands.query_async(&mut connection.commands).await;
        let (answer,): (Value,) = answer.map_err(|error| failed(&error))?;
        let entries = entries(answer).ok_or_else(not_ours)?;
        self.is_kept = !entries.is_empty();
        if let Some((last, _)) = entries.last() {
            self.position = *last;
        }
        // What is no message of ours was written by someone else, and is passed over.
        Ok(entries.into_iter().filter_map(|(_, fields)| message(fields)).collect())
    }

    /// Tells the senders of control messages. If it fails they take another way, or the read fails as well. It
    /// must not stop the reading: a Redis without memory refuses it, and gets memory by what is read.
    async fn tell_that_it_reads(&mut self, connection: &mut Connection) {
        let is_known = self.told.is_some_and(|told| told.elapsed() < READS_AGAIN);
        if self.lane != Lane::Control || is_known {
            return;
        }
        self.told = Some(Instant::now());
        let mut command = redis::cmd("SET");
        command.arg(self.streams.reads(self.me)).arg(1).arg("PX").arg(READS_FOR.as_millis() as u64);
        let _ = command.exec_async(&mut connection.commands).await;
    }

    /// Reads from the start of the stream if it is not the one that was read so far.
    async fn notice_restart(&mut self, connection: &mut Connection) -> Result<(), BusError> {
        if self.last_id(connection).await?.is_none_or(|last| last < self.position) {
            (self.position, self.is_kept) = (EntryId::default(), false);
        }
        Ok(())
    }

    /// The id of the stream's last entry; none if there is no stream.
    async fn last_id(&self, connection: &mut Connection) -> Result<Option<EntryId>, BusError> {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(&self.key).arg("+").arg("-").arg("COUNT").arg(1);
        let answer = command.query_async(&mut connection.commands).await;
        let Value::Array(entries) = answer.map_err(|error| failed(&error))? else {
            return Err(not_ours());
        };
        match entries.into_iter().next() {
            None => Ok(None),
            Some(last) => Ok(Some(entry(last).ok_or_else(not_ours)?.0)),
        }
    }
}

fn not_ours() -> BusError {
    BusError::Refused("its answer is not that of a Redis".into())
}

type Entry = (EntryId, Vec<Value>);

/// The entries in the answer to a read of one stream; it is nil if there are none.
fn entries(answer: Value) -> Option<Vec<Entry>> {
    let streams = match answer {
        Value::Nil => return Some(Vec::new()),
        Value::Array(streams) => streams,
        _ => return None,
    };
    let [Value::Array(stream)] = <[Value; 1]>::try_from(streams).ok()? else { return None };
    let [_key, Value::Array(entries)] = <[Value; 2]>::try_from(stream).ok()? else { return None };
    entries.into_iter().map(entry).collect()
}

fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [Value::BulkString(id), fields] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    let (milliseconds, number) = std::str::from_utf8(&id).ok()?.split_once('-')?;
    let id = EntryId(milliseconds.parse().ok()?, number.parse().ok()?);
    // Nil if the entry was deleted meanwhile.
    let fields = if let Value::Array(fields) = fields { fields } else { Vec::new() };
    Some((id, fields))
}

fn message(fields: Vec<Value>) -> Option<Numbered> {
    use Value::BulkString;
    let fields = <[Value; 4]>::try_from(fields).ok()?;
    let [BulkString(n), BulkString(number), BulkString(m), BulkString(body)] = fields else {
        return None;
    };
    if n != NUMBER || m != BODY {
        return None;
    }
    Some(Numbered { number: Number::decode(&number)?, body: Bytes::from(body) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &[u8]) -> Value {
        Value::BulkString(text.to_vec())
    }

    fn answer(id: &str, fields: Vec<Value>) -> Value {
        let entry = Value::Array(vec![text(id.as_bytes()), Value::Array(fields)]);
        Value::Array(vec![Value::Array(vec![text(b"key"), Value::Array(vec![entry])])])
    }

    #[test]
    fn entries_of_others_move_the_position_and_are_no_messages() {
        let ours = vec![text(NUMBER), text(&[7; 24]), text(BODY), text(b"hello")];
        let mut read = entries(answer("17-2", ours)).unwrap();
        let (id, fields) = read.pop().unwrap();
        assert_eq!((id, message(fields).unwrap().body), (EntryId(17, 2), "hello".into()));
        let mut read = entries(answer("18-0", vec![text(b"a"), text(b"b")])).unwrap();
        let (id, fields) = read.pop().unwrap();
        assert_eq!((id, message(fields)), (EntryId(18, 0), None));
    }

    #[test]
    fn nothing_new_is_no_error_and_nonsense_is() {
        assert_eq!(entries(Value::Nil), Some(vec![]));
        assert_eq!(entries(Value::Okay), None);
        assert_eq!(entries(answer("later", vec![])), None);
    }
}
