//! Codes that wait for a device, and how often they were tried.

use bowline_sbp::id::UserId;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::rows::{corrupt, millis, timestamp};
use super::{revision, users};
use crate::{OfferUsed, PairingOffer, PairingRate, Result, UserKey};

/// Has an offer wait, if fewer than `most` do.
pub(super) fn offer(
    conn: &Connection,
    offer: &PairingOffer,
    most: u32,
    at: Timestamp,
) -> Result<bool> {
    conn.prepare_cached("DELETE FROM pairing_codes WHERE expires_at <= ?1")?
        .execute([millis(at)])?;
    let added = conn
        .prepare_cached(
            "INSERT INTO pairing_codes (id, user, scopes, expires_at)
             SELECT ?1, ?2, ?3, ?4 WHERE (SELECT count(*) FROM pairing_codes) < ?5",
        )?
        .execute(params![
            offer.id.as_bytes(),
            offer.user.as_bytes(),
            offer.scopes.to_string(),
            millis(offer.expires_at),
            most,
        ])?;
    if added == 1 {
        revision::bump(conn)?;
    }
    Ok(added == 1)
}

/// The offers that wait, the oldest first.
pub(super) fn waiting(conn: &Connection, at: Timestamp) -> Result<Vec<PairingOffer>> {
    let mut statement = conn.prepare_cached(
        "SELECT id, user, scopes, expires_at FROM pairing_codes WHERE expires_at > ?1
         ORDER BY expires_at, id",
    )?;
    let mut rows = statement.query([millis(at)])?;
    let mut waiting = Vec::new();
    while let Some(row) = rows.next()? {
        let scopes: String = row.get(2)?;
        waiting.push(PairingOffer {
            id: Uuid::from_bytes(row.get(0)?),
            user: UserId::from_bytes(row.get(1)?),
            scopes: scopes.parse().map_err(|_| corrupt("the scopes of a pairing code"))?,
            expires_at: timestamp(row.get(3)?)?,
        });
    }
    Ok(waiting)
}

/// Counts a try, if it may be made.
pub(super) fn may_try(conn: &Connection, rate: PairingRate, at: Timestamp) -> Result<bool> {
    let (every, all) = rate.millis();
    // A clock that was set back by much must not stop it for long.
    let tried = conn
        .prepare_cached(
            "UPDATE pairing_tries
             SET used_until = ?2 + CASE WHEN used_until > ?1 + 2 * ?3 THEN ?1
                                        ELSE max(used_until, ?1) END
             WHERE used_until <= ?1 + ?3 - ?2 OR used_until > ?1 + 2 * ?3",
        )?
        .execute([millis(at), every, all])?;
    Ok(tried == 1)
}

/// Uses an offer up, and stores the key of the device.
pub(super) fn pair(
    conn: &Connection,
    offer: Uuid,
    key: &UserKey,
    at: Timestamp,
) -> Result<OfferUsed> {
    let used = conn
        .prepare_cached("DELETE FROM pairing_codes WHERE id = ?1 AND expires_at > ?2")?
        .execute(params![offer.as_bytes(), millis(at)])?;
    if used == 0 {
        return Ok(OfferUsed::Gone);
    }
    Ok(OfferUsed::Paired { replaced: users::add_key(conn, key)? })
}
