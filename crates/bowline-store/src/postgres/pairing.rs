//! Codes that wait for a device, and how often they were tried.
//!
//! The row of the tries is locked by whoever adds a code: so they can be counted.

use std::sync::Arc;

use bowline_sbp::id::UserId;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::Connection;
use super::rows::{self, millis};
use super::{Postgres, revision, users};
use crate::{OfferUsed, PairingOffer, PairingRate, Pairings, Result, UserKey};

#[async_trait::async_trait]
impl Pairings for Postgres {
    async fn offer_pairing(&self, offer: PairingOffer, most: u32, at: Timestamp) -> Result<bool> {
        let offer = &offer;
        self.pool.write(move |tx| async move { add(&tx, offer, most, at).await }).await
    }

    async fn pairing_offers(&self, at: Timestamp) -> Result<Vec<PairingOffer>> {
        let sql = "SELECT id, user_id, scopes, expires_at FROM pairing_codes WHERE expires_at > $1
                   ORDER BY expires_at, id";
        let read = move |db: Arc<Connection>| async move {
            db.query(sql, &[&millis(at)]).await?.iter().map(offer_of).collect()
        };
        self.pool.read(read).await
    }

    async fn may_try_pairing(&self, rate: PairingRate, at: Timestamp) -> Result<bool> {
        let (every, all) = rate.millis();
        // A clock that was set back by much must not stop it for long.
        let sql = "UPDATE pairing_tries
                   SET used_until = $2::bigint
                       + CASE WHEN used_until > $1::bigint + 2 * $3::bigint THEN $1::bigint
                              ELSE greatest(used_until, $1::bigint) END
                   WHERE used_until <= $1::bigint + $3::bigint - $2::bigint
                      OR used_until > $1::bigint + 2 * $3::bigint";
        let tried = move |tx: Arc<Connection>| async move {
            Ok(tx.execute(sql, &[&millis(at), &every, &all]).await? == 1)
        };
        self.pool.write(tried).await
    }

    async fn use_offer(&self, offer: Uuid, key: UserKey, at: Timestamp) -> Result<OfferUsed> {
        let key = &key;
        self.pool.write(move |tx| async move { pair(&tx, offer, key, at).await }).await
    }
}

async fn add(tx: &Connection, offer: &PairingOffer, most: u32, at: Timestamp) -> Attempt<bool> {
    tx.query("SELECT 1 FROM pairing_tries FOR UPDATE", &[]).await?;
    tx.execute("DELETE FROM pairing_codes WHERE expires_at <= $1", &[&millis(at)]).await?;
    let added = tx
        .execute(
            "INSERT INTO pairing_codes (id, user_id, scopes, expires_at)
             SELECT $1::uuid, $2::uuid, $3::text, $4::bigint
             WHERE (SELECT count(*) FROM pairing_codes) < $5::bigint",
            &[
                &offer.id,
                &offer.user.0,
                &offer.scopes.to_string(),
                &millis(offer.expires_at),
                &i64::from(most),
            ],
        )
        .await?;
    if added == 1 {
        revision::bump(tx).await?;
    }
    Ok(added == 1)
}

async fn pair(tx: &Connection, offer: Uuid, key: &UserKey, at: Timestamp) -> Attempt<OfferUsed> {
    // Of several devices, the others wait here until the first one's transaction has ended.
    let sql = "DELETE FROM pairing_codes WHERE id = $1 AND expires_at > $2";
    if tx.execute(sql, &[&offer, &millis(at)]).await? == 0 {
        return Ok(OfferUsed::Gone);
    }
    Ok(OfferUsed::Paired { replaced: users::add_key(tx, key).await? })
}

fn offer_of(row: &Row) -> Attempt<PairingOffer> {
    Ok(PairingOffer {
        id: rows::column(row, "id")?,
        user: UserId(rows::column(row, "user_id")?),
        scopes: rows::parsed(row, "scopes", "the scopes of a pairing code")?,
        expires_at: rows::time(row, "expires_at")?,
    })
}
