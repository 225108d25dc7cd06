-- Device tokens, and approvals of tool calls.

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
