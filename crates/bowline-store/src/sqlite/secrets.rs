//! Secrets of the installation, as bytes, and the signing keys of roaming tokens among them. A replaced
//! signing key is kept for as long as the last token that it signed may be valid, and then deleted.

use bowline_sbp::roaming_token::LONGEST_TTL;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::revision;
use super::rows::millis;
use crate::{Result, StoredSecret};

/// The secret of that name; `fresh`, if there is none yet.
pub(super) fn named(conn: &Connection, name: &str, fresh: &[u8]) -> Result<Vec<u8>> {
    let mut find = conn.prepare_cached("SELECT secret FROM secrets WHERE name = ?1")?;
    if let Some(secret) = find.query_row([name], |row| row.get(0)).optional()? {
        return Ok(secret);
    }
    conn.prepare_cached("INSERT INTO secrets (name, secret) VALUES (?1, ?2)")?
        .execute(params![name, fresh])?;
    Ok(fresh.to_owned())
}

pub(super) fn signing_keys(
    conn: &Connection,
    fresh: &[u8],
    at: Timestamp,
) -> Result<Vec<StoredSecret>> {
    let known = list(conn)?;
    if known.is_empty() { add_signing_key(conn, fresh, at) } else { Ok(known) }
}

pub(super) fn add_signing_key(
    conn: &Connection,
    fresh: &[u8],
    at: Timestamp,
) -> Result<Vec<StoredSecret>> {
    // A key was replaced when the next one was created.
    conn.prepare_cached(
        "DELETE FROM signing_keys WHERE EXISTS (
             SELECT 1 FROM signing_keys n WHERE n.number > signing_keys.number AND n.created_at < ?1
         )",
    )?
    .execute([millis(at) - i64::from(LONGEST_TTL) * 1000])?;
    conn.prepare_cached("INSERT INTO signing_keys (secret, created_at) VALUES (?1, ?2)")?
        .execute(params![fresh, millis(at)])?;
    revision::bump(conn)?;
    list(conn)
}

fn list(conn: &Connection) -> Result<Vec<StoredSecret>> {
    let mut statement =
        conn.prepare_cached("SELECT number, secret FROM signing_keys ORDER BY number")?;
    let keys = statement.query_map([], |row| {
        let number: i64 = row.get(0)?;
        Ok(StoredSecret { name: number.to_string(), is_signing_key: true, bytes: row.get(1)? })
    })?;
    Ok(keys.collect::<Result<_, _>>()?)
}

pub(super) fn all(conn: &Connection) -> Result<Vec<StoredSecret>> {
    // The probe is written by readiness checks, and no secret.
    let sql = "SELECT name, secret FROM secrets WHERE name <> 'probe'";
    let mut statement = conn.prepare_cached(sql)?;
    let named = statement.query_map([], |row| {
        Ok(StoredSecret { name: row.get(0)?, is_signing_key: false, bytes: row.get(1)? })
    })?;
    let mut all: Vec<_> = named.collect::<Result<_, _>>()?;
    all.extend(list(conn)?);
    Ok(all)
}

pub(super) fn replace(conn: &Connection, all: &[StoredSecret]) -> Result<()> {
    for StoredSecret { name, is_signing_key, bytes } in all {
        let sql = match is_signing_key {
            true => "UPDATE signing_keys SET secret = ?2 WHERE number = CAST(?1 AS INTEGER)",
            false => "UPDATE secrets SET secret = ?2 WHERE name = ?1",
        };
        conn.prepare_cached(sql)?.execute(params![name, bytes])?;
    }
    revision::bump(conn)
}

pub(super) fn swap(
    conn: &Connection,
    name: &str,
    before: &[u8],
    after: &[(&str, Vec<u8>)],
) -> Result<bool> {
    let mut find = conn.prepare_cached("SELECT secret FROM secrets WHERE name = ?1")?;
    let found: Option<Vec<u8>> = find.query_row([name], |row| row.get(0)).optional()?;
    if found.as_deref() != Some(before) {
        return Ok(false);
    }
    let sql = "INSERT INTO secrets (name, secret) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET secret = excluded.secret";
    let mut put = conn.prepare_cached(sql)?;
    for (name, bytes) in after {
        put.execute(params![name, bytes])?;
    }
    revision::bump(conn)?;
    Ok(true)
}
