-- Who sent an entry over HTTP, answers that supersede others, and current instructions.

-- A hash of the caller's credential and client. Null: a surface, an import, or older.
ALTER TABLE entries ADD COLUMN caller INTEGER;
-- The seq of the answer that this turn's answer supersedes.
ALTER TABLE entries ADD COLUMN replaces INTEGER;

-- The session's current instruction, where it is another than the system messages in its log:
-- a JSON list of messages. Apart, because a session's row is written anew with every turn.
CREATE TABLE instructions (
    session     INTEGER PRIMARY KEY,
    messages    TEXT NOT NULL
) STRICT;
