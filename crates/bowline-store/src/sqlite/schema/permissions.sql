-- Tools that ask, permissions for good, and who said what.

-- What else there is to an approval, as JSON; the definition that it is for; who decided, as JSON.
ALTER TABLE approvals ADD COLUMN about TEXT NOT NULL DEFAULT '{}';
ALTER TABLE approvals ADD COLUMN definition TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN decision TEXT;

-- Tools that a person allowed for good, by session and device.
CREATE TABLE grants (
    session     INTEGER NOT NULL,
    tool        TEXT NOT NULL,
    device      TEXT NOT NULL,
    definition  TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (session, tool, device)
) STRICT, WITHOUT ROWID;

-- What servers said of their tools when these were first seen, or accepted last.
CREATE TABLE tool_pins (
    tool        TEXT PRIMARY KEY,
    definition  TEXT NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is to be told once, at the first start after an upgrade.
CREATE TABLE notices (
    name        TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO notices (name) SELECT 'tools-ask' WHERE EXISTS (SELECT 1 FROM sessions);

-- The name of who said it, where it was not the session's user.
ALTER TABLE entries ADD COLUMN author TEXT;
-- Whether the session is shared with the surface's user.
ALTER TABLE attachments ADD COLUMN guest INTEGER NOT NULL DEFAULT 0;
