//! Devices that a session knows by name.

use std::borrow::Cow;

use bowline_sbp::id::SessionId;
use bowline_sbp::surface::SurfaceContext;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Key, millis};
use super::tether;
use crate::{Attach, Error, Forgotten, KnownSurface, NewDeviceToken, Result, Session, TokenHash};

/// The most devices that a session remembers; those not seen for longest go first. Devices with a
/// token of their own stay, and there are as many of them at most.
const MOST: u32 = 64;

/// What a surface says of itself, and until when it may stay. One that comes with a device's token is
/// that device, whatever it says, and the token must be good still.
pub(super) fn admit<'a>(
    conn: &Connection,
    key: Key,
    attach: &'a Attach,
) -> Result<(Cow<'a, SurfaceContext>, Option<Timestamp>)> {
    let Some(token) = attach.device else { return Ok((Cow::Borrowed(&attach.surface), None)) };
    let (device, until) = with_token(conn, key, token, attach.at)?.ok_or(Error::Revoked)?;
    let surface = attach.surface.clone();
    let surface = SurfaceContext { surface_id: Some(device), ..surface };
    Ok((Cow::Owned(surface), Some(until)))
}

pub(super) fn with_token(
    conn: &Connection,
    key: Key,
    token: TokenHash,
    at: Timestamp,
) -> Result<Option<(String, Timestamp)>> {
    let mut statement = conn.prepare_cached(
        "SELECT surface_id, token_expires_at FROM surfaces
         WHERE session = ?1 AND token_hash = ?2 AND token_expires_at > ?3",
    )?;
    let mut found = statement.query(params![key, token.0, millis(at)])?;
    let Some(row) = found.next()? else { return Ok(None) };
    Ok(Some((row.get(0)?, rows::timestamp(row.get(1)?)?)))
}

/// Whoever is attached by the device's earlier token is cut off: it is good no more.
pub(super) fn add_token(conn: &Connection, token: &NewDeviceToken) -> Result<Forgotten> {
    let (key, session) = rows::existing(conn, token.session_id)?;
    // Devices that never came before their token was over take no place.
    conn.prepare_cached(
        "DELETE FROM surfaces WHERE session = ?1 AND last_seen = 0 AND token_expires_at <= ?2",
    )?
    .execute(params![key, millis(token.at)])?;
    let had_token: bool = conn
        .prepare_cached(
            "SELECT token_hash IS NOT NULL FROM surfaces WHERE session = ?1 AND surface_id = ?2",
        )?
        .query_row(params![key, token.surface_id], |row| row.get(0))
        .optional()?
        .unwrap_or(false);
    let others: u32 = conn
        .prepare_cached(
            "SELECT count(*) FROM surfaces WHERE session = ?1 AND surface_id <> ?2
             AND token_expires_at > ?3",
        )?
        .query_row(params![key, token.surface_id, millis(token.at)], |row| row.get(0))?;
    if others >= MOST {
        return Err(Error::TooManyDevices(MOST));
    }
    let context =
        SurfaceContext { surface_id: Some(token.surface_id.clone()), ..SurfaceContext::default() };
    let context =
        serde_json::to_string(&context).map_err(|_| rows::corrupt("a surface that is not JSON"))?;
    conn.prepare_cached(
        "INSERT INTO surfaces (session, surface_id, context, first_seen, last_seen, token_hash,
                               token_expires_at)
         VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6)
         ON CONFLICT (session, surface_id) DO UPDATE SET token_hash = ?5, token_expires_at = ?6",
    )?
    .execute(params![
        key,
        token.surface_id,
        context,
        millis(token.at),
        token.hash.0,
        millis(token.expires_at),
    ])?;
    match had_token {
        true => cut_off(conn, key, session, &token.surface_id, token.at),
        false => Ok(Forgotten::Gone),
    }
}

/// Ends the attachment of a device, if it is the one that is attached.
fn cut_off(
    conn: &Connection,
    key: Key,
    session: Session,
    surface_id: &str,
    at: Timestamp,
) -> Result<Forgotten> {
    let here = session.surface.and_then(|surface| surface.surface_id);
    if here.as_deref() != Some(surface_id) {
        return Ok(Forgotten::Gone);
    }
    tether::release(conn, key, session.status, at)?;
    let epoch = session.attach_epoch + 1;
    conn.prepare_cached("UPDATE sessions SET attach_epoch = ?2 WHERE key = ?1")?
        .execute(params![key, epoch as i64])?;
    Ok(Forgotten::CutOff { epoch })
}

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
         WHERE session = ?1 AND coalesce(token_expires_at, 0) <= ?3
         ORDER BY last_seen DESC LIMIT -1 OFFSET ?2)",
    )?
    .execute(params![key, MOST, millis(at)])?;
    Ok(context)
}

pub(super) fn list(conn: &Connection, key: Key) -> Result<Vec<KnownSurface>> {
    let mut statement = conn.prepare_cached(
        "SELECT context, first_seen, last_seen, token_expires_at FROM surfaces WHERE session = ?1
         ORDER BY last_seen DESC, surface_id",
    )?;
    let mut rows = statement.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let context = serde_json::from_str(row.get_ref(0)?.as_str().unwrap_or_default());
        found.push(KnownSurface {
            context: context.map_err(|_| rows::corrupt("a surface that is not JSON"))?,
            first_seen: rows::timestamp(row.get(1)?)?,
            last_seen: match row.get(2)? {
                0 => None,
                seen => Some(rows::timestamp(seen)?),
            },
            token_expires_at: row.get::<_, Option<i64>>(3)?.map(rows::timestamp).transpose()?,
        });
    }
    Ok(found)
}

/// Forgets a device. An attachment that its own token opened ends with the token.
pub(super) fn forget(
    conn: &Connection,
    id: SessionId,
    surface_id: &str,
    at: Timestamp,
) -> Result<Forgotten> {
    let (key, session) = rows::existing(conn, id)?;
    let forgotten: Option<bool> = conn
        .prepare_cached(
            "DELETE FROM surfaces WHERE session = ?1 AND surface_id = ?2
             RETURNING token_hash IS NOT NULL",
        )?
        .query_row(params![key, surface_id], |row| row.get(0))
        .optional()?;
    match forgotten {
        None => Ok(Forgotten::Unknown),
        Some(false) => Ok(Forgotten::Gone),
        Some(true) => cut_off(conn, key, session, surface_id, at),
    }
}
