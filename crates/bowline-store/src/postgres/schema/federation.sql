-- Sessions that move between gateways.

-- The gateway that the export is for, if one was named.
ALTER TABLE exports ADD COLUMN peer text COLLATE "C";
CREATE INDEX exports_cid ON exports (cid);

-- One-time ids of tokens of other gateways, until these expire.
CREATE TABLE peer_tokens (
    issuer              text COLLATE "C" NOT NULL,
    jti                 uuid NOT NULL,
    expires_at          bigint NOT NULL,
    PRIMARY KEY (issuer, jti)
);
CREATE INDEX peer_tokens_expiry ON peer_tokens (expires_at);

-- Who may take which session away: reserved, confirmed or ended.
CREATE TABLE reservations (
    id                  uuid PRIMARY KEY,
    peer                text COLLATE "C" NOT NULL,
    session_id          uuid NOT NULL,
    -- That of the roaming token, and the one with the reserved bundle.
    export_id           uuid NOT NULL,
    bundle_id           uuid NOT NULL,
    cid                 bytea NOT NULL,
    state               text COLLATE "C" NOT NULL,
    expires_at          bigint NOT NULL,
    last_seq            bigint NOT NULL,
    created_at          bigint NOT NULL
);
CREATE INDEX reservations_session ON reservations (session_id);
CREATE INDEX reservations_export ON reservations (export_id);

-- Where sessions went.
CREATE TABLE forwards (
    session_id          uuid PRIMARY KEY,
    peer                text COLLATE "C" NOT NULL,
    url                 text NOT NULL,
    moved_to            uuid NOT NULL,
    created_at          bigint NOT NULL
);

-- Sessions that come from other gateways: reserving, staged, active or dropped.
CREATE TABLE migrations (
    id                  uuid PRIMARY KEY,
    origin              text COLLATE "C" NOT NULL,
    export_id           uuid NOT NULL,
    user_id             uuid NOT NULL,
    -- What was asked for: a JSON object.
    request             text NOT NULL,
    stage               text COLLATE "C" NOT NULL,
    why                 text COLLATE "C",
    session_id          uuid,
    created_at          bigint NOT NULL
);
CREATE UNIQUE INDEX migrations_open ON migrations (origin, export_id) WHERE stage <> 'dropped';
-- The bundles of those that are staged.
CREATE TABLE staged (
    migration           uuid PRIMARY KEY,
    bundle              bytea NOT NULL
);

-- The keys of other gateways.
CREATE TABLE peers (
    gateway_id          text COLLATE "C" PRIMARY KEY,
    url                 text NOT NULL,
    key                 bytea NOT NULL,
    issued_at           bigint NOT NULL,
    -- Another key that was shown, and waits for a person.
    shown               bytea
);
