//! Creates, finds and deletes sessions; idempotency keys.

use bowline_sbp::access::OWNER;
use bowline_sbp::id::SessionId;
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::TokenHash;
use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::rows::{self, Key, millis, select_sessions};
use super::{blobs, lineage, revision, trunks, users};
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
         (id, token_hash, token_listed, agent_id, status, metadata, created_at, updated_at, user)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)",
        )?
        .execute(params![
            new.id.as_bytes(),
            new.token_hash.0,
            new.listed,
            new.agent_id.as_str(),
            status.as_str(),
            new.metadata,
            millis(new.at),
            new.user.as_bytes(),
        ]);
    match inserted {
        Ok(_) => Ok(conn.last_insert_rowid()),
        // Session ids are random: a violated constraint means that the token exists.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(Error::TokenTaken)
        }
        Err(error) => Err(error.into()),
    }
}

/// Replaces a session's token. It contains its session's id, whatever the one before was: it needs no
/// index.
pub(super) fn replace_token(
    conn: &Connection,
    id: SessionId,
    before: u64,
    token: TokenHash,
    at: Timestamp,
) -> Result<bool> {
    let sql = "UPDATE sessions SET token_hash = ?3, token_number = ?2 + 1, token_at = ?4,
                   token_listed = 0
               WHERE id = ?1 AND token_number = ?2";
    let params = params![id.as_bytes(), before as i64, token.0, millis(at)];
    let replaced = conn.prepare_cached(sql)?.execute(params)? == 1;
    if replaced {
        revision::bump(conn)?;
    }
    Ok(replaced)
}

pub(super) fn list(conn: &Connection, page: &Page) -> Result<Vec<Session>> {
    let before = match page.before {
        None => i64::MAX,
        // Where another user's session is in the list is nobody else's business.
        Some(id) => match rows::session(conn, id)? {
            Some((key, session)) if users::sees(conn, key, session.user, page.user)? => key,
            _ => return Err(Error::NoSession),
        },
    };
    let status = page.status.map(Status::as_str);
    // Most sessions are the owner's: they are found in order. Those of others are few, by index.
    let sql = match page.user == OWNER {
        true => select_sessions!(
            "WHERE key < ?1 AND (?2 IS NULL OR status = ?2) AND (user = ?4 OR EXISTS
             (SELECT 1 FROM shares WHERE shares.session = key AND shares.user = ?4))
             ORDER BY key DESC LIMIT ?3"
        ),
        false => select_sessions!(
            "WHERE key IN (SELECT key FROM sessions WHERE user = ?4
                               AND user <> x'00000000000000000000000000000000'
                           UNION SELECT session FROM shares WHERE shares.user = ?4)
             AND key < ?1 AND (?2 IS NULL OR status = ?2) ORDER BY key DESC LIMIT ?3"
        ),
    };
    let found =
        rows::sessions(conn, sql, params![before, status, page.limit, page.user.as_bytes()])?;
    Ok(found.into_iter().map(|(_, session)| session).collect())
}

/// Deletes a session and everything in it; forks keep the log entries they share.
pub(super) fn forget(conn: &Connection, key: Key) -> Result<()> {
    for sql in [
        "DELETE FROM turns WHERE session = ?1",
        "DELETE FROM keys WHERE session = ?1",
        "DELETE FROM carried WHERE session = ?1",
        "DELETE FROM instructions WHERE session = ?1",
        "DELETE FROM surfaces WHERE session = ?1",
        "DELETE FROM attachments WHERE session = ?1",
        "DELETE FROM approvals WHERE session = ?1",
        "DELETE FROM grants WHERE session = ?1",
        "DELETE FROM shares WHERE session = ?1",
        "UPDATE exports SET label = NULL WHERE session_id = (SELECT id FROM sessions WHERE key = ?1)",
        "DELETE FROM bundles WHERE export IN (SELECT number FROM exports
         WHERE session_id = (SELECT id FROM sessions WHERE key = ?1))",
        "DELETE FROM forwards WHERE session_id = (SELECT id FROM sessions WHERE key = ?1)",
    ] {
        conn.prepare_cached(sql)?.execute([key])?;
    }
    blobs::release(conn, key)?;
    lineage::forget_words(conn, &rows::with_key(conn, key)?.id.to_string())?;
    trunks::leave(conn, key)
}

/// What is stored for an idempotency key.
pub(super) struct Known {
    pub(super) session: Key,
    pub(super) turn_id: Option<[u8; 16]>,
    pub(super) result: Option<String>,
}

/// What is stored for this idempotency key; an error if it was another request (G3).
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

/// The most rows deleted in one maintenance transaction: commits can run in between.
pub(super) const FORGOTTEN_AT_ONCE: u64 = 256;

/// The key of an unfinished turn is needed until the turn ends.
const FORGET_KEYS: &str = "
    DELETE FROM keys WHERE (scope, key) IN (
        SELECT scope, key FROM keys WHERE created_at < ?1
        AND (turn_id IS NULL OR NOT EXISTS (SELECT 1 FROM turns WHERE id = turn_id))
        ORDER BY created_at LIMIT ?2)";

/// So is an approval of an unfinished turn.
const FORGET_APPROVALS: &str = "
    DELETE FROM approvals WHERE number IN (
        SELECT number FROM approvals WHERE expires_at < ?1
        AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = approvals.turn_id)
        ORDER BY expires_at LIMIT ?2)";

/// Deletes up to [`FORGOTTEN_AT_ONCE`] keys older than `before`; returns how many.
pub(super) fn forget_keys(conn: &Connection, before: Timestamp) -> Result<u64> {
    forget_some(conn, FORGET_KEYS, before)
}

/// Deletes up to [`FORGOTTEN_AT_ONCE`] approvals that expired before `before`; returns how many.
pub(super) fn forget_approvals(conn: &Connection, before: Timestamp) -> Result<u64> {
    forget_some(conn, FORGET_APPROVALS, before)
}

fn forget_some(conn: &Connection, sql: &str, before: Timestamp) -> Result<u64> {
    let some = params![millis(before), FORGOTTEN_AT_ONCE as i64];
    Ok(conn.prepare_cached(sql)?.execute(some)? as u64)
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    fn database() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        schema::migrate(&mut conn, "db").unwrap();
        conn
    }

    /// The query plan of a statement.
    fn plan(conn: &Connection, sql: &str) -> Vec<String> {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map(params![0, 1], |row| row.get(3)).unwrap();
        steps.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn upkeep_finds_what_is_old_without_reading_the_rest() {
        let conn = database();
        for (sql, index) in
            [(FORGET_KEYS, "INDEX keys_created"), (FORGET_APPROVALS, "INDEX approvals_expiry")]
        {
            let plan = plan(&conn, sql);
            assert!(plan.iter().any(|step| step.contains(index)), "{plan:?}");
            let whole_table = |step: &&String| step.starts_with("SCAN");
            assert_eq!(plan.iter().find(whole_table), None, "{plan:?}");
        }
        // Without the index there is a table scan, and the test would find it.
        conn.execute_batch("DROP INDEX keys_created").unwrap();
        assert!(plan(&conn, FORGET_KEYS).iter().any(|step| step.starts_with("SCAN keys")));
    }

    #[test]
    fn upkeep_goes_in_steps() {
        let conn = database();
        conn.execute_batch(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
             INSERT INTO keys (scope, key, body_hash, session, created_at)
             SELECT 's', i, x'00', 1, i FROM n;
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
             INSERT INTO approvals (id, session, turn_id, seq, nth, tool, input, state,
                                    created_at, expires_at)
             SELECT CAST(i AS BLOB), 1, CAST(i AS BLOB), 1, 1, 't', '{}', 'used', i, i FROM n;",
        )
        .unwrap();
        let before = Timestamp::from_millisecond(601).unwrap();
        for forget in [forget_keys, forget_approvals] {
            let steps = [(); 4].map(|()| forget(&conn, before).unwrap());
            assert_eq!(steps, [256, 256, 88, 0]);
        }
    }
}
