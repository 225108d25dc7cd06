//! Making, finding, changing and forgetting sessions.

use bowline_sbp::id::SessionId;
use bowline_sbp::lifecycle::{Change, Status};
use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::rows::{self, Key, millis, select_sessions};
use super::{lineage, trunks};
use crate::{Created, Error, IdempotencyKey, NewSession, Page, Result, Session};

pub(super) fn create(
    conn: &Connection,
    new: &NewSession,
    key: Option<&IdempotencyKey>,
) -> Result<Created> {
    if let Some(known) = key.map(|key| known_key(conn, key)).transpose()?.flatten() {
        let session = rows::with_key(conn, known.session)?;
        return Ok(Created { session, replayed: true });
    }
    let row = insert(conn, new, Status::Idle)?;
    if let Some(key) = key {
        let known = Known { session: row, turn_id: None, result: None };
        remember_key(conn, key, &known, new.at)?;
    }
    Ok(Created { session: Session::made(new, Status::Idle), replayed: false })
}

pub(super) fn insert(conn: &Connection, new: &NewSession, status: Status) -> Result<Key> {
    let inserted = conn
        .prepare_cached(
            "INSERT INTO sessions
         (id, token_hash, token_listed, agent_id, status, metadata, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
        )?
        .execute(params![
            new.id.as_bytes(),
            new.token_hash.0,
            new.listed,
            new.agent_id.as_str(),
            status.as_str(),
            new.metadata,
            millis(new.at),
        ]);
    match inserted {
        Ok(_) => Ok(conn.last_insert_rowid()),
        // Ids are made by us and never repeat; what can be there already is the token.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(Error::TokenTaken)
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn list(conn: &Connection, page: &Page) -> Result<Vec<Session>> {
    let before = match page.before {
        None => i64::MAX,
        Some(id) => rows::key_of(conn, id)?.ok_or(Error::NoSession)?,
    };
    let status = page.status.map(Status::as_str);
    let found = rows::sessions(
        conn,
        select_sessions!(
            "WHERE key < ?1 AND (?2 IS NULL OR status = ?2) ORDER BY key DESC LIMIT ?3"
        ),
        params![before, status, page.limit],
    )?;
    Ok(found.into_iter().map(|(_, session)| session).collect())
}

pub(super) fn change_status(
    conn: &Connection,
    id: SessionId,
    change: Change,
    at: Timestamp,
) -> Result<Session> {
    let (key, mut session) = rows::existing(conn, id)?;
    session.status = session.status.after(change)?;
    session.updated_at = at;
    if let (Status::Running, Some(successor)) = (session.status, session.handed_to) {
        return Err(Error::HandedOver(successor));
    }
    set_status(conn, key, session.status, at)?;
    Ok(session)
}

pub(super) fn set_status(conn: &Connection, key: Key, status: Status, at: Timestamp) -> Result<()> {
    conn.prepare_cached("UPDATE sessions SET status = ?2, updated_at = ?3 WHERE key = ?1")?
        .execute(params![key, status.as_str(), millis(at)])?;
    Ok(())
}

pub(super) fn delete(conn: &Connection, id: SessionId) -> Result<bool> {
    let Some(key) = rows::key_of(conn, id)? else { return Ok(false) };
    forget(conn, key)?;
    Ok(true)
}

pub(super) fn forget(conn: &Connection, key: Key) -> Result<()> {
    for sql in [
        "DELETE FROM turns WHERE session = ?1",
        "DELETE FROM keys WHERE session = ?1",
        "DELETE FROM carried WHERE session = ?1",
        "DELETE FROM surfaces WHERE session = ?1",
        "DELETE FROM approvals WHERE session = ?1",
        "UPDATE exports SET label = NULL WHERE session_id = (SELECT id FROM sessions WHERE key = ?1)",
        "DELETE FROM bundles WHERE export IN (SELECT number FROM exports
         WHERE session_id = (SELECT id FROM sessions WHERE key = ?1))",
    ] {
        conn.prepare_cached(sql)?.execute([key])?;
    }
    lineage::forget_words(conn, &rows::with_key(conn, key)?.id.to_string())?;
    trunks::leave(conn, key)
}

/// What an idempotency key stands for.
pub(super) struct Known {
    pub(super) session: Key,
    pub(super) turn_id: Option<[u8; 16]>,
    pub(super) result: Option<String>,
}

/// What came under this key before; an error if it was another request (G3).
pub(super) fn known_key(conn: &Connection, key: &IdempotencyKey) -> Result<Option<Known>> {
    let mut statement = conn.prepare_cached(
        "SELECT body_hash, session, turn_id, result FROM keys WHERE scope = ?1 AND key = ?2",
    )?;
    let found = statement
        .query_row([&key.scope, &key.key], |row| {
            let known = Known { session: row.get(1)?, turn_id: row.get(2)?, result: row.get(3)? };
            Ok((row.get::<_, [u8; 32]>(0)?, known))
        })
        .optional()?;
    match found {
        Some((hash, _)) if hash != key.body_hash => Err(Error::KeyReused),
        Some((_, known)) => Ok(Some(known)),
        None => Ok(None),
    }
}

pub(super) fn remember_key(
    conn: &Connection,
    key: &IdempotencyKey,
    known: &Known,
    at: Timestamp,
) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO keys (scope, key, body_hash, session, turn_id, result, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        key.scope,
        key.key,
        key.body_hash,
        known.session,
        known.turn_id,
        known.result,
        millis(at),
    ])?;
    Ok(())
}

pub(super) fn forget_keys(conn: &Connection, before: Timestamp) -> Result<u64> {
    // A key of a turn that still runs is needed until it ends.
    let forgotten = conn
        .prepare_cached(
            "DELETE FROM keys WHERE created_at < ?1
             AND (turn_id IS NULL OR turn_id NOT IN (SELECT id FROM turns))",
        )?
        .execute([millis(before)])?;
    Ok(forgotten as u64)
}
