-- Limits and usage, and what was done by whom. Sessions count their own bytes, so that a deleted one
-- is not counted any more.

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
