-- Pairing codes that every replica knows.

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
