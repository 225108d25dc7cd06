//! Full-text search in what users and agents said (FTS5).
//!
//! Apart from the log, because no turn may wait for it: entries are indexed later, in steps of
//! bounded size between which commits run. A cursor for each log says how far it is indexed. The
//! index holds no text; the text of a hit is read from the log.
//!
//! Invariants
//! - The entries of a log up to its cursor are indexed, and none after it.
//! - Whoever deletes entries has their words deleted in the same transaction.
//!
//! FTS5 only marks deleted words; they leave the file when the index is merged. Its `secure-delete`
//! removes them at once, but a long session would then hold the writer for seconds. So merging is
//! done in steps, too, soon after a session was deleted.

use std::collections::HashMap;

use bowline_sbp::id::{Seq, SessionId, UserId};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Key, kind_number, place, seq_of};
use crate::words::{
    self, HITS_OF_ONE, LOOKED_AT, SNIPPET_FROM, SNIPPET_WORDS, Typed, beginning, one_line,
};
use crate::{EntryKind, Hit, Result};

/// The most logs that one look at the backlog finds.
const LOGS_AT_ONCE: u32 = 1024;
/// The most entries that are indexed in one step, and the most bytes of them but for one entry.
const ENTRIES_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 64 << 10;
/// How many pages of the index are merged in one step.
const PAGES_AT_ONCE: i64 = 64;
/// How many times more, with those of other users.
const OTHERS: usize = 10;

/// Logs with entries that are not indexed yet, the newest last. Reads all sessions: an index of
/// them would cost every turn.
pub(super) fn backlog(conn: &Connection) -> Result<Vec<Key>> {
    let mut statement = conn.prepare_cached(
        "SELECT key FROM (
             SELECT s.key FROM sessions s LEFT JOIN indexed i ON i.log = s.key
             WHERE s.last_seq > coalesce(i.seq, s.base_seq, 0)
             UNION ALL
             SELECT t.key FROM trunks t LEFT JOIN indexed i ON i.log = t.key
             WHERE EXISTS (SELECT 1 FROM entries WHERE place < (t.key + 1) << 32
                           AND place > (t.key << 32) + coalesce(i.seq, 0)))
         ORDER BY key DESC LIMIT ?1",
    )?;
    let keys = statement.query_map([LOGS_AT_ONCE], |row| row.get(0))?;
    let mut keys: Vec<Key> = keys.collect::<Result<_, _>>()?;
    keys.reverse();
    Ok(keys)
}

/// Indexes some entries of these logs, the last log first; returns the logs that are left. A log
/// that was deleted meanwhile has no entries.
pub(super) fn index(conn: &Connection, mut logs: Vec<Key>) -> Result<Vec<Key>> {
    let (mut entries, mut bytes) = (0, 0);
    let mut insert =
        conn.prepare_cached("INSERT INTO entry_words (rowid, text) VALUES (?1, ?2)")?;
    while let Some(log) = logs.last().copied() {
        let after = cursor(conn, log)?.unwrap_or(0);
        let mut read = conn.prepare_cached(
            "SELECT place, kind, message FROM entries WHERE place > ?1 AND place < ?2
             ORDER BY place LIMIT ?3",
        )?;
        let mut rows =
            read.query(params![place(log, after), place(log + 1, 0), ENTRIES_AT_ONCE as i64])?;
        let mut last = after;
        while entries < ENTRIES_AT_ONCE && bytes < BYTES_AT_ONCE {
            let Some(row) = rows.next()? else {
                logs.pop();
                last = last.max(last_seq(conn, log)?);
                break;
            };
            let place: i64 = row.get(0)?;
            let message = row.get_ref(2)?.as_str().unwrap_or_default();
            if let Some((_, text)) = text_of(row.get(1)?, message) {
                insert.execute(params![place, text])?;
            }
            last = seq_of(place);
            entries += 1;
            bytes += message.len();
        }
        drop(rows);
        set_cursor(conn, log, last)?;
        if entries >= ENTRIES_AT_ONCE || bytes >= BYTES_AT_ONCE {
            break;
        }
    }
    Ok(logs)
}

/// Deletes the words of a log's entries after `after`: from now on they are not found. They leave
/// the file with [`purge`].
pub(super) fn forget(conn: &Connection, log: Key, after: Seq) -> Result<()> {
    let Some(indexed) = cursor(conn, log)? else { return Ok(()) };
    let gone = conn
        .prepare_cached("DELETE FROM entry_words WHERE rowid > ?1 AND rowid <= ?2")?
        .execute([place(log, after), place(log, indexed)])?;
    if gone > 0 {
        conn.prepare_cached("UPDATE purge SET due = 1")?.execute([])?;
    }
    // The row number of a deleted session may be used again.
    match after {
        0 => conn.prepare_cached("DELETE FROM indexed WHERE log = ?1")?.execute([log])?,
        _ => conn
            .prepare_cached("UPDATE indexed SET seq = min(seq, ?2) WHERE log = ?1")?
            .execute(params![log, after as i64])?,
    };
    Ok(())
}

/// Whether words of deleted entries may still be in the file.
pub(super) fn is_purge_due(conn: &Connection) -> Result<bool> {
    let mut statement = conn.prepare_cached("SELECT due FROM purge")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

/// Merges a part of the index, which leaves out the words of deleted entries; returns whether there
/// is more to merge.
pub(super) fn purge(conn: &Connection) -> Result<bool> {
    let before = conn.total_changes();
    conn.prepare_cached("INSERT INTO entry_words (entry_words, rank) VALUES ('merge', ?1)")?
        .execute([-PAGES_AT_ONCE])?;
    // A merge that had nothing to do counts as one change, or none (FTS5, "the merge command").
    let more = conn.total_changes() - before >= 2;
    if !more {
        conn.prepare_cached("UPDATE purge SET due = 0")?.execute([])?;
    }
    Ok(more)
}

/// Removes the words of deleted entries from a copy that nobody uses yet, if its schema has an index.
pub(super) fn purge_copy(conn: &Connection) -> rusqlite::Result<()> {
    let known = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'purge'";
    if conn.query_row(known, [], |row| row.get::<_, i64>(0))? == 0
        || !conn.query_row("SELECT due FROM purge", [], |row| row.get::<_, bool>(0))?
    {
        return Ok(());
    }
    conn.pragma_update(None, "secure_delete", true)?;
    conn.execute("INSERT INTO entry_words (entry_words) VALUES ('optimize')", [])?;
    conn.execute("UPDATE purge SET due = 0", [])?;
    Ok(())
}

/// Messages that contain all words: the newest session first, the newest message first.
pub(super) fn search(
    conn: &Connection,
    user: UserId,
    words: &[String],
    limit: u32,
) -> Result<Vec<Hit>> {
    let query = query(words);
    if query.is_empty() {
        return Ok(Vec::new());
    }
    let (sessions, others, hits) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut owners = Owners { user, sessions, others, hits, seen: 0 };
    let (mut hits, mut texts) = (Vec::new(), Vec::new());
    let mut matching = conn.prepare_cached(
        "SELECT rowid FROM entry_words WHERE entry_words MATCH ?1 ORDER BY rowid DESC LIMIT ?2",
    )?;
    // Other users' entries are passed over and cost little.
    let mut rows = matching.query(params![query, (OTHERS * LOOKED_AT) as i64])?;
    while let Some(row) = rows.next()? {
        if hits.len() >= limit as usize || owners.seen >= LOOKED_AT {
            break;
        }
        let place: i64 = row.get(0)?;
        let Some((session, title)) = owners.next_hit_of(conn, place)? else { continue };
        let Some((role, text, created_at)) = read(conn, place)? else { continue };
        let snippet = String::new();
        hits.push(Hit { session, title, seq: seq_of(place), role, created_at, snippet });
        texts.push(text);
    }
    for (hit, snippet) in hits.iter_mut().zip(snippets(&texts, &query)?) {
        hit.snippet = snippet;
    }
    Ok(hits)
}

/// The sessions that hits belong to, and how many hits each has.
#[derive(Debug)]
struct Owners {
    /// Only sessions that this user sees.
    user: UserId,
    sessions: HashMap<Key, (SessionId, Option<String>)>,
    /// Those that it does not see.
    others: HashMap<Key, Sight>,
    hits: HashMap<Key, usize>,
    /// How many entries of sessions that it sees were looked at.
    seen: usize,
}

impl Owners {
    /// The session to name for this entry; none if it has hits enough.
    fn next_hit_of(
        &mut self,
        conn: &Connection,
        place: i64,
    ) -> Result<Option<(SessionId, Option<String>)>> {
        let log = place >> 32;
        let owner = match self.look_up(conn, log)? {
            Sight::Seen => log,
            Sight::Foreign => return Ok(None),
            Sight::Deleted => match sharing(conn, log, seq_of(place))? {
                Some(fork) if self.look_up(conn, fork)? == Sight::Seen => fork,
                _ => return Ok(None),
            },
        };
        self.seen += 1;
        let hits = self.hits.entry(owner).or_default();
        *hits += 1;
        Ok((*hits <= HITS_OF_ONE).then(|| self.sessions.get(&owner).cloned()).flatten())
    }

    fn look_up(&mut self, conn: &Connection, key: Key) -> Result<Sight> {
        if self.sessions.contains_key(&key) {
            return Ok(Sight::Seen);
        }
        if let Some(known) = self.others.get(&key) {
            return Ok(*known);
        }
        let mut statement = conn.prepare_cached(
            "SELECT id, coalesce(title, auto_title), user = ?2 OR EXISTS
                 (SELECT 1 FROM shares WHERE session = ?1 AND shares.user = ?2)
             FROM sessions WHERE key = ?1",
        )?;
        let found = statement.query_row(params![key, self.user.as_bytes()], |row| {
            let session = (SessionId::from_bytes(row.get(0)?), row.get::<_, Option<String>>(1)?);
            Ok((session, row.get::<_, bool>(2)?))
        });
        let sight = match found.optional()? {
            Some((session, true)) => {
                self.sessions.insert(key, session);
                return Ok(Sight::Seen);
            }
            Some((_, false)) => Sight::Foreign,
            None => Sight::Deleted,
        };
        self.others.insert(key, sight);
        Ok(sight)
    }
}

/// What a log is to the user who searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Seen,
    Foreign,
    /// Its session is deleted; forks may still share entries.
    Deleted,
}

/// The oldest session that shares this entry of a deleted one.
fn sharing(conn: &Connection, log: Key, seq: Seq) -> Result<Option<Key>> {
    let mut statement = conn.prepare_cached(
        "WITH RECURSIVE heirs (key) AS (
             SELECT key FROM sessions WHERE base_key = ?1 AND base_seq >= ?2
             UNION SELECT key FROM trunks WHERE base_key = ?1 AND base_seq >= ?2
             UNION SELECT s.key FROM heirs h JOIN sessions s ON s.base_key = h.key
             UNION SELECT t.key FROM heirs h JOIN trunks t ON t.base_key = h.key)
         SELECT min(s.key) FROM heirs h JOIN sessions s ON s.key = h.key",
    )?;
    Ok(statement.query_row(params![log, seq as i64], |row| row.get(0))?)
}

/// Role, text and time of an entry.
fn read(conn: &Connection, place: i64) -> Result<Option<(String, String, jiff::Timestamp)>> {
    let mut statement =
        conn.prepare_cached("SELECT kind, message, created_at FROM entries WHERE place = ?1")?;
    let found = statement.query_row([place], |row| {
        let message = row.get_ref(1)?.as_str().unwrap_or_default();
        Ok((text_of(row.get(0)?, message), row.get(2)?))
    });
    let Some((Some((role, text)), at)) = found.optional()? else { return Ok(None) };
    Ok(Some((role, text, rows::timestamp(at)?)))
}

/// Role and text of an entry that is indexed: what a user or the agent said.
fn text_of(kind: i64, message: &str) -> Option<(String, String)> {
    let is_said = [EntryKind::Message, EntryKind::Turn].map(kind_number).contains(&kind);
    is_said.then(|| words::text_of(message)).flatten()
}

/// All words, each quoted, so that none is parsed as an operator. `word*` is a prefix. FTS5 takes a
/// word apart as it does with texts.
fn query(words: &[String]) -> String {
    let quoted = |typed: Typed<'_>| {
        let star = if typed.is_prefix { "*" } else { "" };
        // FTS5 reads a query up to the first NUL.
        format!("\"{}\"{star}", typed.text.replace('\0', " ").replace('"', "\"\""))
    };
    words::typed(words).map(quoted).collect::<Vec<_>>().join(" ")
}

/// The part of each text around the words. Computed in a small index of its own, so that words are
/// found as the search found them.
fn snippets(texts: &[String], query: &str) -> Result<Vec<String>> {
    let conn = Connection::open_in_memory()?;
    conn.execute_batch(
        "CREATE VIRTUAL TABLE texts USING fts5 (
             text, tokenize = 'unicode61 remove_diacritics 2')",
    )?;
    let beginnings = texts.iter().map(|text| &text[..text.floor_char_boundary(SNIPPET_FROM)]);
    let mut found: Vec<String> = beginnings.clone().map(beginning).collect();
    let mut insert = conn.prepare("INSERT INTO texts (rowid, text) VALUES (?1, ?2)")?;
    for (number, text) in beginnings.enumerate() {
        insert.execute(params![number as i64, text])?;
    }
    let mut statement = conn.prepare(
        "SELECT rowid, snippet(texts, 0, '', '', '…', ?2) FROM texts WHERE texts MATCH ?1",
    )?;
    let mut rows = statement.query(params![query, SNIPPET_WORDS as i64])?;
    while let Some(row) = rows.next()? {
        if let Some(snippet) = found.get_mut(row.get::<_, i64>(0)? as usize) {
            *snippet = one_line(row.get_ref(1)?.as_str().unwrap_or_default());
        }
    }
    Ok(found)
}

/// Up to where the log is indexed.
fn cursor(conn: &Connection, log: Key) -> Result<Option<Seq>> {
    let mut statement = conn.prepare_cached("SELECT seq FROM indexed WHERE log = ?1")?;
    let seq = statement.query_row([log], |row| row.get::<_, i64>(0)).optional()?;
    Ok(seq.map(|seq| seq as Seq))
}

/// The end of a session's log; 0 for a trunk.
fn last_seq(conn: &Connection, log: Key) -> Result<Seq> {
    let mut statement = conn.prepare_cached("SELECT last_seq FROM sessions WHERE key = ?1")?;
    let seq = statement.query_row([log], |row| row.get::<_, i64>(0)).optional()?;
    Ok(seq.unwrap_or(0) as Seq)
}

fn set_cursor(conn: &Connection, log: Key, seq: Seq) -> Result<()> {
    if seq == 0 {
        return Ok(());
    }
    conn.prepare_cached(
        "INSERT INTO indexed (log, seq) VALUES (?1, ?2) ON CONFLICT (log) DO UPDATE SET seq = ?2",
    )?
    .execute(params![log, seq as i64])?;
    Ok(())
}
