-- Export, import, fork and memory. Tokens that contain their session id are no longer indexed: a
-- random key costs an index page of its own for every new session.

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
