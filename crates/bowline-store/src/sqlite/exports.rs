//! Exports and their bundles.
//!
//! An export outlives its bundle: lineage still lists it when there is nothing left to import.

use bowline_sbp::budget::Spent;
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::GatewayId;
use bowline_sbp::id::{ExportId, SessionId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::millis;
use super::{federation, rows, usage};
use crate::{AnnouncedExport, Error, Export, NewExport, Result};

/// The most exports of one session in a list.
const MOST: u32 = 1000;
/// The most bundles deleted in one transaction: freeing the pages of large ones takes time.
pub(super) const DROPPED_AT_ONCE: u64 = 16;

pub(super) fn keep(conn: &Connection, new: &NewExport) -> Result<Export> {
    rows::key_of(conn, new.session_id)?.ok_or(Error::NoSession)?;
    insert(conn, new)?;
    if let Some(spender) = &new.spender {
        usage::spend(conn, new.at, spender, &Spent { exports: 1, ..Spent::default() })?;
    }
    let found = find(conn, new.id)?;
    found
        .map(|(_, export)| export)
        .ok_or_else(|| rows::corrupt("an export that was just created is missing"))
}

pub(super) fn insert(conn: &Connection, new: &NewExport) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO exports (id, session_id, cid, label, messages, created_at, expires_at, with_memory, peer,
             announce)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        new.id.as_bytes(),
        new.session_id.as_bytes(),
        new.cid,
        new.label,
        new.message_count as i64,
        millis(new.at),
        millis(new.expires_at),
        new.with_memory,
        new.peer.as_ref().map(GatewayId::as_str),
        new.announce,
    ])?;
    // A handoff's export is created as used: no bundle is kept.
    if new.bundle.is_empty() {
        return Ok(());
    }
    conn.prepare_cached("INSERT INTO bundles (export, expires_at, bundle) VALUES (?1, ?2, ?3)")?
        .execute(params![conn.last_insert_rowid(), millis(new.expires_at), new.bundle])?;
    Ok(())
}

pub(super) fn read(conn: &Connection, id: ExportId) -> Result<Option<(Export, Option<Vec<u8>>)>> {
    let Some((number, export)) = find(conn, id)? else { return Ok(None) };
    let bundle = conn
        .prepare_cached("SELECT bundle FROM bundles WHERE export = ?1")?
        .query_row([number], |row| row.get(0))
        .optional()?;
    Ok(Some((export, bundle)))
}

/// Whether the export can be imported at that time (G7).
pub(super) fn check_unused(conn: &Connection, id: ExportId, at: Timestamp) -> Result<()> {
    let (number, export) = find(conn, id)?.ok_or(Error::NoExport)?;
    if export.imported.is_some() {
        return Err(Error::Consumed);
    }
    let kept = conn.prepare_cached("SELECT 1 FROM bundles WHERE export = ?1")?.exists([number])?;
    match kept {
        true if federation::is_reserved(conn, id, at)? => Err(Error::Reserved),
        true => Ok(()),
        false => Err(Error::NoExport),
    }
}

/// Whether nobody had used it up before: then it is now (G7).
pub(super) fn use_up(
    conn: &Connection,
    id: ExportId,
    by: SessionId,
    at: Timestamp,
) -> Result<bool> {
    let sql = "UPDATE exports SET imported_at = ?2, imported_as = ?3
               WHERE id = ?1 AND imported_at IS NULL";
    let changed =
        conn.prepare_cached(sql)?.execute(params![id.as_bytes(), millis(at), by.as_bytes()])?;
    Ok(changed == 1)
}

/// The exports of a session, newest first; also of a deleted one.
pub(super) fn list(conn: &Connection, session: SessionId) -> Result<Vec<Export>> {
    let rest = "WHERE session_id = ?1 ORDER BY number DESC LIMIT ?2";
    let found = select(conn, rest, params![session.as_bytes(), MOST])?;
    Ok(found.into_iter().map(|(_, export)| export).collect())
}

/// Deletes the bundle of one export.
pub(super) fn drop_bundle(conn: &Connection, id: ExportId) -> Result<()> {
    let sql = "DELETE FROM bundles WHERE export = (SELECT number FROM exports WHERE id = ?1)";
    conn.prepare_cached(sql)?.execute([id.as_bytes()])?;
    Ok(())
}

/// The newest exports with that content id that have not expired, and whose bundle is there.
pub(super) fn with_cid(conn: &Connection, cid: &[u8; 32], at: Timestamp) -> Result<Vec<Export>> {
    let rest = "WHERE cid = ?1 AND expires_at > ?2
                AND EXISTS (SELECT 1 FROM bundles WHERE export = number) ORDER BY number DESC LIMIT 8";
    let found = select(conn, rest, params![cid, millis(at)])?;
    Ok(found.into_iter().map(|(_, export)| export).collect())
}

/// The newest exports of which trackers are told and that have not expired.
pub(super) fn announced(
    conn: &Connection,
    at: Timestamp,
    most: u32,
) -> Result<Vec<AnnouncedExport>> {
    let mut statement = conn.prepare_cached(
        "SELECT cid, expires_at, imported_at IS NULL
             AND EXISTS (SELECT 1 FROM bundles WHERE export = number)
             AND EXISTS (SELECT 1 FROM sessions WHERE id = session_id AND handed_to IS NULL)
         FROM exports WHERE announce = 1 AND expires_at > ?1 ORDER BY number DESC LIMIT ?2",
    )?;
    let mut rows = statement.query(params![millis(at), most])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(AnnouncedExport {
            cid: Cid::from_bytes(row.get(0)?),
            expires_at: rows::timestamp(row.get(1)?)?,
            is_open: row.get(2)?,
        });
    }
    Ok(found)
}

/// Deletes up to [`DROPPED_AT_ONCE`] bundles that expired before `before`; returns their number.
pub(super) fn drop_expired(conn: &Connection, before: Timestamp) -> Result<u64> {
    let dropped = conn
        .prepare_cached(
            "DELETE FROM bundles WHERE export IN (
                 SELECT export FROM bundles WHERE expires_at < ?1 LIMIT ?2)",
        )?
        .execute(params![millis(before), DROPPED_AT_ONCE as i64])?;
    Ok(dropped as u64)
}

pub(super) fn find(conn: &Connection, id: ExportId) -> Result<Option<(i64, Export)>> {
    Ok(select(conn, "WHERE id = ?1", [id.as_bytes()])?.pop())
}

fn select(
    conn: &Connection,
    rest: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<(i64, Export)>> {
    let sql = format!(
        "SELECT number, id, session_id, cid, label, messages, created_at, expires_at, imported_at,
         imported_as, with_memory, peer FROM exports {rest}"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((row.get(0)?, export_of(row)?));
    }
    Ok(found)
}

fn export_of(row: &Row<'_>) -> Result<Export> {
    let imported = match row.get::<_, Option<i64>>(8)? {
        None => None,
        Some(at) => Some((rows::timestamp(at)?, SessionId::from_bytes(row.get(9)?))),
    };
    Ok(Export {
        id: ExportId::from_bytes(row.get(1)?),
        session_id: SessionId::from_bytes(row.get(2)?),
        cid: row.get(3)?,
        label: row.get(4)?,
        message_count: row.get::<_, i64>(5)? as u64,
        with_memory: row.get(10)?,
        created_at: rows::timestamp(row.get(6)?)?,
        expires_at: rows::timestamp(row.get(7)?)?,
        imported,
        peer: federation::gateway_of(row.get(11)?)?,
    })
}
