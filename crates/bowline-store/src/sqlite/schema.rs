//! The schema and its migrations: forward only, in one transaction.

use rusqlite::Connection;

use super::titles;
use crate::OpenError;

/// Marks the file as ours ("bowl"), so that a foreign database is not touched.
const APPLICATION_ID: i64 = 0x626f_776c;

/// Each element brings the schema from its index to the next version.
const MIGRATIONS: [&str; 18] = [
    FIRST,
    TRAVEL,
    DEVICES,
    OWNERS,
    ERASED,
    NAMES,
    CALLERS,
    BLOBS,
    USERS,
    TOKENS,
    PERMISSIONS,
    WITH_MEMORY,
    BUDGETS,
    PAIRED,
    REPLICAS,
    PAIRING,
    FEDERATION,
    ANNOUNCED,
];
/// The first version whose sessions have titles.
const TITLED: u32 = 6;

const FIRST: &str = "
    CREATE TABLE sessions (
        key             INTEGER PRIMARY KEY,
        id              BLOB NOT NULL UNIQUE,
        token_hash      BLOB NOT NULL UNIQUE,
        agent_id        TEXT NOT NULL,
        status          TEXT NOT NULL,
        step_count      INTEGER NOT NULL DEFAULT 0,
        metadata        TEXT NOT NULL,
        created_at      INTEGER NOT NULL,
        updated_at      INTEGER NOT NULL,
        last_seq        INTEGER NOT NULL DEFAULT 0,
        delivered_seq   INTEGER NOT NULL DEFAULT 0,
        tether_last     INTEGER NOT NULL DEFAULT 0,
        tether_done     INTEGER NOT NULL DEFAULT 0,
        cost_usd        REAL NOT NULL DEFAULT 0,
        attach_epoch    INTEGER NOT NULL DEFAULT 0,
        attached_by     BLOB,
        surface         TEXT,
        -- A snapshot is a position in the log, so it costs the same whatever came before.
        snapshot_id     BLOB,
        snapshot_seq    INTEGER,
        snapshot_at     INTEGER
    ) STRICT;
    CREATE INDEX sessions_attached ON sessions (attached_by) WHERE attached_by IS NOT NULL;

    -- The log. `place` is the session's key in the upper half and the entry's seq in the lower:
    -- one tree, entries of a session side by side, no second index to write.
    CREATE TABLE entries (
        place       INTEGER PRIMARY KEY,
        kind        INTEGER NOT NULL,
        turn_id     BLOB NOT NULL,
        message     TEXT NOT NULL,
        model       TEXT,
        cost_usd    REAL NOT NULL,
        status      TEXT NOT NULL,
        step        INTEGER NOT NULL,
        -- The how-manieth Tether turn of its session this is; null for what is not tethered.
        tether_no   INTEGER,
        created_at  INTEGER NOT NULL
    ) STRICT;

    -- Turns that were accepted and have not ended.
    CREATE TABLE turns (
        number      INTEGER PRIMARY KEY,
        id          BLOB NOT NULL UNIQUE,
        session     INTEGER NOT NULL,
        -- The session's status before the turn; null if the turn made the session.
        found       TEXT,
        request     TEXT NOT NULL,
        owner       BLOB NOT NULL,
        started     INTEGER NOT NULL,
        attempt     INTEGER NOT NULL,
        keyed       INTEGER NOT NULL,
        created_at  INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE keys (
        scope       TEXT NOT NULL,
        key         TEXT NOT NULL,
        body_hash   BLOB NOT NULL,
        session     INTEGER NOT NULL,
        turn_id     BLOB,
        result      TEXT,
        created_at  INTEGER NOT NULL,
        PRIMARY KEY (scope, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX keys_turn ON keys (turn_id) WHERE turn_id IS NOT NULL;
    CREATE INDEX keys_session ON keys (session);

    CREATE TABLE secrets (
        name        TEXT PRIMARY KEY,
        secret      BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// Export, import, fork and memory. Tokens that contain their session id are no longer indexed: a
/// random key costs an index page of its own for every new session.
const TRAVEL: &str = "
    CREATE TABLE sessions_2 (
        key             INTEGER PRIMARY KEY,
        id              BLOB NOT NULL UNIQUE,
        token_hash      BLOB NOT NULL,
        token_listed    INTEGER NOT NULL,
        agent_id        TEXT NOT NULL,
        status          TEXT NOT NULL,
        step_count      INTEGER NOT NULL DEFAULT 0,
        metadata        TEXT NOT NULL,
        created_at      INTEGER NOT NULL,
        updated_at      INTEGER NOT NULL,
        last_seq        INTEGER NOT NULL DEFAULT 0,
        delivered_seq   INTEGER NOT NULL DEFAULT 0,
        tether_last     INTEGER NOT NULL DEFAULT 0,
        tether_done     INTEGER NOT NULL DEFAULT 0,
        cost_usd        REAL NOT NULL DEFAULT 0,
        attach_epoch    INTEGER NOT NULL DEFAULT 0,
        attached_by     BLOB,
        surface         TEXT,
        snapshot_id     BLOB,
        snapshot_seq    INTEGER,
        snapshot_at     INTEGER,
        snapshot_kind   TEXT,
        -- A fork's entries up to base_seq are those of another session, or of what is left of one.
        base_key        INTEGER,
        base_seq        INTEGER,
        -- The session that goes on in this one's place.
        handed_to       BLOB
    ) STRICT;
    INSERT INTO sessions_2
        SELECT key, id, token_hash, 1, agent_id, status, step_count, metadata, created_at,
               updated_at, last_seq, delivered_seq, tether_last, tether_done, cost_usd,
               attach_epoch, attached_by, surface, snapshot_id, snapshot_seq, snapshot_at,
               iif(snapshot_id IS NULL, NULL, 'checkpoint'), NULL, NULL, NULL
        FROM sessions;
    DROP TABLE sessions;
    ALTER TABLE sessions_2 RENAME TO sessions;
    CREATE INDEX sessions_attached ON sessions (attached_by) WHERE attached_by IS NOT NULL;
    CREATE UNIQUE INDEX sessions_token ON sessions (token_hash) WHERE token_listed = 1;
    CREATE INDEX sessions_base ON sessions (base_key, base_seq) WHERE base_key IS NOT NULL;

    -- What an imported bundle brought that has no place here: a JSON object. Apart, because a
    -- session's row is written anew with every turn.
    CREATE TABLE carried (
        session     INTEGER PRIMARY KEY,
        payload     TEXT NOT NULL
    ) STRICT;

    -- A deleted session whose entries forks still share: where it leaves its own base.
    CREATE TABLE trunks (
        key         INTEGER PRIMARY KEY,
        agent_id    TEXT NOT NULL,
        base_key    INTEGER,
        base_seq    INTEGER
    ) STRICT;
    CREATE INDEX trunks_base ON trunks (base_key, base_seq) WHERE base_key IS NOT NULL;

    -- Who took the turn, where it was not the session's own agent.
    ALTER TABLE entries ADD COLUMN agent_id TEXT;
    -- Fields of an imported message that are not for a model: a JSON object.
    ALTER TABLE entries ADD COLUMN carried TEXT;
    -- Whether what was asked, and perhaps more, is in the log already.
    ALTER TABLE turns ADD COLUMN advanced INTEGER NOT NULL DEFAULT 0;

    CREATE TABLE exports (
        number      INTEGER PRIMARY KEY,
        id          BLOB NOT NULL UNIQUE,
        session_id  BLOB NOT NULL,
        cid         BLOB NOT NULL,
        label       TEXT,
        messages    INTEGER NOT NULL,
        created_at  INTEGER NOT NULL,
        expires_at  INTEGER NOT NULL,
        imported_at INTEGER,
        imported_as BLOB
    ) STRICT;
    CREATE INDEX exports_session ON exports (session_id);

    -- Until it has expired, or its session is deleted. Apart, so that using an export up does not
    -- write its bundle anew.
    CREATE TABLE bundles (
        export      INTEGER PRIMARY KEY,
        expires_at  INTEGER NOT NULL,
        bundle      BLOB NOT NULL
    ) STRICT;
    CREATE INDEX bundles_expiry ON bundles (expires_at);

    -- Where sessions come from. Ids are text: one end may be a stranger's.
    CREATE TABLE edges (
        number      INTEGER PRIMARY KEY,
        kind        TEXT NOT NULL,
        origin      TEXT NOT NULL,
        session     TEXT NOT NULL,
        export_id   BLOB,
        detail      TEXT NOT NULL,
        created_at  INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX edges_origin ON edges (origin);
    CREATE INDEX edges_session ON edges (session);

    -- The keys behind roaming tokens; numbers are never used twice.
    CREATE TABLE signing_keys (
        number      INTEGER PRIMARY KEY AUTOINCREMENT,
        secret      BLOB NOT NULL,
        created_at  INTEGER NOT NULL
    ) STRICT;

    -- Devices that were attached under a name of their own.
    CREATE TABLE surfaces (
        session     INTEGER NOT NULL,
        surface_id  TEXT NOT NULL,
        context     TEXT NOT NULL,
        first_seen  INTEGER NOT NULL,
        last_seen   INTEGER NOT NULL,
        PRIMARY KEY (session, surface_id)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE memories (
        number      INTEGER PRIMARY KEY,
        id          BLOB NOT NULL UNIQUE,
        agent_id    TEXT NOT NULL,
        kind        TEXT NOT NULL,
        text        TEXT NOT NULL,
        session_id  BLOB,
        created_at  INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX memories_agent ON memories (agent_id, kind, text);
    CREATE VIRTUAL TABLE memory_words USING fts5 (
        text, agent_id, content = 'memories', content_rowid = 'number',
        tokenize = 'unicode61 remove_diacritics 2'
    );
    CREATE TRIGGER memory_made AFTER INSERT ON memories BEGIN
        INSERT INTO memory_words (rowid, text, agent_id)
        VALUES (new.number, new.text, new.agent_id);
    END;
    CREATE TRIGGER memory_forgotten AFTER DELETE ON memories BEGIN
        INSERT INTO memory_words (memory_words, rowid, text, agent_id)
        VALUES ('delete', old.number, old.text, old.agent_id);
    END;
";

/// Device tokens, and approvals of tool calls.
const DEVICES: &str = "
    -- A device's own token, as its hash. One that never was here has last_seen 0.
    ALTER TABLE surfaces ADD COLUMN token_hash BLOB;
    ALTER TABLE surfaces ADD COLUMN token_expires_at INTEGER;

    CREATE TABLE approvals (
        number      INTEGER PRIMARY KEY,
        id          BLOB NOT NULL UNIQUE,
        session     INTEGER NOT NULL,
        turn_id     BLOB NOT NULL,
        -- The log entry with the call, and which of its calls.
        seq         INTEGER NOT NULL,
        nth         INTEGER NOT NULL,
        tool        TEXT NOT NULL,
        input       TEXT NOT NULL,
        state       TEXT NOT NULL,
        created_at  INTEGER NOT NULL,
        expires_at  INTEGER NOT NULL,
        UNIQUE (turn_id, seq, nth)
    ) STRICT;
    CREATE INDEX approvals_session ON approvals (session);
";

/// Leases of sessions, several attachments per session, and an order of turns.
const OWNERS: &str = "
    -- Processes that may write. One that is not here, or dead, owns nothing.
    CREATE TABLE replicas (
        id          BLOB PRIMARY KEY,
        dead        INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- Whose surface was attached when the older build ended lost it.
    UPDATE sessions SET status = 'suspended' WHERE attached_by IS NOT NULL AND status = 'running';
    DROP INDEX sessions_attached;
    ALTER TABLE sessions DROP COLUMN attached_by;
    ALTER TABLE sessions DROP COLUMN surface;
    -- The owner's lease: who, how often it was taken, how many commits there were, and the last one.
    ALTER TABLE sessions ADD COLUMN owner BLOB;
    ALTER TABLE sessions ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN commit_id BLOB;
    ALTER TABLE sessions ADD COLUMN turns_accepted INTEGER NOT NULL DEFAULT 0;
    -- What the session's own turns cost; cost_usd also counts what an import brought.
    ALTER TABLE sessions ADD COLUMN spent_usd REAL NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN prompt_tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN completion_tokens INTEGER NOT NULL DEFAULT 0;
    UPDATE sessions SET spent_usd = cost_usd WHERE cost_usd > 0;
    -- Entries that are older than their session came with its import, and were paid elsewhere.
    UPDATE sessions SET spent_usd = coalesce((
            SELECT sum(e.cost_usd) FROM entries e
            WHERE e.place > key << 32 AND e.place < (key + 1) << 32
              AND e.created_at >= sessions.created_at), 0)
        WHERE cost_usd > 0 AND base_key IS NULL
          AND lower(hex(id)) IN (SELECT replace(session, '-', '') FROM edges);

    CREATE TABLE attachments (
        session     INTEGER NOT NULL,
        epoch       INTEGER NOT NULL,
        -- The replica that holds the socket.
        edge        BLOB NOT NULL,
        joined      INTEGER NOT NULL,
        context     TEXT NOT NULL,
        PRIMARY KEY (session, epoch)
    ) STRICT, WITHOUT ROWID;

    -- How far each device has got. Null: it never attached since this is kept.
    ALTER TABLE surfaces ADD COLUMN delivered_seq INTEGER;

    CREATE TABLE turns_4 (
        session     INTEGER NOT NULL,
        -- The order in which they run.
        place       INTEGER NOT NULL,
        id          BLOB NOT NULL UNIQUE,
        -- The session's status before the turn; null if the turn made the session.
        found       TEXT,
        request     TEXT NOT NULL,
        started     INTEGER NOT NULL,
        attempt     INTEGER NOT NULL,
        -- Whether what was asked, and perhaps more, is in the log already.
        advanced    INTEGER NOT NULL,
        keyed       INTEGER NOT NULL,
        created_at  INTEGER NOT NULL,
        PRIMARY KEY (session, place)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO turns_4
        SELECT session, number, id, found, request, started, attempt, advanced, keyed, created_at
        FROM turns;
    UPDATE sessions SET turns_accepted = (SELECT max(number) FROM turns WHERE session = key)
        WHERE key IN (SELECT session FROM turns);
    DROP TABLE turns;
    ALTER TABLE turns_4 RENAME TO turns;

    -- Upkeep finds what is old without reading the rest.
    CREATE INDEX keys_created ON keys (created_at);
    CREATE INDEX approvals_expiry ON approvals (expires_at);
";

/// Whether the file was closed in good order, and an index of memories that forgets its words.
const ERASED: &str = "
    CREATE TABLE usage (
        only_row            INTEGER PRIMARY KEY CHECK (only_row = 1),
        -- When a process opened the folder; null if the last one closed it in good order.
        opened_at           INTEGER,
        -- The same of a copy whose write-ahead log is missing, until a gateway has stopped in good
        -- order on it.
        incomplete_since    INTEGER,
        -- How often the log was folded in while the file was open.
        folds               INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    INSERT INTO usage (only_row) VALUES (1);

    -- Without it, the words of a memory that was deleted stay in the index until segments merge.
    INSERT INTO memory_words (memory_words, rank) VALUES ('secure-delete', 1);
    INSERT INTO memory_words (memory_words) VALUES ('rebuild');
";

/// Titles of sessions, and full-text search in what was said.
const NAMES: &str = "
    -- What a person called it, and the first words that were said.
    ALTER TABLE sessions ADD COLUMN title TEXT;
    ALTER TABLE sessions ADD COLUMN auto_title TEXT;

    -- The words of entries, by their place. It holds no text: that is in the log.
    CREATE VIRTUAL TABLE entry_words USING fts5 (
        text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
    );
    -- One row: whether words of deleted entries may still be in the index, to be merged away.
    CREATE TABLE purge (
        due         INTEGER NOT NULL
    ) STRICT;
    INSERT INTO purge (due) VALUES (0);
    -- Up to where each log is indexed, by the key of its session or trunk.
    CREATE TABLE indexed (
        log         INTEGER PRIMARY KEY,
        seq         INTEGER NOT NULL
    ) STRICT;
";

/// Who sent an entry over HTTP, answers that supersede others, and current instructions.
const CALLERS: &str = "
    -- A hash of the caller's credential and client. Null: a surface, an import, or older.
    ALTER TABLE entries ADD COLUMN caller INTEGER;
    -- The seq of the answer that this turn's answer supersedes.
    ALTER TABLE entries ADD COLUMN replaces INTEGER;

    -- The session's current instruction, where it is another than the system messages in its log:
    -- a JSON list of messages. Apart, because a session's row is written anew with every turn.
    CREATE TABLE instructions (
        session     INTEGER PRIMARY KEY,
        messages    TEXT NOT NULL
    ) STRICT;
";

/// Images, sounds and files, out of the messages that refer to them.
const BLOBS: &str = "
    -- By the SHA-256 of their bytes.
    CREATE TABLE blobs (
        hash        BLOB PRIMARY KEY,
        bytes       BLOB NOT NULL
    ) STRICT;
    -- The entries that refer to a blob, by their place; place 0 of a log: its unfinished turns.
    CREATE TABLE blob_uses (
        hash        BLOB NOT NULL,
        place       INTEGER NOT NULL,
        PRIMARY KEY (hash, place)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX blob_uses_place ON blob_uses (place);
";

/// Users and their keys. All that was there before is the owner's.
const USERS: &str = "
    CREATE TABLE users (
        id          BLOB PRIMARY KEY,
        name        TEXT NOT NULL UNIQUE COLLATE NOCASE,
        role        TEXT NOT NULL,
        created_at  INTEGER NOT NULL,
        disabled_at INTEGER
    ) STRICT, WITHOUT ROWID;
    INSERT INTO users (id, name, role, created_at) VALUES (zeroblob(16), 'owner', 'owner', 0);

    CREATE TABLE user_keys (
        id              TEXT PRIMARY KEY,
        user            BLOB NOT NULL,
        name            TEXT NOT NULL,
        secret_hash     BLOB NOT NULL,
        scopes          TEXT NOT NULL,
        -- Patterns, one a line; none: all.
        agents          TEXT NOT NULL,
        models          TEXT NOT NULL,
        created_at      INTEGER NOT NULL,
        expires_at      INTEGER,
        revoked_at      INTEGER,
        last_used_at    INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX user_keys_user ON user_keys (user);

    -- Whose session it is. Most are the owner's, so only the others are indexed.
    ALTER TABLE sessions ADD COLUMN user BLOB NOT NULL DEFAULT x'00000000000000000000000000000000';
    CREATE INDEX sessions_user ON sessions (user)
        WHERE user <> x'00000000000000000000000000000000';

    CREATE TABLE shares (
        session     INTEGER NOT NULL,
        user        BLOB NOT NULL,
        share       TEXT NOT NULL,
        PRIMARY KEY (session, user)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX shares_user ON shares (user);

    -- Whose session the edge leads to.
    ALTER TABLE edges ADD COLUMN user BLOB NOT NULL DEFAULT x'00000000000000000000000000000000';

    ALTER TABLE memories ADD COLUMN user BLOB NOT NULL DEFAULT x'00000000000000000000000000000000';
    DROP INDEX memories_agent;
    CREATE UNIQUE INDEX memories_agent ON memories (agent_id, kind, text, user);
";

/// Tokens of sessions that can be replaced.
const TOKENS: &str = "
    -- How often the token was replaced, and when it was made; null: with the session.
    ALTER TABLE sessions ADD COLUMN token_number INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN token_at INTEGER;
";

/// Tools that ask, permissions for good, and who said what.
const PERMISSIONS: &str = "
    -- What else there is to an approval, as JSON; the definition that it is for; who decided, as JSON.
    ALTER TABLE approvals ADD COLUMN about TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE approvals ADD COLUMN definition TEXT NOT NULL DEFAULT '';
    ALTER TABLE approvals ADD COLUMN decision TEXT;

    -- Tools that a person allowed for good, by session and device.
    CREATE TABLE grants (
        session     INTEGER NOT NULL,
        tool        TEXT NOT NULL,
        device      TEXT NOT NULL,
        definition  TEXT NOT NULL,
        created_at  INTEGER NOT NULL,
        PRIMARY KEY (session, tool, device)
    ) STRICT, WITHOUT ROWID;

    -- What servers said of their tools when these were first seen, or accepted last.
    CREATE TABLE tool_pins (
        tool        TEXT PRIMARY KEY,
        definition  TEXT NOT NULL,
        created_at  INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- What is to be told once, at the first start after an upgrade.
    CREATE TABLE notices (
        name        TEXT PRIMARY KEY
    ) STRICT, WITHOUT ROWID;
    INSERT INTO notices (name) SELECT 'tools-ask' WHERE EXISTS (SELECT 1 FROM sessions);

    -- The name of who said it, where it was not the session's user.
    ALTER TABLE entries ADD COLUMN author TEXT;
    -- Whether the session is shared with the surface's user.
    ALTER TABLE attachments ADD COLUMN guest INTEGER NOT NULL DEFAULT 0;
";

/// Which exports have memory in them. Of older ones it is not known: those that can still be imported are
/// treated as if they had.
const WITH_MEMORY: &str = "
    ALTER TABLE exports ADD COLUMN with_memory INTEGER NOT NULL DEFAULT 0;
    UPDATE exports SET with_memory = 1 WHERE number IN (SELECT export FROM bundles);
";

/// Limits and usage, and what was done by whom. Sessions count their own bytes, so that a deleted one
/// is not counted any more.
const BUDGETS: &str = "
    ALTER TABLE users ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE user_keys ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';

    ALTER TABLE sessions ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;
    UPDATE sessions SET stored_bytes =
        (SELECT coalesce(sum(octet_length(message)), 0) FROM entries
         WHERE place > sessions.key << 32 AND place < (sessions.key + 1) << 32)
        + (SELECT coalesce(sum(octet_length(bytes)), 0) FROM blob_uses JOIN blobs USING (hash)
           WHERE place > sessions.key << 32 AND place < (sessions.key + 1) << 32);

    -- What was used on a UTC day, counted from 1970: by a user in all, and by each key.
    CREATE TABLE spending (
        day                 INTEGER NOT NULL,
        user                BLOB NOT NULL,
        -- Empty: the user in all, with and without keys.
        user_key            TEXT NOT NULL,
        turns               INTEGER NOT NULL,
        model_calls         INTEGER NOT NULL,
        prompt_tokens       INTEGER NOT NULL,
        completion_tokens   INTEGER NOT NULL,
        usd_micros          INTEGER NOT NULL,
        exports             INTEGER NOT NULL,
        PRIMARY KEY (day, user, user_key)
    ) STRICT, WITHOUT ROWID;

    -- What was done, by whom. Only appended to, and deleted by age. A row with an hour is a tally.
    CREATE TABLE audit (
        number      INTEGER PRIMARY KEY AUTOINCREMENT,
        at          INTEGER NOT NULL,
        user        BLOB,
        credential  TEXT NOT NULL,
        action      TEXT NOT NULL,
        object      TEXT NOT NULL,
        result      TEXT NOT NULL,
        address     TEXT NOT NULL,
        times       INTEGER NOT NULL,
        hour        INTEGER
    ) STRICT;
    CREATE INDEX audit_at ON audit (at);
    CREATE UNIQUE INDEX audit_tallies
        ON audit (hour, action, result, credential, address, coalesce(user, x''))
        WHERE hour IS NOT NULL;
";

/// Paired devices, as keys of users.
const PAIRED: &str = "
    -- The public key of a device. A revoked row keeps it, so that a list still says what it was.
    ALTER TABLE user_keys ADD COLUMN device BLOB;
    CREATE UNIQUE INDEX user_keys_device ON user_keys (device)
        WHERE device IS NOT NULL AND revoked_at IS NULL;
";

/// What replicas tell each other.
const REPLICAS: &str = "
    -- Counts changes of what gateways keep in memory (`sqlite/revision.rs`).
    CREATE TABLE access_revision (
        only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
        revision    INTEGER NOT NULL
    ) STRICT;
    INSERT INTO access_revision VALUES (1, 0);

    -- What each replica counts now, of a user or of a key; the other one is empty.
    CREATE TABLE replica_counts (
        replica     BLOB NOT NULL,
        user        BLOB NOT NULL,
        user_key    TEXT NOT NULL,
        minute      INTEGER NOT NULL,
        requests    INTEGER NOT NULL,
        turns       INTEGER NOT NULL,
        PRIMARY KEY (replica, user, user_key)
    ) STRICT, WITHOUT ROWID;

    -- When each periodic task was begun last.
    CREATE TABLE upkeep (
        task        TEXT PRIMARY KEY,
        done_at     INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// Pairing codes that every replica knows.
const PAIRING: &str = "
    -- Codes that wait for a device. The code itself is derived from the id, and not stored.
    CREATE TABLE pairing_codes (
        id          BLOB PRIMARY KEY,
        user        BLOB NOT NULL,
        scopes      TEXT NOT NULL,
        expires_at  INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- Until when the tries that were made use up what may be tried.
    CREATE TABLE pairing_tries (
        only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
        used_until  INTEGER NOT NULL
    ) STRICT;
    INSERT INTO pairing_tries VALUES (1, 0);
";

/// Sessions that move between gateways.
const FEDERATION: &str = "
    -- The gateway that the export is for, if one was named.
    ALTER TABLE exports ADD COLUMN peer TEXT;
    CREATE INDEX exports_cid ON exports (cid);

    -- One-time ids of tokens of other gateways, until these expire.
    CREATE TABLE peer_tokens (
        issuer      TEXT NOT NULL,
        jti         BLOB NOT NULL,
        expires_at  INTEGER NOT NULL,
        PRIMARY KEY (issuer, jti)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX peer_tokens_expiry ON peer_tokens (expires_at);

    -- Who may take which session away: reserved, confirmed or ended.
    CREATE TABLE reservations (
        id          BLOB PRIMARY KEY,
        peer        TEXT NOT NULL,
        session_id  BLOB NOT NULL,
        -- That of the roaming token, and the one with the reserved bundle.
        export_id   BLOB NOT NULL,
        bundle_id   BLOB NOT NULL,
        cid         BLOB NOT NULL,
        state       TEXT NOT NULL,
        expires_at  INTEGER NOT NULL,
        last_seq    INTEGER NOT NULL,
        created_at  INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX reservations_session ON reservations (session_id);
    CREATE INDEX reservations_export ON reservations (export_id);

    -- Where sessions went.
    CREATE TABLE forwards (
        session_id  BLOB PRIMARY KEY,
        peer        TEXT NOT NULL,
        url         TEXT NOT NULL,
        moved_to    BLOB NOT NULL,
        created_at  INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- Sessions that come from other gateways: reserving, staged, active or dropped.
    CREATE TABLE migrations (
        id          BLOB PRIMARY KEY,
        origin      TEXT NOT NULL,
        export_id   BLOB NOT NULL,
        user        BLOB NOT NULL,
        -- What was asked for: a JSON object.
        request     TEXT NOT NULL,
        stage       TEXT NOT NULL,
        why         TEXT,
        session_id  BLOB,
        created_at  INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX migrations_open ON migrations (origin, export_id) WHERE stage <> 'dropped';
    -- The bundles of those that are staged.
    CREATE TABLE staged (
        migration   BLOB PRIMARY KEY,
        bundle      BLOB NOT NULL
    ) STRICT;

    -- The keys of other gateways.
    CREATE TABLE peers (
        gateway_id  TEXT PRIMARY KEY,
        url         TEXT NOT NULL,
        key         BLOB NOT NULL,
        issued_at   INTEGER NOT NULL,
        -- Another key that was shown, and waits for a person.
        shown       BLOB
    ) STRICT, WITHOUT ROWID;
";

/// Exports of which trackers are told.
const ANNOUNCED: &str = "
    ALTER TABLE exports ADD COLUMN announce INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX exports_announced ON exports (expires_at) WHERE announce = 1;
";

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
        conn.execute_batch(FIRST).unwrap();
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
        let before = MIGRATIONS.iter().position(|step| *step == WITH_MEMORY).unwrap();
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
        let before = MIGRATIONS.iter().position(|step| *step == BUDGETS).unwrap();
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
        let before = MIGRATIONS.iter().position(|step| *step == PAIRED).unwrap();
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
