-- What replicas tell each other.

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
