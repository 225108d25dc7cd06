//! The index of words of what users and agents said.
//!
//! Apart from the log, because no turn may wait for it: entries are indexed later, in steps of
//! bounded size, each a transaction of its own. A cursor for each log says how far it is indexed. The
//! index holds no text; the text of a hit is read from the log.
//!
//! Invariants
//! - The entries of a log up to its cursor are indexed, and none after it.
//! - Whoever deletes entries has their words deleted in the same transaction. Who indexes locks the
//!   log's row first, so the words of a log that is being deleted are not written behind its back.
//!
//! Erasure (G23): deleted rows are gone from the tables, and from every later dump, with their
//! transaction. Their bytes stay in the files of the server until VACUUM, which autovacuum runs, has
//! freed their pages and these are written anew; in the write-ahead log and its archive until that is
//! recycled; and a word that no entry has any more stays in the GIN index, as a key without entries,
//! until a REINDEX.

use std::collections::{BTreeSet, HashMap};

use bowline_sbp::id::Seq;
use uuid::Uuid;

use super::error::Attempt;
use super::phrases;
use super::pool::Connection;
use super::rows::{self, kind_number};
use crate::EntryKind;
use crate::words::text_of;

/// The most logs that one look at the backlog finds.
const LOGS_AT_ONCE: i64 = 1024;
/// The most entries that are indexed in one step, and the most bytes of them but for one entry.
const ENTRIES_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: i64 = 64 << 10;
/// The most bytes of different words of one text: an index entry of PostgreSQL's holds 1 MiB. Of a
/// text with more, the words that come later are not found.
const WORD_BYTES: usize = 900 << 10;

/// Logs with entries that are not indexed yet, the newest last. Reads all sessions: an index of
/// them would cost every turn.
pub(super) async fn backlog(db: &Connection) -> Attempt<Vec<Uuid>> {
    let rows = db
        .query(
            "SELECT id FROM (
                 SELECT s.id, s.number FROM sessions s LEFT JOIN indexed i ON i.log = s.id
                 WHERE s.last_seq > coalesce(i.seq, s.base_seq, 0)
                 UNION ALL
                 SELECT t.id, t.number FROM trunks t LEFT JOIN indexed i ON i.log = t.id
                 WHERE EXISTS (SELECT 1 FROM entries e
                               WHERE e.session = t.id AND e.seq > coalesce(i.seq, 0))) l
             ORDER BY number DESC LIMIT $1",
            &[&LOGS_AT_ONCE],
        )
        .await?;
    let mut logs = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<Uuid>, _>>()?;
    logs.reverse();
    Ok(logs)
}

/// A log that is indexed now.
struct Log {
    number: i64,
    user: Uuid,
}

/// Indexes some entries of these logs, the last log first; returns the logs that are left. A log
/// that was deleted meanwhile has no entries.
pub(super) async fn index(tx: &Connection, mut logs: Vec<Uuid>) -> Attempt<Vec<Uuid>> {
    // Each of them has an entry that is not indexed.
    let chosen = logs.split_off(logs.len().saturating_sub(ENTRIES_AT_ONCE));
    let locked = lock(tx, &chosen).await?;
    let rows = tx
        .query(
            "SELECT session, seq, kind, message, is_last FROM (
                 SELECT l.log AS session, l.nth, e.seq, e.kind, e.message, e.is_last,
                        row_number() OVER found AS count,
                        sum(octet_length(e.message)) OVER found - octet_length(e.message) AS bytes
                 FROM unnest($1::uuid[]) WITH ORDINALITY AS l (log, nth)
                 LEFT JOIN indexed i ON i.log = l.log
                 CROSS JOIN LATERAL (
                     SELECT seq, kind, message, lead(seq) OVER (ORDER BY seq) IS NULL AS is_last
                     FROM (SELECT seq, kind, message FROM entries
                           WHERE session = l.log AND seq > coalesce(i.seq, 0)
                           ORDER BY seq LIMIT $2::bigint + 1) next) e
                 WINDOW found AS (ORDER BY l.nth DESC, e.seq ROWS UNBOUNDED PRECEDING)) e
             WHERE count <= $2 AND bytes < $3
             ORDER BY nth DESC, seq",
            &[&chosen, &(ENTRIES_AT_ONCE as i64), &BYTES_AT_ONCE],
        )
        .await?;
    let mut left: BTreeSet<Uuid> = locked.keys().copied().collect();
    let mut cursors: HashMap<Uuid, i64> = HashMap::new();
    let mut found = Columns::default();
    for row in &rows {
        let (log, seq): (Uuid, i64) = (row.try_get(0)?, row.try_get(1)?);
        let Some(of) = locked.get(&log) else { continue };
        let said = [EntryKind::Message, EntryKind::Turn].map(kind_number);
        if said.contains(&row.try_get(2)?)
            && let Some((_, text)) = text_of(row.try_get(3)?)
        {
            found.push(log, seq, of, words_of(&text));
        }
        cursors.insert(log, seq);
        if row.try_get(4)? {
            left.remove(&log);
        }
    }
    found.insert(tx).await?;
    set_cursors(tx, cursors).await?;
    logs.extend(chosen.into_iter().filter(|log| left.contains(log)));
    Ok(logs)
}

/// Locks logs, so that none is deleted before the commit. Owners go on writing.
async fn lock(tx: &Connection, logs: &[Uuid]) -> Attempt<HashMap<Uuid, Log>> {
    let mut locked = HashMap::new();
    // One that is deleted between the two statements is a trunk in the second.
    for sql in [
        "SELECT id, number, user_id FROM sessions WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE",
        "SELECT id, number, user_id FROM trunks WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE",
    ] {
        for row in tx.query(sql, &[&logs]).await? {
            let log = Log { number: row.try_get(1)?, user: row.try_get(2)? };
            locked.insert(row.try_get(0)?, log);
        }
    }
    Ok(locked)
}

/// Rows of the index.
#[derive(Default)]
struct Columns {
    logs: Vec<Uuid>,
    seqs: Vec<i64>,
    numbers: Vec<i64>,
    users: Vec<Uuid>,
    words: Vec<String>,
}

impl Columns {
    fn push(&mut self, log: Uuid, seq: i64, of: &Log, words: String) {
        self.logs.push(log);
        self.seqs.push(seq);
        self.numbers.push(of.number);
        self.users.push(of.user);
        self.words.push(words);
    }

    async fn insert(&self, tx: &Connection) -> Attempt<()> {
        tx.execute(
            "INSERT INTO entry_words (log, seq, number, user_id, words)
             SELECT log, seq, number, user_id, array_to_tsvector(string_to_array(words, ' '))
             FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::uuid[], $5::text[])
                 AS n (log, seq, number, user_id, words)",
            &[&self.logs, &self.seqs, &self.numbers, &self.users, &self.words],
        )
        .await
        .map(drop)
    }
}

/// The different words of a text, with spaces between them.
pub(crate) fn words_of(text: &str) -> String {
    let (mut words, mut bytes) = (BTreeSet::new(), 0);
    for word in phrases::words(text) {
        let length = word.folded.len();
        if bytes + length > WORD_BYTES {
            break;
        }
        bytes += if words.insert(word.folded) { length } else { 0 };
    }
    words.into_iter().collect::<Vec<_>>().join(" ")
}

/// Deletes the words of a log's entries after `after`.
pub(super) async fn forget(tx: &Connection, log: Uuid, after: Seq) -> Attempt<()> {
    let sql = "DELETE FROM entry_words WHERE log = $1 AND seq > $2";
    tx.execute(sql, &[&log, &(after as i64)]).await?;
    let cursor = match after {
        0 => "DELETE FROM indexed WHERE log = $1 AND seq > $2",
        _ => "UPDATE indexed SET seq = $2 WHERE log = $1 AND seq > $2",
    };
    tx.execute(cursor, &[&log, &(after as i64)]).await.map(drop)
}

async fn set_cursors(tx: &Connection, cursors: HashMap<Uuid, i64>) -> Attempt<()> {
    let (logs, seqs): (Vec<_>, Vec<_>) = cursors.into_iter().unzip();
    tx.execute(
        "INSERT INTO indexed (log, seq) SELECT * FROM unnest($1::uuid[], $2::bigint[])
         ON CONFLICT (log) DO UPDATE SET seq = excluded.seq",
        &[&logs, &seqs],
    )
    .await
    .map(drop)
}

/// The role, text and time of an entry.
pub(super) async fn read(
    db: &Connection,
    log: Uuid,
    seq: i64,
) -> Attempt<Option<(String, String, jiff::Timestamp)>> {
    let sql = "SELECT message, created_at FROM entries WHERE session = $1 AND seq = $2";
    let Some(row) = db.query_opt(sql, &[&log, &seq]).await? else { return Ok(None) };
    let Some((role, said)) = text_of(row.try_get(0)?) else { return Ok(None) };
    Ok(Some((role, said, rows::time(&row, "created_at")?)))
}
