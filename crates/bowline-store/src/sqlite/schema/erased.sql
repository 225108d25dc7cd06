-- Whether the file was closed in good order, and an index of memories that forgets its words.

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
