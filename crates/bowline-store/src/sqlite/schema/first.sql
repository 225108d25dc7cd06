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
