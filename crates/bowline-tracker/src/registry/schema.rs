//! The tables. Forward only, in one transaction.

use rusqlite::{Connection, TransactionBehavior};

use super::file::RegistryOpenError;

/// Marks the file as ours ("bowt"), so that a foreign database is not changed.
const APPLICATION_ID: i64 = 0x626f_7774;
/// Each element migrates the schema from the version that is its index to the next one.
const MIGRATIONS: [&str; 1] = [FIRST];

/// Times are seconds since 1970.
const FIRST: &str = "
    CREATE TABLE gateways (
        number      INTEGER PRIMARY KEY,
        id          TEXT NOT NULL,
        url         TEXT NOT NULL,
        key         BLOB NOT NULL CHECK (length(key) = 32),
        -- When the key was seen at the address.
        checked_at  INTEGER NOT NULL,
        records     INTEGER NOT NULL DEFAULT 0 CHECK (records >= 0),
        UNIQUE (id, url)
    ) STRICT;

    CREATE TABLE records (
        cid          BLOB NOT NULL CHECK (length(cid) = 32),
        gateway      INTEGER NOT NULL,
        first_at     INTEGER NOT NULL,
        -- What the newest announcement of it says of its own time.
        announced_at INTEGER NOT NULL,
        -- 0: withdrawn.
        expires_at   INTEGER NOT NULL,
        kept_until   INTEGER NOT NULL,
        PRIMARY KEY (cid, gateway)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX records_kept ON records (kept_until);
    CREATE INDEX gateways_unused ON gateways (checked_at) WHERE records = 0;

    CREATE TABLE totals (
        records     INTEGER NOT NULL CHECK (records >= 0),
        gateways    INTEGER NOT NULL CHECK (gateways >= 0)
    ) STRICT;
    INSERT INTO totals VALUES (0, 0);
";

pub(super) fn migrate(conn: &mut Connection, path: &str) -> Result<(), RegistryOpenError> {
    let failed = |error: rusqlite::Error| RegistryOpenError::Database(error.to_string());
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let pragma = |name: &str| {
        tx.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).map_err(failed)
    };
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 =
        tx.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).map_err(failed)?;
    if application != APPLICATION_ID && (application != 0 || version != 0 || tables != 0) {
        return Err(RegistryOpenError::Foreign { path: path.to_owned() });
    }
    let known = MIGRATIONS.len();
    let found = usize::try_from(version).unwrap_or(usize::MAX);
    if found > known {
        return Err(RegistryOpenError::NewerSchema { found, known });
    }
    for migration in &MIGRATIONS[found..] {
        tx.execute_batch(migration).map_err(failed)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    tx.pragma_update(None, "user_version", known as i64).map_err(failed)?;
    tx.commit().map_err(failed)
}
