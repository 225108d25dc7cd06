//! Memories of agents, with full-text search (FTS5).

use bowline_sbp::id::{MemoryId, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::{self, millis};
use crate::memory::MOST;
use crate::{Error, Memory, MemoryKind, MemoryOwner, NewMemory, Result, TurnMemories};

/// Adds memories. Checks the limit before it writes: if not all fit, none is added.
pub(super) fn remember(
    conn: &Connection,
    of: &MemoryOwner,
    memories: &[NewMemory],
) -> Result<Vec<Memory>> {
    check_room(conn, of, memories)?;
    memories.iter().map(|memory| remember_one(conn, of, memory)).collect()
}

/// Whether those that the agent does not have yet fit.
pub(super) fn check_room(
    conn: &Connection,
    of: &MemoryOwner,
    memories: &[NewMemory],
) -> Result<()> {
    let mut new = 0;
    for memory in memories {
        new += usize::from(!is_known(conn, of, memory)?);
    }
    if new > room(conn, of)? { Err(Error::MemoryFull(MOST)) } else { Ok(()) }
}

fn room(conn: &Connection, of: &MemoryOwner) -> Result<usize> {
    let known: u32 = conn
        .prepare_cached("SELECT count(*) FROM memories WHERE agent_id = ?1 AND user = ?2")?
        .query_row(params![of.agent.as_str(), of.user.as_bytes()], |row| row.get(0))?;
    Ok(MOST.saturating_sub(known) as usize)
}

fn is_known(conn: &Connection, of: &MemoryOwner, memory: &NewMemory) -> Result<bool> {
    let mut known = conn.prepare_cached(
        "SELECT 1 FROM memories WHERE agent_id = ?1 AND kind = ?2 AND text = ?3 AND user = ?4",
    )?;
    let (agent, user) = (of.agent.as_str(), of.user.as_bytes());
    Ok(known.exists(params![agent, memory.kind.as_str(), memory.text, user])?)
}

/// Replaces all memories of the agent.
pub(super) fn replace(
    conn: &Connection,
    of: &MemoryOwner,
    memories: &[NewMemory],
) -> Result<Vec<Memory>> {
    if memories.len() > MOST as usize {
        return Err(Error::MemoryFull(MOST));
    }
    forget(conn, of, None)?;
    memories.iter().map(|memory| remember_one(conn, of, memory)).collect()
}

fn remember_one(conn: &Connection, of: &MemoryOwner, memory: &NewMemory) -> Result<Memory> {
    conn.prepare_cached(
        "INSERT INTO memories (id, agent_id, kind, text, session_id, created_at, user)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (agent_id, kind, text, user) DO NOTHING",
    )?
    .execute(params![
        memory.id.as_bytes(),
        of.agent.as_str(),
        memory.kind.as_str(),
        memory.text,
        memory.session_id.as_ref().map(SessionId::as_bytes),
        millis(memory.at),
        of.user.as_bytes(),
    ])?;
    let rest = "m WHERE agent_id = ?1 AND kind = ?2 AND text = ?3 AND user = ?4";
    let (agent, user) = (of.agent.as_str(), of.user.as_bytes());
    let found = select(conn, rest, params![agent, memory.kind.as_str(), memory.text, user])?;
    found
        .into_iter()
        .next()
        .ok_or_else(|| rows::corrupt("a memory that was just created is missing"))
}

pub(super) fn list(
    conn: &Connection,
    of: &MemoryOwner,
    before: Option<MemoryId>,
    limit: u32,
) -> Result<Vec<Memory>> {
    let before: i64 = match before {
        None => i64::MAX,
        Some(id) => conn
            .prepare_cached("SELECT number FROM memories WHERE id = ?1 AND user = ?2")?
            .query_row(params![id.as_bytes(), of.user.as_bytes()], |row| row.get(0))
            .optional()?
            .unwrap_or(0),
    };
    let rest = "m WHERE agent_id = ?1 AND user = ?4 AND number < ?2 ORDER BY number DESC LIMIT ?3";
    select(conn, rest, params![of.agent.as_str(), before, limit, of.user.as_bytes()])
}

pub(super) fn recall(
    conn: &Connection,
    of: &MemoryOwner,
    words: &[String],
    limit: u32,
) -> Result<Vec<Memory>> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    // Quoted, so that a word is not parsed as an operator of the query language.
    let quoted = |word: &str| format!("\"{}\"", word.replace('"', "\"\""));
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    // The agent is part of the query, so that other agents' memories are not ranked.
    let search =
        format!("agent_id : {} AND text : ({})", quoted(of.agent.as_str()), words.join(" OR "));
    let rest = "m JOIN memory_words w ON w.rowid = m.number
                WHERE memory_words MATCH ?2 AND m.agent_id = ?1 AND m.user = ?4
                ORDER BY bm25(memory_words, 1.0, 0.0) LIMIT ?3";
    select(conn, rest, params![of.agent.as_str(), search, limit, of.user.as_bytes()])
}

/// The memories for one turn.
pub(super) fn for_turn(
    conn: &Connection,
    of: &MemoryOwner,
    words: &[String],
    limit: u32,
) -> Result<TurnMemories> {
    let newest = list(conn, of, None, limit)?;
    // Most agents have no memories, and a search is not free.
    if newest.is_empty() {
        return Ok(TurnMemories::default());
    }
    let kind = MemoryKind::Procedural.as_str();
    let rest = "m WHERE agent_id = ?1 AND kind = ?2 AND user = ?4 ORDER BY number LIMIT ?3";
    let (agent, user) = (of.agent.as_str(), of.user.as_bytes());
    Ok(TurnMemories {
        rules: select(conn, rest, params![agent, kind, limit, user])?,
        matching: recall(conn, of, words, limit)?,
        newest,
    })
}

pub(super) fn forget(conn: &Connection, of: &MemoryOwner, memory: Option<MemoryId>) -> Result<u64> {
    let forgotten = conn
        .prepare_cached(
            "DELETE FROM memories WHERE agent_id = ?1 AND user = ?3 AND (?2 IS NULL OR id = ?2)",
        )?
        .execute(params![
            of.agent.as_str(),
            memory.as_ref().map(MemoryId::as_bytes),
            of.user.as_bytes()
        ])?;
    Ok(forgotten as u64)
}

fn select(conn: &Connection, rest: &str, params: impl rusqlite::Params) -> Result<Vec<Memory>> {
    let sql =
        format!("SELECT m.id, m.kind, m.text, m.session_id, m.created_at FROM memories {rest}");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(memory_of(row)?);
    }
    Ok(found)
}

fn memory_of(row: &Row<'_>) -> Result<Memory> {
    let kind = row.get_ref(1)?.as_str().ok().and_then(MemoryKind::named);
    Ok(Memory {
        id: MemoryId::from_bytes(row.get(0)?),
        kind: kind.ok_or_else(|| rows::corrupt("a memory of an unknown kind"))?,
        text: row.get(2)?,
        session_id: row.get::<_, Option<[u8; 16]>>(3)?.map(SessionId::from_bytes),
        created_at: rows::timestamp(row.get(4)?)?,
    })
}
