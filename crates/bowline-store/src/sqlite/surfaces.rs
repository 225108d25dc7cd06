//! Devices that a session knows by name.

use bowline_sbp::surface::SurfaceContext;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Key, millis};
use crate::{KnownSurface, Result};

/// The most devices that a session remembers; those not seen for longest go first.
const MOST: u32 = 64;

/// Recognises a device: gives what it says, with what it said before where it says nothing now.
pub(super) fn meet(
    conn: &Connection,
    key: Key,
    said: &SurfaceContext,
    at: Timestamp,
) -> Result<SurfaceContext> {
    let Some(name) = &said.surface_id else { return Ok(said.clone()) };
    let before: Option<String> = conn
        .prepare_cached("SELECT context FROM surfaces WHERE session = ?1 AND surface_id = ?2")?
        .query_row(params![key, name], |row| row.get(0))
        .optional()?;
    let before = before.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let context = said.clone().or(before);
    let text =
        serde_json::to_string(&context).map_err(|_| rows::corrupt("a surface that is not JSON"))?;
    conn.prepare_cached(
        "INSERT INTO surfaces (session, surface_id, context, first_seen, last_seen)
         VALUES (?1, ?2, ?3, ?4, ?4)
         ON CONFLICT (session, surface_id) DO UPDATE SET context = ?3, last_seen = ?4",
    )?
    .execute(params![key, name, text, millis(at)])?;
    conn.prepare_cached(
        "DELETE FROM surfaces WHERE session = ?1 AND surface_id IN (SELECT surface_id FROM surfaces
         WHERE session = ?1 ORDER BY last_seen DESC LIMIT -1 OFFSET ?2)",
    )?
    .execute(params![key, MOST])?;
    Ok(context)
}

pub(super) fn list(conn: &Connection, key: Key) -> Result<Vec<KnownSurface>> {
    let mut statement = conn.prepare_cached(
        "SELECT context, first_seen, last_seen FROM surfaces WHERE session = ?1
         ORDER BY last_seen DESC, surface_id",
    )?;
    let mut rows = statement.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let context = serde_json::from_str(row.get_ref(0)?.as_str().unwrap_or_default());
        found.push(KnownSurface {
            context: context.map_err(|_| rows::corrupt("a surface that is not JSON"))?,
            first_seen: rows::timestamp(row.get(1)?)?,
            last_seen: rows::timestamp(row.get(2)?)?,
        });
    }
    Ok(found)
}

pub(super) fn forget(conn: &Connection, key: Key, surface_id: &str) -> Result<bool> {
    let forgotten = conn
        .prepare_cached("DELETE FROM surfaces WHERE session = ?1 AND surface_id = ?2")?
        .execute(params![key, surface_id])?;
    Ok(forgotten > 0)
}
