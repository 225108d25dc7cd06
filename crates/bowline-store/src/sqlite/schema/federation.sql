-- Sessions that move between gateways.

-- The gateway that the export is for, if one was named.
ALTER TABLE exports ADD COLUMN peer TEXT;
CREATE INDEX exports_cid ON exports (cid);

-- One-time ids of tokens of other gateways, until these expire.
CREATE TABLE peer_tokens (
    issuer      TEXT NOT NULL,
    jti         BLOB NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (issuer, jti)
) STRICT, WITHOUT ROWID;
CREATE INDEX peer_tokens_expiry ON peer_tokens (expires_at);

-- Who may take which session away: reserved, confirmed or ended.
CREATE TABLE reservations (
    id          BLOB PRIMARY KEY,
    peer        TEXT NOT NULL,
    session_id  BLOB NOT NULL,
    -- That of the roaming token, and the one with the reserved bundle.
    export_id   BLOB NOT NULL,
    bundle_id   BLOB NOT NULL,
    cid         BLOB NOT NULL,
    state       TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX reservations_session ON reservations (session_id);
CREATE INDEX reservations_export ON reservations (export_id);

-- Where sessions went.
CREATE TABLE forwards (
    session_id  BLOB PRIMARY KEY,
    peer        TEXT NOT NULL,
    url         TEXT NOT NULL,
    moved_to    BLOB NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Sessions that come from other gateways: reserving, staged, active or dropped.
CREATE TABLE migrations (
    id          BLOB PRIMARY KEY,
    origin      TEXT NOT NULL,
    export_id   BLOB NOT NULL,
    user        BLOB NOT NULL,
    -- What was asked for: a JSON object.
    request     TEXT NOT NULL,
    stage       TEXT NOT NULL,
    why         TEXT,
    session_id  BLOB,
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX migrations_open ON migrations (origin, export_id) WHERE stage <> 'dropped';
-- The bundles of those that are staged.
CREATE TABLE staged (
    migration   BLOB PRIMARY KEY,
    bundle      BLOB NOT NULL
) STRICT;

-- The keys of other gateways.
CREATE TABLE peers (
    gateway_id  TEXT PRIMARY KEY,
    url         TEXT NOT NULL,
    key         BLOB NOT NULL,
    issued_at   INTEGER NOT NULL,
    -- Another key that was shown, and waits for a person.
    shown       BLOB
) STRICT, WITHOUT ROWID;
