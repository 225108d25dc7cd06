//! Reads a log, including the entries that a fork shares with its base.
//!
//! Apart, because every reader of logs needs it. A session without a base costs one row and one
//! range, as if there were no forks.
//!
//! Invariants
//! - The base of a log exists, as a session or as a trunk, with all its entries up to the shared
//!   position.
//! - A base is shared beyond its own base: every log of a chain adds at least one entry, so a chain
//!   of bases is never longer than the log.

use bowline_sbp::context::{CallerTag, ContextEntry, SessionLog};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{AgentId, Seq, SessionId, TurnId};
use bowline_sbp::message::Message;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::{Attempt, Fault};
use super::pool::Connection;
use super::rows::{
    self, column, corrupt, id, kind_number, message_of, number, select_entries, some_number, uuid,
};
use crate::{Entry, EntryKind, Error, Packed, Session};

/// The log that a fork is based on, and the last shared position.
pub(super) type Base = (SessionId, Seq);

pub(super) async fn for_models(c: &Connection, session: SessionId) -> Attempt<SessionLog> {
    let Some(end) = end_of(c, session).await? else { return Ok(SessionLog::default()) };
    let instruction = instruction(c, session).await?;
    let sql = "SELECT message, kind, seq, turn_id, caller, replaces, status FROM entries
               WHERE session = $1 AND seq > $2 AND seq <= $3 AND kind <> 2 ORDER BY seq";
    let mut entries = Vec::new();
    for range in ranges(c, end.log, 0, Seq::MAX).await? {
        let (after, to) = range.bounds();
        for row in c.query(sql, &[&range.key, &after, &to]).await? {
            let message = message_of(column(&row, "message")?)?;
            let hidden = column::<i16>(&row, "kind")? == kind_number(EntryKind::Action);
            let entry = ContextEntry::new(
                number(&row, "seq")?,
                TurnId::from_bytes(id(&row, "turn_id")?),
                some_number(&row, "caller")?.map(CallerTag),
                some_number(&row, "replaces")?,
                if hidden { message.hidden() } else { message },
            );
            entries.push(entry.with_status(TurnStatus::named(column(&row, "status")?)));
        }
    }
    Ok(SessionLog { instruction, entries })
}

async fn instruction(c: &Connection, session: SessionId) -> Attempt<Option<Vec<Message>>> {
    let sql = "SELECT messages FROM instructions WHERE session = $1";
    let Some(row) = c.query_opt(sql, &[&uuid(session.as_bytes())]).await? else { return Ok(None) };
    let messages = serde_json::from_str(column(&row, "messages")?);
    messages.map(Some).map_err(|_| corrupt("an instruction").into())
}

/// The `limit` entries after `after`. Positions are contiguous (G1), so their last one is known.
pub(super) async fn after(
    c: &Connection,
    session: SessionId,
    after: Seq,
    limit: u32,
) -> Attempt<Vec<Entry>> {
    let Some(end) = end_of(c, session).await? else { return Ok(Vec::new()) };
    entries(c, end.log, after, after.saturating_add(limit.into())).await
}

/// The `limit` entries before `before`.
pub(super) async fn before(
    c: &Connection,
    session: SessionId,
    before: Seq,
    limit: u32,
) -> Attempt<Vec<Entry>> {
    let Some(end) = end_of(c, session).await? else { return Ok(Vec::new()) };
    let to = before.saturating_sub(1).min(end.last_seq);
    entries(c, end.log, to.saturating_sub(limit.into()), to).await
}

/// The whole session.
pub(super) async fn pack(c: &Connection, id: SessionId) -> Attempt<Option<Packed>> {
    let Some(session) = rows::session(c, id).await? else { return Ok(None) };
    let key = uuid(id.as_bytes());
    let entries = entries(c, log_of(c, key).await?, 0, Seq::MAX).await?;
    let carried = c.query_opt("SELECT payload FROM carried WHERE session = $1", &[&key]).await?;
    let carried = carried.map(|row| rows::told(&row, "payload")).transpose()?;
    let instruction = instruction(c, id).await?;
    Ok(Some(Packed { session, entries, instruction, carried }))
}

/// The base for a fork of this log at `to`: the log that stores that entry itself, however many
/// forks lie between. None if there is nothing to share. It stays there until this transaction ends.
pub(super) async fn base_at(c: &Connection, session: SessionId, to: Seq) -> Attempt<Option<Base>> {
    if to == 0 {
        return Ok(None);
    }
    let log = log_of(c, uuid(session.as_bytes())).await?;
    let holding = ranges(c, log, to - 1, to).await?.pop();
    let key = holding.ok_or_else(|| corrupt("a log with a gap"))?.key;
    for lock in [
        "SELECT 1 FROM sessions WHERE id = $1 FOR KEY SHARE",
        "SELECT 1 FROM trunks WHERE id = $1 FOR KEY SHARE",
    ] {
        if c.query_opt(lock, &[&key]).await?.is_some() {
            return Ok(Some((SessionId::from_bytes(key.into_bytes()), to)));
        }
    }
    // It was deleted since it was looked up.
    Err(Fault::Changed)
}

/// The log position after `step` steps: that of the turn of the last step. A binary search: steps
/// only grow along a log.
pub(super) async fn at_step(c: &Connection, session: &Session, step: u64) -> Attempt<Seq> {
    if step > session.step_count {
        return Err(Error::NoStep(session.step_count).into());
    }
    if step == 0 {
        return Ok(0);
    }
    let log = log_of(c, uuid(session.id.as_bytes())).await?;
    let ranges = ranges(c, log, 0, session.last_seq).await?;
    let look_at = async |seq: Seq| -> Attempt<(u64, i16)> {
        let holding = ranges.get(ranges.partition_point(|range| range.to < seq));
        let key = holding.ok_or_else(|| corrupt("a log with a gap"))?.key;
        let sql = "SELECT step, kind FROM entries WHERE session = $1 AND seq = $2";
        let row = c.query_opt(sql, &[&key, &(seq as i64)]).await?.ok_or(Fault::Changed)?;
        Ok((number(&row, "step")?, column(&row, "kind")?))
    };
    let (mut low, mut high) = (1, session.last_seq + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if look_at(middle).await?.0 < step {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // An imported log need not hold the turns of the session's first steps: after those the fork's
    // log is still empty.
    let made_it = (step, kind_number(EntryKind::Turn));
    let found = low <= session.last_seq && look_at(low).await? == made_it;
    Ok(if found { low } else { low - 1 })
}

/// The log entries that a session stores itself.
#[derive(Debug)]
struct OwnLog {
    key: Uuid,
    base: Option<(Uuid, Seq)>,
    agent: String,
}

/// A session's log, and its last position.
#[derive(Debug)]
struct BoundedLog {
    log: OwnLog,
    last_seq: Seq,
}

async fn end_of(c: &Connection, session: SessionId) -> Attempt<Option<BoundedLog>> {
    let sql = "SELECT id, base, base_seq, agent_id, last_seq FROM sessions WHERE id = $1";
    let row = c.query_opt(sql, &[&uuid(session.as_bytes())]).await?;
    let end = |row| Ok(BoundedLog { log: read_log(&row)?, last_seq: number(&row, "last_seq")? });
    row.map(end).transpose()
}

async fn log_of(c: &Connection, key: Uuid) -> Attempt<OwnLog> {
    let sql = "SELECT id, base, base_seq, agent_id FROM sessions WHERE id = $1
               UNION ALL SELECT id, base, base_seq, agent_id FROM trunks WHERE id = $1";
    // In a transaction that writes, a session can become a trunk between two statements, but not vanish
    // between the halves of one.
    let row = c.query_opt(sql, &[&key]).await?;
    read_log(&row.ok_or_else(|| corrupt("a fork whose base is missing"))?)
}

fn read_log(row: &Row) -> Attempt<OwnLog> {
    let base: Option<Uuid> = column(row, "base")?;
    let base = base.zip(some_number(row, "base_seq")?);
    Ok(OwnLog { key: column(row, "id")?, base, agent: column(row, "agent_id")? })
}

/// A contiguous range of entries of one log.
#[derive(Debug)]
pub(super) struct LogRange {
    /// The session or trunk that stores them.
    pub(super) key: Uuid,
    pub(super) after: Seq,
    pub(super) to: Seq,
    /// The agent of these turns, if not the session's own agent: the session's before a handoff.
    agent: Option<AgentId>,
}

impl LogRange {
    fn bounds(&self) -> (i64, i64) {
        (self.after as i64, self.to.min(i64::MAX as u64) as i64)
    }
}

/// The ranges of all entries of a session; none if there is no such session.
pub(super) async fn whole(c: &Connection, session: SessionId) -> Attempt<Vec<LogRange>> {
    match end_of(c, session).await? {
        None => Ok(Vec::new()),
        Some(end) => ranges(c, end.log, 0, Seq::MAX).await,
    }
}

/// The ranges that hold the entries after `after` and up to `to`, oldest first.
async fn ranges(c: &Connection, last: OwnLog, after: Seq, mut to: Seq) -> Attempt<Vec<LogRange>> {
    let mut found = Vec::with_capacity(1);
    let reader = last.agent.clone();
    let mut log = last;
    loop {
        let begins = log.base.map_or(0, |(_, seq)| seq).max(after);
        if begins < to {
            let agent = (log.agent != reader).then(|| log.agent.parse()).transpose();
            let agent = agent.map_err(|_| corrupt("an agent id"))?;
            found.push(LogRange { key: log.key, after: begins, to, agent });
        }
        match log.base {
            Some((key, seq)) if seq > after => {
                to = to.min(seq);
                log = log_of(c, key).await?;
            }
            _ => break,
        }
    }
    found.reverse();
    Ok(found)
}

async fn entries(c: &Connection, last: OwnLog, after: Seq, to: Seq) -> Attempt<Vec<Entry>> {
    let mut found = Vec::new();
    for range in ranges(c, last, after, to).await? {
        let (after, to) = range.bounds();
        let sql = select_entries!("WHERE session = $1 AND seq > $2 AND seq <= $3 ORDER BY seq");
        for row in c.query(sql, &[&range.key, &after, &to]).await? {
            let mut entry = rows::entry_of(&row)?;
            if let Some(agent) = &range.agent {
                entry.agent_id.get_or_insert_with(|| agent.clone());
            }
            found.push(entry);
        }
    }
    Ok(found)
}
