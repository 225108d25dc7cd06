-- Images, sounds and files, out of the messages that refer to them.

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
