//! The tables, and the migration of an older file: forward only, in one transaction.

use rusqlite::{Connection, TransactionBehavior};

use super::RegistryOpenError;

/// Marks the file as ours ("bowc"), so that a foreign database is not changed.
const APPLICATION_ID: i64 = 0x626f_7763;

/// Each element migrates the schema from the version that is its index to the next one.
const MIGRATIONS: [&str; 6] = [FIRST, REVOKED, AUDIT, DEVICES, RETENTION, RELAYS];

/// Times are seconds since 1970.
const FIRST: &str = "
    CREATE TABLE users (
        number      INTEGER PRIMARY KEY,
        -- What tokens call the user. A name may be given again once its user is revoked; this not.
        id          TEXT NOT NULL UNIQUE,
        name        TEXT NOT NULL,
        created_at  INTEGER NOT NULL,
        revoked_at  INTEGER
    ) STRICT;
    CREATE UNIQUE INDEX users_name ON users (name) WHERE revoked_at IS NULL;

    CREATE TABLE api_keys (
        number      INTEGER PRIMARY KEY,
        owner       INTEGER NOT NULL REFERENCES users (number),
        -- The first four bytes of the hash, to find it by; the rest is compared apart from here,
        -- in constant time.
        tag         INTEGER NOT NULL,
        hash        BLOB NOT NULL CHECK (length(hash) = 32),
        created_at  INTEGER NOT NULL,
        revoked_at  INTEGER
    ) STRICT;
    CREATE INDEX api_keys_tag ON api_keys (tag) WHERE revoked_at IS NULL;
    CREATE INDEX api_keys_owner ON api_keys (owner);

    CREATE TABLE daemons (
        number          INTEGER PRIMARY KEY,
        id              TEXT NOT NULL UNIQUE,
        owner           INTEGER NOT NULL REFERENCES users (number),
        identity        BLOB NOT NULL CHECK (length(identity) = 32),
        name            TEXT,
        resumable       INTEGER NOT NULL,
        created_at      INTEGER NOT NULL,
        presence_at     INTEGER NOT NULL,
        presence_until  INTEGER NOT NULL,
        revoked_at      INTEGER,
        -- Of its owner only: a key can be taken from nobody by registering it first.
        UNIQUE (owner, identity)
    ) STRICT;

    -- One signs, one is published ahead of its turn, the others are published until all that they
    -- signed has expired. Those have no seed any more.
    CREATE TABLE signing_keys (
        number          INTEGER PRIMARY KEY AUTOINCREMENT,
        kid             TEXT NOT NULL UNIQUE,
        role            TEXT NOT NULL CHECK (role IN ('next', 'current', 'retired')),
        public          BLOB NOT NULL CHECK (length(public) = 32),
        seed            BLOB,
        created_at      INTEGER NOT NULL,
        -- No token of this key is good for longer.
        signed_until    INTEGER NOT NULL DEFAULT 0,
        retired_at      INTEGER,
        published_until INTEGER,
        CHECK ((role = 'retired') = (seed IS NULL)),
        CHECK ((role = 'retired') = (published_until IS NOT NULL))
    ) STRICT;
    CREATE UNIQUE INDEX signing_keys_role ON signing_keys (role) WHERE role != 'retired';

    -- Who did what to whom, when. What happens all the time is counted in one row a day.
    CREATE TABLE audit (
        number      INTEGER PRIMARY KEY AUTOINCREMENT,
        at          INTEGER NOT NULL,
        actor       TEXT NOT NULL,
        event       TEXT NOT NULL,
        subject     TEXT NOT NULL,
        count       INTEGER NOT NULL DEFAULT 1,
        last_at     INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX audit_counted ON audit (event, subject, number)
        WHERE event IN ('presence_renewed', 'refused');
";

/// An index for the revocation list, which relays fetch regularly.
const REVOKED: &str = "
    CREATE INDEX daemons_revoked ON daemons (revoked_at) WHERE revoked_at IS NOT NULL;
";

/// More events are counted, rows are deleted by age, and the file itself refuses to change what it
/// says. Session tokens had a row each: they stay as they are.
const AUDIT: &str = "
    DROP INDEX audit_counted;
    CREATE INDEX audit_counted ON audit (event, subject, number)
        WHERE event IN ('presence_renewed', 'refused', 'session_issued', 'daemon_renamed');
    CREATE INDEX audit_at ON audit (at);
    CREATE TRIGGER audit_append_only BEFORE UPDATE ON audit
        WHEN new.number IS NOT old.number OR new.at IS NOT old.at OR new.actor IS NOT old.actor
             OR new.event IS NOT old.event OR new.subject IS NOT old.subject
             OR new.count < old.count OR new.last_at < old.last_at
        BEGIN
            SELECT raise(ABORT, 'the audit log is append-only');
        END;
    CREATE TRIGGER audit_kept BEFORE DELETE ON audit
        WHEN old.at >= (SELECT max(at) FROM audit) - 400 * 86400
        BEGIN
            SELECT raise(ABORT, 'the audit log is kept for 400 days');
        END;
";

/// The keys of paired devices, and one more event that is counted.
const DEVICES: &str = "
    CREATE TABLE device_keys (
        daemon      INTEGER NOT NULL REFERENCES daemons (number),
        key         BLOB NOT NULL CHECK (length(key) = 32),
        expires_at  INTEGER,
        PRIMARY KEY (daemon, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX device_keys_expiry ON device_keys (expires_at) WHERE expires_at IS NOT NULL;
    -- A revoked daemon never comes back: its devices need not be known any more.
    CREATE TRIGGER device_keys_revoked AFTER UPDATE OF revoked_at ON daemons
        WHEN new.revoked_at IS NOT NULL
        BEGIN
            DELETE FROM device_keys WHERE daemon = new.number;
        END;
    DROP INDEX audit_counted;
    CREATE INDEX audit_counted ON audit (event, subject, number)
        WHERE event IN ('presence_renewed', 'refused', 'session_issued', 'daemon_renamed',
                        'devices_changed');
";

/// Until when a user's tokens were ended, and what remains of revoked daemons.
const RETENTION: &str = "
    -- No token that was issued to the user up to then is good any more.
    ALTER TABLE users ADD COLUMN ended_until INTEGER;
    UPDATE users SET ended_until = revoked_at WHERE revoked_at IS NOT NULL;
    CREATE INDEX users_ended ON users (ended_until) WHERE ended_until IS NOT NULL;
    CREATE INDEX users_revoked ON users (revoked_at) WHERE revoked_at IS NOT NULL;
    CREATE INDEX api_keys_revoked ON api_keys (revoked_at) WHERE revoked_at IS NOT NULL;
    CREATE TABLE retired_identities (
        owner   INTEGER NOT NULL REFERENCES users (number),
        hash    BLOB NOT NULL CHECK (length(hash) = 16),
        PRIMARY KEY (owner, hash)
    ) STRICT, WITHOUT ROWID;
";

/// Several relays, which of them each daemon is assigned to, and the epoch of its presence.
const RELAYS: &str = "
    CREATE TABLE relays (
        number      INTEGER PRIMARY KEY,
        name        TEXT NOT NULL UNIQUE,
        url         TEXT NOT NULL,
        region      TEXT,
        added_at    INTEGER NOT NULL,
        -- Gets no new daemons, and hands over those it has.
        drained_at  INTEGER,
        -- Not listed any more; kept for a while, so that it hands its daemons over.
        removed_at  INTEGER,
        CHECK (removed_at IS NULL OR drained_at IS NOT NULL)
    ) STRICT;
    CREATE UNIQUE INDEX relays_url ON relays (url) WHERE removed_at IS NULL;
    -- None: the relay that the control plane is configured with.
    ALTER TABLE daemons ADD COLUMN relay INTEGER REFERENCES relays (number);
    ALTER TABLE daemons ADD COLUMN region TEXT;
    ALTER TABLE daemons ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
    -- The process that registered last, by the name that it gave itself.
    ALTER TABLE daemons ADD COLUMN process TEXT;
    CREATE INDEX daemons_relay ON daemons (relay, presence_until) WHERE relay IS NOT NULL;
    DROP INDEX audit_counted;
    CREATE INDEX audit_counted ON audit (event, subject, number)
        WHERE event IN ('presence_renewed', 'refused', 'session_issued', 'daemon_renamed',
                        'devices_changed', 'daemon_moved');
";

/// The schema version this build writes.
const VERSION: u32 = MIGRATIONS.len() as u32;

/// Migrates the file to the current version, or refuses it.
pub(super) fn migrate(conn: &mut Connection, path: &str) -> Result<(), RegistryOpenError> {
    let failed = |error: rusqlite::Error| RegistryOpenError::Database(error.to_string());
    // The version is read under the write lock: another process may be creating the same file.
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let pragma = |name: &str| -> Result<i64, RegistryOpenError> {
        tx.pragma_query_value(None, name, |row| row.get(0)).map_err(failed)
    };
    let found = u32::try_from(pragma("user_version")?).unwrap_or(u32::MAX);
    let application = pragma("application_id")?;
    let empty = "SELECT count(*) = 0 FROM sqlite_schema";
    let empty: bool = tx.query_row(empty, [], |row| row.get(0)).map_err(failed)?;
    if !empty && application != APPLICATION_ID {
        return Err(RegistryOpenError::Foreign { path: path.to_owned() });
    }
    if found > VERSION {
        return Err(RegistryOpenError::NewerSchema { found, known: VERSION });
    }
    if found == VERSION {
        return Ok(());
    }
    for step in &MIGRATIONS[found as usize..] {
        tx.execute_batch(step).map_err(failed)?;
    }
    tx.pragma_update(None, "user_version", VERSION).map_err(failed)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    tx.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g13_a_newer_schema_is_refused() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, "db").unwrap();
        conn.pragma_update(None, "user_version", VERSION + 1).unwrap();
        let refused = migrate(&mut conn, "db");
        let newer = RegistryOpenError::NewerSchema { found: VERSION + 1, known: VERSION };
        assert_eq!(refused, Err(newer));
    }

    #[test]
    fn a_foreign_database_is_left_alone() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert_eq!(migrate(&mut conn, "db"), Err(RegistryOpenError::Foreign { path: "db".into() }));
    }

    #[test]
    fn g13_an_older_file_becomes_a_newer_one() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(FIRST).unwrap();
        conn.pragma_update(None, "user_version", 1).unwrap();
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        migrate(&mut conn, "db").unwrap();
        let version = conn.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0));
        assert_eq!(version, Ok(VERSION));
        conn.prepare("SELECT id FROM daemons INDEXED BY daemons_revoked WHERE revoked_at > 7")
            .unwrap();
        conn.prepare("SELECT number FROM audit INDEXED BY audit_at WHERE at < 7").unwrap();
    }

    #[test]
    fn g13_a_file_without_devices_gets_their_table_and_keeps_its_daemons() {
        let mut conn = Connection::open_in_memory().unwrap();
        for step in &MIGRATIONS[..3] {
            conn.execute_batch(step).unwrap();
        }
        conn.pragma_update(None, "user_version", 3).unwrap();
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        conn.execute_batch(
            "INSERT INTO users (number, id, name, created_at) VALUES (1, 'u', 'alice', 1);
             INSERT INTO daemons (number, id, owner, identity, resumable, created_at, presence_at,
                                  presence_until)
             VALUES (7, 'd', 1, zeroblob(32), 1, 1, 1, 1);",
        )
        .unwrap();
        migrate(&mut conn, "db").unwrap();
        conn.pragma_update(None, "foreign_keys", true).unwrap();
        let add = "INSERT INTO device_keys (daemon, key) VALUES (?1, zeroblob(32))";
        conn.execute(add, [7]).unwrap();
        assert!(conn.execute(add, [8]).is_err(), "a daemon that does not exist");
        let expired = "DELETE FROM device_keys INDEXED BY device_keys_expiry WHERE expires_at <= 7";
        conn.prepare(expired).unwrap();
        conn.prepare(
            "SELECT number FROM audit INDEXED BY audit_counted
             WHERE event IN ('presence_renewed', 'refused', 'session_issued', 'daemon_renamed',
                             'devices_changed', 'daemon_moved')
                   AND subject = 'd'",
        )
        .unwrap();
    }

    #[test]
    fn g13_users_revoked_before_are_among_those_whose_tokens_ended() {
        let mut conn = Connection::open_in_memory().unwrap();
        for step in &MIGRATIONS[..4] {
            conn.execute_batch(step).unwrap();
        }
        conn.pragma_update(None, "user_version", 4).unwrap();
        conn.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        conn.execute_batch(
            "INSERT INTO users (id, name, created_at, revoked_at) VALUES ('u', 'alice', 1, 7);
             INSERT INTO users (id, name, created_at) VALUES ('v', 'bob', 1);",
        )
        .unwrap();
        migrate(&mut conn, "db").unwrap();
        let ended = "SELECT id, ended_until FROM users INDEXED BY users_ended
                     WHERE ended_until IS NOT NULL";
        let ended = conn.query_row(ended, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(ended, Ok(("u".to_owned(), 7)));
    }

    #[test]
    fn migrating_twice_changes_nothing() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, "db").unwrap();
        migrate(&mut conn, "db").unwrap();
    }
}
