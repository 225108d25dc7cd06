//! Reads a log, including the entries that a fork shares with its base.
//!
//! Apart, because every reader of logs needs it. A session without a base costs one row and one
//! range, as if there were no forks.
//!
//! Invariants
//! - The base of a log exists, as a session or as a trunk, with all its entries up to the shared
//!   position.

use bowline_sbp::context::{CallerTag, ContextEntry, SessionLog};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{Seq, SessionId, TurnId};
use bowline_sbp::message::Message;
use rusqlite::{Connection, OptionalExtension, Row};

use super::rows::{self, Key, kind_number, place};
use crate::log_ranges::{self, StepSearch};
use crate::{Entry, EntryKind, Error, Packed, Result, Session};

/// The log that a fork is based on, and the last shared position.
pub(super) type Base = (Key, Seq);
type OwnLog = log_ranges::OwnLog<Key>;
type LogRange = log_ranges::LogRange<Key>;

pub(super) fn for_models(conn: &Connection, id: SessionId) -> Result<SessionLog> {
    let Some(end) = end_of(conn, id)? else { return Ok(SessionLog::default()) };
    let instruction = instruction(conn, end.log.key)?;
    let mut statement = conn.prepare_cached(
        "SELECT message, kind, place, turn_id, caller, replaces, status FROM entries
         WHERE place > ?1 AND place <= ?2 AND kind <> 2 ORDER BY place",
    )?;
    let mut entries = Vec::new();
    for range in ranges(conn, end.log, 0, Seq::MAX)? {
        let mut rows = statement.query(places_of(&range))?;
        while let Some(row) = rows.next()? {
            let message = rows::message_of(row.get(0)?)?;
            let hidden = row.get::<_, i64>(1)? == kind_number(EntryKind::Action);
            let number = |at| row.get::<_, Option<i64>>(at).map(|n| n.map(|n| n as u64));
            let entry = ContextEntry::new(
                rows::seq_of(row.get(2)?),
                TurnId::from_bytes(row.get(3)?),
                number(4)?.map(CallerTag),
                number(5)?,
                if hidden { message.hidden() } else { message },
            );
            let status = TurnStatus::named(row.get_ref(6)?.as_str().unwrap_or_default());
            entries.push(entry.with_status(status));
        }
    }
    Ok(SessionLog { instruction, entries })
}

fn instruction(conn: &Connection, key: Key) -> Result<Option<Vec<Message>>> {
    let messages: Option<String> = conn
        .prepare_cached("SELECT messages FROM instructions WHERE session = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    let read = |text: String| serde_json::from_str(&text);
    messages.map(read).transpose().map_err(|_| rows::corrupt("an instruction"))
}

/// The `limit` entries after `after`. Positions are contiguous (G1), so their last one is known.
pub(super) fn after(
    conn: &Connection,
    id: SessionId,
    after: Seq,
    limit: u32,
) -> Result<Vec<Entry>> {
    let Some(end) = end_of(conn, id)? else { return Ok(Vec::new()) };
    entries(conn, end.log, after, after.saturating_add(limit.into()))
}

/// The `limit` entries before `before`.
pub(super) fn before(
    conn: &Connection,
    id: SessionId,
    before: Seq,
    limit: u32,
) -> Result<Vec<Entry>> {
    let Some(end) = end_of(conn, id)? else { return Ok(Vec::new()) };
    let to = before.saturating_sub(1).min(end.last_seq);
    entries(conn, end.log, to.saturating_sub(limit.into()), to)
}

/// The whole session.
pub(super) fn pack(conn: &Connection, id: SessionId) -> Result<Option<Packed>> {
    let Some((key, session)) = rows::session(conn, id)? else { return Ok(None) };
    let entries = entries(conn, log_of(conn, key)?, 0, Seq::MAX)?;
    let carried = conn
        .prepare_cached("SELECT payload FROM carried WHERE session = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    let instruction = instruction(conn, key)?;
    Ok(Some(Packed { session, entries, instruction, carried }))
}

/// The base for a fork of this log at `to`: the log that stores that entry itself, however many
/// forks lie between. None if there is nothing to share.
pub(super) fn base_at(conn: &Connection, key: Key, to: Seq) -> Result<Option<Base>> {
    if to == 0 {
        return Ok(None);
    }
    let holding = ranges(conn, log_of(conn, key)?, to - 1, to)?.pop();
    let holding = holding.ok_or_else(|| rows::corrupt("a log with a gap"))?;
    Ok(Some((holding.key, to)))
}

/// The log position after `step` steps: that of the turn of the last step.
pub(super) fn at_step(conn: &Connection, key: Key, session: &Session, step: u64) -> Result<Seq> {
    if step > session.step_count {
        return Err(Error::NoStep(session.step_count));
    }
    if step == 0 {
        return Ok(0);
    }
    let ranges = ranges(conn, log_of(conn, key)?, 0, session.last_seq)?;
    let mut statement = conn.prepare_cached("SELECT step, kind FROM entries WHERE place = ?1")?;
    let mut look_at = |seq: Seq| -> Result<(u64, i64)> {
        let place = place(log_ranges::holding(&ranges, seq)?, seq);
        Ok(statement.query_row([place], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)))?)
    };
    let mut search = StepSearch::new(step, session.last_seq);
    while let Some(seq) = search.next() {
        search.saw(seq, look_at(seq)?.0);
    }
    let made_it = Some((step, kind_number(EntryKind::Turn)));
    let found = search.candidate().map(look_at).transpose()?;
    Ok(search.end(found == made_it))
}

/// A session's log, and its last position.
struct BoundedLog {
    log: OwnLog,
    last_seq: Seq,
}

fn end_of(conn: &Connection, id: SessionId) -> Result<Option<BoundedLog>> {
    let mut statement = conn.prepare_cached(
        "SELECT key, base_key, base_seq, agent_id, last_seq FROM sessions WHERE id = ?1",
    )?;
    let end = |row: &Row<'_>| {
        Ok(BoundedLog { log: read_log(row)?, last_seq: row.get::<_, i64>(4)? as Seq })
    };
    Ok(statement.query_row([id.as_bytes()], end).optional()?)
}

fn log_of(conn: &Connection, key: Key) -> Result<OwnLog> {
    let mut statement = conn.prepare_cached(
        "SELECT key, base_key, base_seq, agent_id FROM sessions WHERE key = ?1
         UNION ALL SELECT key, base_key, base_seq, agent_id FROM trunks WHERE key = ?1",
    )?;
    let found = statement.query_row([key], read_log).optional()?;
    found.ok_or_else(|| rows::corrupt("a fork whose base is missing"))
}

fn read_log(row: &Row<'_>) -> rusqlite::Result<OwnLog> {
    let base: Option<Key> = row.get(1)?;
    let base = base.map(|key| row.get::<_, i64>(2).map(|seq| (key, seq as Seq))).transpose()?;
    Ok(OwnLog { key: row.get(0)?, base, agent: row.get(3)? })
}

fn places_of(range: &LogRange) -> [i64; 2] {
    [place(range.key, range.after), place(range.key, range.to)]
}

/// The ranges that hold the entries after `after` and up to `to`, oldest first.
fn ranges(conn: &Connection, last: OwnLog, after: Seq, to: Seq) -> Result<Vec<LogRange>> {
    log_ranges::ranges(last, after, to, |key| log_of(conn, key))
}

/// The places of a session's entries: after the first of each pair, up to the second.
pub(super) fn places(conn: &Connection, key: Key) -> Result<Vec<[i64; 2]>> {
    let ranges = ranges(conn, log_of(conn, key)?, 0, Seq::MAX)?;
    Ok(ranges.iter().map(places_of).collect())
}

fn entries(conn: &Connection, last: OwnLog, after: Seq, to: Seq) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for range in ranges(conn, last, after, to)? {
        let rest = "WHERE place > ?1 AND place <= ?2 ORDER BY place";
        let mut part = rows::entries(conn, rest, places_of(&range), |_| true)?;
        range.name_agent(&mut part);
        found.append(&mut part);
    }
    Ok(found)
}
