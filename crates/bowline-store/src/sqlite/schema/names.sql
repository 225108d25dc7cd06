-- Titles of sessions, and full-text search in what was said.

-- What a person called it, and the first words that were said.
ALTER TABLE sessions ADD COLUMN title TEXT;
ALTER TABLE sessions ADD COLUMN auto_title TEXT;

-- The words of entries, by their place. It holds no text: that is in the log.
CREATE VIRTUAL TABLE entry_words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
-- One row: whether words of deleted entries may still be in the index, to be merged away.
CREATE TABLE purge (
    due         INTEGER NOT NULL
) STRICT;
INSERT INTO purge (due) VALUES (0);
-- Up to where each log is indexed, by the key of its session or trunk.
CREATE TABLE indexed (
    log         INTEGER PRIMARY KEY,
    seq         INTEGER NOT NULL
) STRICT;
