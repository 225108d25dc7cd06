-- Users and their keys. All that was there before is the owner's.

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
