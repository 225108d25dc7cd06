//! Attaching, delivering, letting go.

use bowline_sbp::id::{Seq, SessionId};
use bowline_sbp::lifecycle::{Change, Status};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Key, millis, place};
use super::surfaces;
use crate::{Attach, Attached, Entry, Result};

/// The most turns in one page, and the most bytes of text (one turn always fits).
const PAGE_TURNS: u32 = 256;
const PAGE_BYTES: usize = 1 << 20;

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

pub(super) fn after(conn: &Connection, id: SessionId, after: Seq) -> Result<Vec<Entry>> {
    let Some(key) = rows::key_of(conn, id)? else { return Ok(Vec::new()) };
    let (mut bytes, mut turns) = (0, 0);
    rows::entries(
        conn,
        "WHERE place > ?1 AND place < ?2 AND tether_no IS NOT NULL ORDER BY place LIMIT ?3",
        params![place(key, after), place(key + 1, 0), PAGE_TURNS],
        |entry| {
            bytes += entry.message.as_json().len();
            turns += 1;
            turns == 1 || bytes <= PAGE_BYTES
        },
    )
}
