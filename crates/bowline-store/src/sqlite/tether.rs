//! Attaching, delivering, letting go.

use bowline_sbp::delivery::LoggedTurn;
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{Seq, SessionId, TurnId};
use bowline_sbp::lifecycle::{Change, Status};
use bowline_sbp::message::said;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Key, millis, place, seq_of, timestamp};
use super::surfaces;
use crate::{Attach, Attached, Result};

/// The most turns in one page, and the most bytes of text (one turn always fits).
const PAGE_TURNS: u32 = 512;
const PAGE_BYTES: usize = 256 << 10;

pub(super) fn attach(conn: &Connection, attach: &Attach) -> Result<Attached> {
    let (key, mut session) = rows::existing(conn, attach.session_id)?;
    session.attach_epoch += 1;
    // One that was handed over can be looked at; that does not wake it (G8).
    if session.handed_to.is_none() {
        session.status = session.status.after(Change::SurfaceAttached)?;
    }
    session.updated_at = attach.at;
    let (surface, until) = surfaces::admit(conn, key, attach)?;
    let context = surfaces::meet(conn, key, &surface, attach.at)?;
    let surface =
        serde_json::to_string(&context).map_err(|_| rows::corrupt("a surface that is not JSON"))?;
    session.surface = Some(context);
    conn.prepare_cached(
        "UPDATE sessions SET attach_epoch = ?2, attached_by = ?3, surface = ?4, status = ?5,
         updated_at = ?6 WHERE key = ?1",
    )?
    .execute(params![
        key,
        session.attach_epoch as i64,
        attach.owner.0.as_bytes(),
        surface,
        session.status.as_str(),
        millis(attach.at),
    ])?;
    Ok(Attached { epoch: session.attach_epoch, session, until })
}

pub(super) fn detach(conn: &Connection, id: SessionId, epoch: u64, at: Timestamp) -> Result<bool> {
    let Some((key, session)) = rows::session(conn, id)? else { return Ok(false) };
    if session.attach_epoch != epoch || session.surface.is_none() {
        return Ok(false);
    }
    release(conn, key, session.status, at)?;
    Ok(true)
}

/// The surface is gone: the session is its own again.
pub(super) fn release(conn: &Connection, key: Key, status: Status, at: Timestamp) -> Result<()> {
    let status = status.after(Change::SurfaceLost)?;
    conn.prepare_cached(
        "UPDATE sessions SET attached_by = NULL, surface = NULL, status = ?2, updated_at = ?3
         WHERE key = ?1",
    )?
    .execute(params![key, status.as_str(), millis(at)])?;
    Ok(())
}

pub(super) fn confirm(conn: &Connection, id: SessionId, epoch: u64, seq: Seq) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "SELECT key FROM sessions
         WHERE id = ?1 AND attach_epoch = ?2 AND delivered_seq < ?3 AND last_seq >= ?3",
    )?;
    let key: Option<Key> = statement
        .query_row(params![id.as_bytes(), epoch as i64, seq as i64], |row| row.get(0))
        .optional()?;
    let Some(key) = key else { return Ok(()) };
    conn.prepare_cached(
        "UPDATE sessions SET delivered_seq = ?2, tether_done = max(tether_done, coalesce((
             SELECT tether_no FROM entries
             WHERE place > ?3 AND place <= ?4 AND tether_no IS NOT NULL
             ORDER BY place DESC LIMIT 1), 0))
         WHERE key = ?1",
    )?
    .execute(params![key, seq as i64, place(key, 0), place(key, seq)])?;
    Ok(())
}

/// A page of what waits. Drains are made of these, so it takes no more of a row than it needs.
pub(super) fn after(conn: &Connection, id: SessionId, after: Seq) -> Result<Vec<LoggedTurn>> {
    let Some(key) = rows::key_of(conn, id)? else { return Ok(Vec::new()) };
    let mut statement = conn.prepare_cached(
        "SELECT place, turn_id, message, model, status, step, created_at FROM entries
         WHERE place > ?1 AND place < ?2 AND tether_no IS NOT NULL ORDER BY place LIMIT ?3",
    )?;
    let span = params![place(key, after), place(key + 1, 0), PAGE_TURNS];
    let mut rows = statement.query(span)?;
    let (mut turns, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let message = row.get_ref(2)?.as_str().map_err(|_| rows::corrupt("a message"))?;
        bytes += message.len();
        if bytes > PAGE_BYTES && !turns.is_empty() {
            break;
        }
        let (role, content) = said(message).ok_or_else(|| rows::corrupt("a message"))?;
        turns.push(LoggedTurn {
            seq: seq_of(row.get(0)?),
            turn_id: TurnId::from_bytes(row.get(1)?),
            role,
            content,
            model: row.get(3)?,
            created_at: timestamp(row.get(6)?)?,
            step_count: row.get::<_, i64>(5)? as u64,
            status: TurnStatus::named(row.get_ref(4)?.as_str().unwrap_or_default()),
        });
    }
    Ok(turns)
}
