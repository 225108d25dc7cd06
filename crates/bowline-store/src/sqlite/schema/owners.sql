-- Leases of sessions, several attachments per session, and an order of turns.

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
