//! The schema and its migrations: forward only, in one transaction.

use rusqlite::Connection;

use super::titles;
use crate::OpenError;

/// Marks the file as ours ("bowl"), so that a foreign database is not touched.
const APPLICATION_ID: i64 = 0x626f_776c;

/// Each element brings the schema from its index to the next version.
const MIGRATIONS: [&str; 19] = [
    include_str!("schema/first.sql"),
    include_str!("schema/travel.sql"),
    include_str!("schema/devices.sql"),
    include_str!("schema/owners.sql"),
    include_str!("schema/erased.sql"),
    include_str!("schema/names.sql"),
    include_str!("schema/callers.sql"),
    include_str!("schema/blobs.sql"),
    include_str!("schema/users.sql"),
    include_str!("schema/tokens.sql"),
    include_str!("schema/permissions.sql"),
    include_str!("schema/with_memory.sql"),
    include_str!("schema/budgets.sql"),
    include_str!("schema/paired.sql"),
    include_str!("schema/replicas.sql"),
    include_str!("schema/pairing.sql"),
    include_str!("schema/federation.sql"),
    include_str!("schema/announced.sql"),
    include_str!("schema/open_calls.sql"),
];
/// The first version whose sessions have titles.
const TITLED: u32 = 6;

/// The schema version that this version writes.
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Migrates the database to the current schema; an error if it is newer or not ours.
pub(super) fn migrate(conn: &mut Connection, path: &str) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| OpenError::Database(error.to_string());
    let found = version(conn, path)?;
    if found == VERSION {
        return Ok(());
    }
    let tx = conn.transaction().map_err(failed)?;
    for step in &MIGRATIONS[found as usize..] {
        tx.execute_batch(step).map_err(failed)?;
    }
    if found < TITLED {
        titles::give_to_all(&tx).map_err(|error| OpenError::Database(error.to_string()))?;
    }
    tx.pragma_update(None, "user_version", VERSION).map_err(failed)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    tx.commit().map_err(failed)
}

/// The schema version of the database, 0 if it is empty; an error if it is newer or not ours.
pub(crate) fn version(conn: &Connection, path: &str) -> Result<u32, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::Database(error.to_string());
    let pragma = |name: &str| -> Result<i64, OpenError> {
        conn.pragma_query_value(None, name, |row| row.get(0)).map_err(failed)
    };
    let found = u32::try_from(pragma("user_version")?).unwrap_or(u32::MAX);
    let application = pragma("application_id")?;
    let empty: bool = conn
        .query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    if !empty && application != APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    if found > VERSION {
        return Err(OpenError::NewerSchema { found, known: VERSION });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version before this migration.
    fn before(step: &str) -> usize {
        MIGRATIONS.iter().position(|known| *known == step).unwrap()
    }

    #[test]
    fn g13_a_newer_schema_is_refused() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, "db").unwrap();
        conn.pragma_update(None, "user_version", VERSION + 1).unwrap();
        assert!(matches!(
            migrate(&mut conn, "db"),
            Err(OpenError::NewerSchema { found, known }) if found == VERSION + 1 && known == VERSION
        ));
    }

    #[test]
    fn a_foreign_database_is_left_alone() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert!(matches!(migrate(&mut conn, "db"), Err(OpenError::Foreign { .. })));
    }

    #[test]
    fn migrating_twice_changes_nothing() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, "db").unwrap();
        migrate(&mut conn, "db").unwrap();
    }

    #[test]
    fn g16_sessions_of_the_first_schema_are_all_there_and_found_by_their_tokens() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(MIGRATIONS[0]).unwrap();
        conn.pragma_update(None, "user_version", 1).unwrap();
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        conn.execute_batch(
            "INSERT INTO sessions (key, id, token_hash, agent_id, status, metadata, created_at,
                                   updated_at, last_seq, delivered_seq, snapshot_seq)
             VALUES (9, x'01', x'02', 'a', 'idle', '{}', 3, 4, 5, 6, 7)",
        )
        .unwrap();
        migrate(&mut conn, "db").unwrap();
        let found: (i64, i64, i64, i64) = conn
            .query_row(
                "SELECT key, last_seq, delivered_seq, snapshot_seq FROM sessions
                 WHERE token_hash = x'02' AND token_listed = 1",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )
            .unwrap();
        assert_eq!(found, (9, 5, 6, 7));
    }

    #[test]
    fn g20_an_export_from_before_may_have_memory_if_it_can_still_be_imported() {
        let mut conn = Connection::open_in_memory().unwrap();
        let before = before(include_str!("schema/with_memory.sql"));
        for (step, sql) in (1..).zip(&MIGRATIONS[..before]) {
            conn.execute_batch(sql).unwrap();
            conn.pragma_update(None, "user_version", step).unwrap();
        }
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        for number in [1u8, 2] {
            conn.execute(
                "INSERT INTO exports (number, id, session_id, cid, messages, created_at, expires_at)
                 VALUES (?1, ?2, x'01', x'02', 2, 3, 4)",
                rusqlite::params![number, vec![number]],
            )
            .unwrap();
        }
        conn.execute("INSERT INTO bundles (export, expires_at, bundle) VALUES (2, 4, x'7b7d')", [])
            .unwrap();
        migrate(&mut conn, "db").unwrap();
        let mark = |number: i64| -> bool {
            let sql = "SELECT with_memory FROM exports WHERE number = ?1";
            conn.query_row(sql, [number], |row| row.get(0)).unwrap()
        };
        assert_eq!((mark(1), mark(2)), (false, true));
    }

    #[test]
    fn g16_sessions_of_an_older_schema_know_their_bytes() {
        let mut conn = Connection::open_in_memory().unwrap();
        let before = before(include_str!("schema/budgets.sql"));
        for step in &MIGRATIONS[..before] {
            conn.execute_batch(step).unwrap();
        }
        conn.pragma_update(None, "user_version", before as u32).unwrap();
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        conn.execute_batch(
            "INSERT INTO sessions (key, id, token_hash, token_listed, agent_id, status, metadata,
                                   created_at, updated_at)
             VALUES (2, x'01', x'02', 1, 'a', 'idle', '{}', 3, 4),
                    (3, x'03', x'04', 1, 'a', 'idle', '{}', 3, 4);
             INSERT INTO entries (place, kind, turn_id, message, cost_usd, status, step, created_at)
             VALUES ((2 << 32) + 1, 0, x'', 'é2345', 0, '', 0, 0),
                    ((2 << 32) + 2, 0, x'', '1234', 0, '', 0, 0);
             INSERT INTO blobs (hash, bytes) VALUES (x'aa', x'0102030405');
             -- The first is of a turn that has not ended.
             INSERT INTO blob_uses (hash, place) VALUES (x'aa', 2 << 32), (x'aa', (2 << 32) + 2);",
        )
        .unwrap();
        migrate(&mut conn, "db").unwrap();
        let mut bytes = conn.prepare("SELECT stored_bytes FROM sessions ORDER BY key").unwrap();
        let bytes: Vec<i64> = bytes.query_map([], |row| row.get(0)).unwrap().flatten().collect();
        assert_eq!(bytes, [6 + 4 + 5, 0]);
    }

    #[test]
    fn g16_keys_of_an_older_schema_are_of_no_device() {
        let mut conn = Connection::open_in_memory().unwrap();
        let before = before(include_str!("schema/paired.sql"));
        for step in &MIGRATIONS[..before] {
            conn.execute_batch(step).unwrap();
        }
        conn.pragma_update(None, "user_version", before as u32).unwrap();
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        conn.execute_batch(
            "INSERT INTO user_keys (id, user, name, secret_hash, scopes, agents, models, created_at)
             VALUES ('a', x'', 'x', x'01', '', '', '', 0), ('b', x'', 'x', x'01', '', '', '', 0)",
        )
        .unwrap();
        migrate(&mut conn, "db").unwrap();
        let of_none = "SELECT count(*) FROM user_keys WHERE device IS NULL";
        assert_eq!(conn.query_row(of_none, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    }

    #[test]
    fn sqlite_is_new_enough_to_be_free_of_the_wal_reset_bug() {
        assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
    }
}
