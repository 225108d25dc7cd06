//! The signing keys of roaming tokens. A replaced key is kept for as long as the last token that it
//! signed may be valid, and then deleted.

use bowline_sbp::roaming_token::{LONGEST_TTL, SigningKey};
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::rows::millis;
use crate::Result;

pub(super) fn keys(conn: &Connection, fresh: [u8; 32], at: Timestamp) -> Result<Vec<SigningKey>> {
    let known = list(conn)?;
    if known.is_empty() { add(conn, fresh, at) } else { Ok(known) }
}

pub(super) fn add(conn: &Connection, fresh: [u8; 32], at: Timestamp) -> Result<Vec<SigningKey>> {
    // A key was replaced when the next one was created.
    conn.prepare_cached(
        "DELETE FROM signing_keys WHERE EXISTS (
             SELECT 1 FROM signing_keys n WHERE n.number > signing_keys.number AND n.created_at < ?1
         )",
    )?
    .execute([millis(at) - i64::from(LONGEST_TTL) * 1000])?;
    conn.prepare_cached("INSERT INTO signing_keys (secret, created_at) VALUES (?1, ?2)")?
        .execute(params![fresh, millis(at)])?;
    list(conn)
}

fn list(conn: &Connection) -> Result<Vec<SigningKey>> {
    let mut statement =
        conn.prepare_cached("SELECT number, secret FROM signing_keys ORDER BY number")?;
    let keys = statement.query_map([], |row| {
        Ok(SigningKey { id: row.get::<_, i64>(0)?.to_string(), secret: row.get(1)? })
    })?;
    Ok(keys.collect::<Result<_, _>>()?)
}
