//! Secrets of the installation, as bytes, and the signing keys of roaming tokens among them. A replaced
//! signing key is kept for as long as the last token that it signed may be valid, and then deleted.

use bowline_sbp::roaming_token::LONGEST_TTL;
use jiff::Timestamp;

use super::Postgres;
use super::error::Attempt;
use super::pool::Connection;
use super::revision;
use super::rows::millis;
use crate::{Result, Secrets, StoredSecret};

#[async_trait::async_trait]
impl Secrets for Postgres {
    async fn secret(&self, name: &'static str, fresh: Vec<u8>) -> Result<Vec<u8>> {
        let fresh = &fresh;
        self.pool.write(move |tx| async move { named(&tx, name, fresh).await }).await
    }

    async fn signing_keys(&self, fresh: Vec<u8>, at: Timestamp) -> Result<Vec<StoredSecret>> {
        let fresh = &fresh;
        self.pool.write(move |tx| async move { signing_keys(&tx, fresh, at).await }).await
    }

    async fn add_signing_key(&self, fresh: Vec<u8>, at: Timestamp) -> Result<Vec<StoredSecret>> {
        let fresh = &fresh;
        self.pool.write(move |tx| async move { add_signing_key(&tx, fresh, at).await }).await
    }

    async fn all_secrets(&self) -> Result<Vec<StoredSecret>> {
        self.pool.snapshot(move |db| async move { all(&db).await }).await
    }

    async fn replace_secrets(&self, all: Vec<StoredSecret>) -> Result<()> {
        let all = &all;
        self.pool.write(move |tx| async move { replace(&tx, all).await }).await
    }

    async fn swap_secret(
        &self,
        name: &'static str,
        before: Vec<u8>,
        after: Vec<(&'static str, Vec<u8>)>,
    ) -> Result<bool> {
        let (before, after) = (&before, &after);
        self.pool.write(move |tx| async move { swap(&tx, name, before, after).await }).await
    }
}

/// The secret of that name; `fresh`, if there is none yet. Of several replicas that start together
/// one stores it, and all get that one.
async fn named(tx: &Connection, name: &str, fresh: &[u8]) -> Attempt<Vec<u8>> {
    let sql = "INSERT INTO secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    tx.execute(sql, &[&name, &fresh]).await?;
    let row = tx.query_one("SELECT secret FROM secrets WHERE name = $1", &[&name]).await?;
    Ok(row.try_get(0)?)
}

async fn signing_keys(tx: &Connection, fresh: &[u8], at: Timestamp) -> Attempt<Vec<StoredSecret>> {
    let known = list(tx).await?;
    if !known.is_empty() {
        return Ok(known);
    }
    lock(tx).await?;
    let known = list(tx).await?;
    if known.is_empty() { add(tx, fresh, at).await } else { Ok(known) }
}

async fn add_signing_key(
    tx: &Connection,
    fresh: &[u8],
    at: Timestamp,
) -> Attempt<Vec<StoredSecret>> {
    lock(tx).await?;
    revision::bump(tx).await?;
    add(tx, fresh, at).await
}

/// One transaction at a time adds a key. Others read meanwhile.
async fn lock(tx: &Connection) -> Attempt<()> {
    tx.execute("LOCK TABLE signing_keys IN SHARE ROW EXCLUSIVE MODE", &[]).await?;
    Ok(())
}

async fn add(tx: &Connection, fresh: &[u8], at: Timestamp) -> Attempt<Vec<StoredSecret>> {
    // A key was replaced when the next one was created.
    tx.execute(
        "DELETE FROM signing_keys k WHERE EXISTS (
             SELECT 1 FROM signing_keys n WHERE n.number > k.number AND n.created_at < $1)",
        &[&(millis(at) - i64::from(LONGEST_TTL) * 1000)],
    )
    .await?;
    let sql = "INSERT INTO signing_keys (secret, created_at) VALUES ($1, $2)";
    tx.execute(sql, &[&fresh, &millis(at)]).await?;
    list(tx).await
}

async fn list(db: &Connection) -> Attempt<Vec<StoredSecret>> {
    let sql = "SELECT number, secret FROM signing_keys ORDER BY number";
    let mut keys = Vec::new();
    for row in db.query(sql, &[]).await? {
        let name = row.try_get::<_, i64>(0)?.to_string();
        keys.push(StoredSecret { name, is_signing_key: true, bytes: row.try_get(1)? });
    }
    Ok(keys)
}

async fn all(db: &Connection) -> Attempt<Vec<StoredSecret>> {
    // The probe is written by readiness checks, and no secret.
    let sql = "SELECT name, secret FROM secrets WHERE name <> 'probe' ORDER BY name COLLATE \"C\"";
    let mut all = Vec::new();
    for row in db.query(sql, &[]).await? {
        let (name, bytes) = (row.try_get(0)?, row.try_get(1)?);
        all.push(StoredSecret { name, is_signing_key: false, bytes });
    }
    all.extend(list(db).await?);
    Ok(all)
}

async fn replace(tx: &Connection, all: &[StoredSecret]) -> Attempt<()> {
    for StoredSecret { name, is_signing_key, bytes } in all {
        let sql = match is_signing_key {
            true => "UPDATE signing_keys SET secret = $2 WHERE number::text = $1",
            false => "UPDATE secrets SET secret = $2 WHERE name = $1",
        };
        tx.execute(sql, &[name, bytes]).await?;
    }
    revision::bump(tx).await
}

async fn swap(
    tx: &Connection,
    name: &str,
    before: &[u8],
    after: &[(&str, Vec<u8>)],
) -> Attempt<bool> {
    // Of several that have read the same one, the lock lets one through at a time.
    let sql = "SELECT secret FROM secrets WHERE name = $1 FOR UPDATE";
    let found = tx.query_opt(sql, &[&name]).await?;
    let found: Option<Vec<u8>> = found.map(|row| row.try_get(0)).transpose()?;
    if found.as_deref() != Some(before) {
        return Ok(false);
    }
    let sql = "INSERT INTO secrets (name, secret) VALUES ($1, $2)
               ON CONFLICT (name) DO UPDATE SET secret = excluded.secret";
    for (name, bytes) in after {
        tx.execute(sql, &[name, bytes]).await?;
    }
    revision::bump(tx).await?;
    Ok(true)
}

/// Writes, as a readiness check: a database that only reads would answer everything else.
pub(super) async fn probe(db: &Connection, random: &[u8]) -> Attempt<()> {
    let sql = "INSERT INTO secrets (name, secret) VALUES ('probe', $1)
               ON CONFLICT (name) DO UPDATE SET secret = excluded.secret";
    db.execute(sql, &[&random]).await?;
    Ok(())
}
