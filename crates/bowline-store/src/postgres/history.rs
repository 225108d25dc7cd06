//! Reads a log, including the entries that a fork shares with its base.
//!
//! Apart, because every reader of logs needs it. A session without a base costs one row and one
//! range, as if there were no forks.
//!
//! Invariants
//! - The base of a log exists, as a session or as a trunk, with all its entries up to the shared
//!   position.
//! - What is read of one log is read in one snapshot, or under a lock of the session's row: otherwise
//!   a base could be deleted between two reads.

use bowline_sbp::context::{CallerTag, ContextEntry, SessionLog};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{Seq, SessionId, TurnId};
use bowline_sbp::message::Message;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::Connection;
use super::rows::{self, kind_number, select_entries};
use crate::log_ranges::{self, StepSearch};
use crate::{Entry, EntryKind, Error, Packed, Session};

/// The log that a fork is based on, and the last shared position.
pub(super) type Base = (Uuid, Seq);
type OwnLog = log_ranges::OwnLog<Uuid>;
pub(super) type LogRange = log_ranges::LogRange<Uuid>;

pub(super) async fn for_models(db: &Connection, id: SessionId) -> Attempt<SessionLog> {
    let Some(end) = end_of(db, id).await? else { return Ok(SessionLog::default()) };
    let instruction = instruction(db, id).await?;
    let mut entries = Vec::new();
    for range in ranges(db, end.log, 0, Seq::MAX).await? {
        let found = db
            .query(
                "SELECT message, kind, seq, turn_id, caller, replaces, status FROM entries
                 WHERE session = $1 AND seq > $2 AND seq <= $3 AND kind <> 2 ORDER BY seq",
                &[&range.key, &position(range.after), &position(range.to)],
            )
            .await?;
        for row in found {
            entries.push(context_entry(&row)?);
        }
    }
    Ok(SessionLog { instruction, entries })
}

fn context_entry(row: &Row) -> Attempt<ContextEntry> {
    let message = rows::message_of(row.try_get(0)?)?;
    let hidden = row.try_get::<_, i16>(1)? == kind_number(EntryKind::Action);
    let number = |at| row.try_get::<_, Option<i64>>(at).map(|n| n.map(|n| n as u64));
    let entry = ContextEntry::new(
        row.try_get::<_, i64>(2)? as Seq,
        TurnId(row.try_get(3)?),
        number(4)?.map(CallerTag),
        number(5)?,
        if hidden { message.hidden() } else { message },
    );
    Ok(entry.with_status(TurnStatus::named(row.try_get(6)?)))
}

async fn instruction(db: &Connection, id: SessionId) -> Attempt<Option<Vec<Message>>> {
    let sql = "SELECT messages FROM instructions WHERE session = $1";
    let Some(row) = db.query_opt(sql, &[&id.0]).await? else { return Ok(None) };
    let messages = serde_json::from_str(row.try_get(0)?);
    Ok(Some(messages.map_err(|_| rows::corrupt("an instruction"))?))
}

/// The `limit` entries after `after`. Positions are contiguous (G1), so their last one is known.
pub(super) async fn after(
    db: &Connection,
    id: SessionId,
    after: Seq,
    limit: u32,
) -> Attempt<Vec<Entry>> {
    let Some(end) = end_of(db, id).await? else { return Ok(Vec::new()) };
    entries(db, end.log, after, after.saturating_add(limit.into())).await
}

/// The `limit` entries before `before`.
pub(super) async fn before(
    db: &Connection,
    id: SessionId,
    before: Seq,
    limit: u32,
) -> Attempt<Vec<Entry>> {
    let Some(end) = end_of(db, id).await? else { return Ok(Vec::new()) };
    let to = before.saturating_sub(1).min(end.last_seq);
    entries(db, end.log, to.saturating_sub(limit.into()), to).await
}

/// The whole session.
pub(super) async fn pack(db: &Connection, id: SessionId) -> Attempt<Option<Packed>> {
    let Some(session) = rows::session(db, id).await? else { return Ok(None) };
    let entries = entries(db, log_of(db, id.0).await?, 0, Seq::MAX).await?;
    let sql = "SELECT payload FROM carried WHERE session = $1";
    let carried = match db.query_opt(sql, &[&id.0]).await? {
        Some(row) => Some(rows::told(&row, "payload")?),
        None => None,
    };
    let instruction = instruction(db, id).await?;
    Ok(Some(Packed { session, entries, instruction, carried }))
}

/// The base for a fork of this log at `to`: the log that stores that entry itself, however many
/// forks lie between. None if there is nothing to share.
pub(super) async fn base_at(db: &Connection, id: SessionId, to: Seq) -> Attempt<Option<Base>> {
    if to == 0 {
        return Ok(None);
    }
    let holding = ranges(db, log_of(db, id.0).await?, to - 1, to).await?.pop();
    let holding = holding.ok_or_else(|| rows::corrupt("a log with a gap"))?;
    Ok(Some((holding.key, to)))
}

/// The log position after `step` steps: that of the turn of the last step.
pub(super) async fn at_step(db: &Connection, session: &Session, step: u64) -> Attempt<Seq> {
    if step > session.step_count {
        return Err(Error::NoStep(session.step_count).into());
    }
    if step == 0 {
        return Ok(0);
    }
    let ranges = ranges(db, log_of(db, session.id.0).await?, 0, session.last_seq).await?;
    let look_at = async |seq: Seq| -> Attempt<(u64, i16)> {
        let key = log_ranges::holding(&ranges, seq)?;
        let sql = "SELECT step, kind FROM entries WHERE session = $1 AND seq = $2";
        let row = db.query_one(sql, &[&key, &position(seq)]).await?;
        Ok((row.try_get::<_, i64>(0)? as u64, row.try_get(1)?))
    };
    let mut search = StepSearch::new(step, session.last_seq);
    while let Some(seq) = search.next() {
        search.saw(seq, look_at(seq).await?.0);
    }
    let made_it = (step, kind_number(EntryKind::Turn));
    let found = match search.candidate() {
        Some(seq) => look_at(seq).await? == made_it,
        None => false,
    };
    Ok(search.end(found))
}

/// The ranges of all entries of a session; none if there is no such session.
pub(super) async fn whole(db: &Connection, id: SessionId) -> Attempt<Vec<LogRange>> {
    match end_of(db, id).await? {
        None => Ok(Vec::new()),
        Some(end) => ranges(db, end.log, 0, Seq::MAX).await,
    }
}

/// A session's log, and its last position.
struct BoundedLog {
    log: OwnLog,
    last_seq: Seq,
}

async fn end_of(db: &Connection, id: SessionId) -> Attempt<Option<BoundedLog>> {
    let sql = "SELECT id, base, base_seq, agent_id, last_seq FROM sessions WHERE id = $1";
    let Some(row) = db.query_opt(sql, &[&id.0]).await? else { return Ok(None) };
    let last_seq = row.try_get::<_, i64>(4)? as Seq;
    Ok(Some(BoundedLog { log: read_log(&row)?, last_seq }))
}

async fn log_of(db: &Connection, id: Uuid) -> Attempt<OwnLog> {
    let sql = "SELECT id, base, base_seq, agent_id FROM sessions WHERE id = $1
               UNION ALL SELECT id, base, base_seq, agent_id FROM trunks WHERE id = $1";
    let found = db.query_opt(sql, &[&id]).await?;
    let row = found.ok_or_else(|| rows::corrupt("a fork whose base is missing"))?;
    read_log(&row)
}

fn read_log(row: &Row) -> Attempt<OwnLog> {
    let base: Option<Uuid> = row.try_get(1)?;
    let base_seq: Option<i64> = row.try_get(2)?;
    let base = base.zip(base_seq).map(|(base, seq)| (base, seq as Seq));
    Ok(OwnLog { key: row.try_get(0)?, base, agent: row.try_get(3)? })
}

/// The ranges that hold the entries after `after` and up to `to`, oldest first.
async fn ranges(db: &Connection, last: OwnLog, after: Seq, to: Seq) -> Attempt<Vec<LogRange>> {
    // All bases that are needed at once: a fork of many forks has many.
    let mut bases = match last.base {
        Some((base, seq)) if seq > after => bases(db, base, after).await?,
        _ => Vec::new(),
    }
    .into_iter();
    let missing = || rows::corrupt("a fork whose base is missing");
    let ranges = log_ranges::ranges(last, after, to, |key| {
        bases.find(|log| log.key == key).ok_or_else(missing)
    })?;
    Ok(ranges)
}

/// A log and those that it is based on, as far as they hold entries after `after`, newest first.
async fn bases(db: &Connection, log: Uuid, after: Seq) -> Attempt<Vec<OwnLog>> {
    let sql = "
        WITH RECURSIVE logs (id, base, base_seq, agent_id, depth) AS (
            SELECT l.*, 0 FROM (
                SELECT id, base, base_seq, agent_id FROM sessions WHERE id = $1
                UNION ALL SELECT id, base, base_seq, agent_id FROM trunks WHERE id = $1) l
            UNION ALL
            SELECT b.*, l.depth + 1 FROM logs l CROSS JOIN LATERAL (
                SELECT id, base, base_seq, agent_id FROM sessions WHERE id = l.base
                UNION ALL SELECT id, base, base_seq, agent_id FROM trunks WHERE id = l.base) b
            WHERE l.base_seq > $2)
        SELECT id, base, base_seq, agent_id FROM logs ORDER BY depth";
    db.query(sql, &[&log, &position(after)]).await?.iter().map(read_log).collect()
}

async fn entries(db: &Connection, last: OwnLog, after: Seq, to: Seq) -> Attempt<Vec<Entry>> {
    let mut found = Vec::new();
    for range in ranges(db, last, after, to).await? {
        let sql = select_entries!("WHERE session = $1 AND seq > $2 AND seq <= $3 ORDER BY seq");
        let rows =
            db.query(sql, &[&range.key, &position(range.after), &position(range.to)]).await?;
        let mut part = rows.iter().map(rows::entry_of).collect::<Attempt<Vec<_>>>()?;
        range.name_agent(&mut part);
        found.append(&mut part);
    }
    Ok(found)
}

/// A position as a number of PostgreSQL's.
fn position(seq: Seq) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
