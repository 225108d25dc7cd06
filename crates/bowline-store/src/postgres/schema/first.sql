-- Version 1: everything that a gateway stores.
--
-- Sessions are named by their uuid. Times are milliseconds since 1970. A text that a caller may choose is
-- written escaped (`text.rs`), because PostgreSQL has no U+0000. Texts that are compared or sorted are so by
-- their bytes (COLLATE "C"), whatever the locale of the database is.

CREATE TABLE sessions (
    id                  uuid PRIMARY KEY,
    -- The order of lists. Never the order of a log.
    number              bigint GENERATED ALWAYS AS IDENTITY,
    token_hash          bytea NOT NULL,
    -- Whether the session is found by its token alone.
    token_listed        boolean NOT NULL,
    -- How often the token was replaced, and when it was made; null: with the session.
    token_number        bigint NOT NULL DEFAULT 0,
    token_at            bigint,
    user_id             uuid NOT NULL,
    agent_id            text COLLATE "C" NOT NULL,
    status              text COLLATE "C" NOT NULL,
    metadata            text NOT NULL,
    created_at          bigint NOT NULL,
    updated_at          bigint NOT NULL,
    step_count          bigint NOT NULL DEFAULT 0,
    last_seq            bigint NOT NULL DEFAULT 0,
    delivered_seq       bigint NOT NULL DEFAULT 0,
    tether_last         bigint NOT NULL DEFAULT 0,
    tether_done         bigint NOT NULL DEFAULT 0,
    attach_epoch        bigint NOT NULL DEFAULT 0,
    turns_accepted      bigint NOT NULL DEFAULT 0,
    -- spent_usd is what the session's own turns cost; cost_usd also counts what an import brought.
    cost_usd            double precision NOT NULL DEFAULT 0,
    spent_usd           double precision NOT NULL DEFAULT 0,
    prompt_tokens       bigint NOT NULL DEFAULT 0,
    completion_tokens   bigint NOT NULL DEFAULT 0,
    stored_bytes        bigint NOT NULL DEFAULT 0,
    snapshot_id         uuid,
    snapshot_seq        bigint,
    snapshot_at         bigint,
    snapshot_kind       text,
    -- A fork's entries up to base_seq are those of another session, or of what is left of one.
    base                uuid,
    base_seq            bigint,
    -- The session that continues this one after a handoff.
    handed_to           uuid,
    -- What a person called it, and the first words that were said.
    title               text,
    auto_title          text,
    -- The owner's lease: who, how often it was taken, how many commits there were, and the last one.
    owner               uuid,
    fence               bigint NOT NULL DEFAULT 0,
    version             bigint NOT NULL DEFAULT 0,
    commit_id           uuid,
    -- The transaction of the last commit: the other statements of that transaction write only what belongs to
    -- sessions that it was allowed to write.
    written_in          xid8
-- Every commit writes the row: with room in its page, no index is written (HOT).
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX sessions_number ON sessions (number);
CREATE UNIQUE INDEX sessions_token ON sessions (token_hash) WHERE token_listed;
CREATE INDEX sessions_base ON sessions (base, base_seq) WHERE base IS NOT NULL;
CREATE INDEX sessions_user ON sessions (user_id, number);

-- The log.
CREATE TABLE entries (
    session             uuid NOT NULL,
    seq                 bigint NOT NULL,
    -- 0 message, 1 turn, 2 note, 3 action
    kind                smallint NOT NULL,
    turn_id             uuid NOT NULL,
    message             text NOT NULL,
    model               text,
    cost_usd            double precision NOT NULL,
    status              text NOT NULL,
    step                bigint NOT NULL,
    -- The number of this Tether turn in its session; null for what is not tethered.
    tether_no           bigint,
    created_at          bigint NOT NULL,
    -- Who took the turn, where it was not the session's own agent.
    agent_id            text,
    -- Fields of an imported message that are not for a model: a JSON object.
    carried             text,
    -- A hash of the caller's credential and client. Null: a surface, or an import.
    caller              bigint,
    -- The seq of the answer that this turn's answer supersedes.
    replaces            bigint,
    -- The name of who said it, where it was not the session's user.
    author              text,
    PRIMARY KEY (session, seq)
);

-- A deleted session whose entries forks still share: where it leaves its own base. There is a session or a
-- trunk of an id, never both.
CREATE TABLE trunks (
    id                  uuid PRIMARY KEY,
    -- Those of its session.
    number              bigint NOT NULL,
    user_id             uuid NOT NULL,
    agent_id            text COLLATE "C" NOT NULL,
    base                uuid,
    base_seq            bigint
);
CREATE INDEX trunks_base ON trunks (base, base_seq) WHERE base IS NOT NULL;

-- What an imported bundle brought that has no column here: a JSON object.
CREATE TABLE carried (
    session             uuid PRIMARY KEY,
    payload             text NOT NULL
);

-- The session's current instruction, where it is another than the system messages in its log: a JSON list.
CREATE TABLE instructions (
    session             uuid PRIMARY KEY,
    messages            text NOT NULL
);

-- Turns that were accepted and have not ended.
CREATE TABLE turns (
    session             uuid NOT NULL,
    -- The order in which they run.
    place               bigint NOT NULL,
    id                  uuid NOT NULL,
    -- The session's status before the turn; null if the turn made the session.
    found               text,
    request             text NOT NULL,
    started             boolean NOT NULL,
    attempt             bigint NOT NULL,
    -- Whether what was asked, and perhaps more, is in the log already.
    advanced            boolean NOT NULL,
    keyed               boolean NOT NULL,
    created_at          bigint NOT NULL,
    PRIMARY KEY (session, place)
);
CREATE UNIQUE INDEX turns_id ON turns (id);

CREATE TABLE keys (
    scope               text COLLATE "C" NOT NULL,
    key                 text COLLATE "C" NOT NULL,
    body_hash           bytea NOT NULL,
    session             uuid NOT NULL,
    turn_id             uuid,
    result              text,
    created_at          bigint NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX keys_turn ON keys (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX keys_session ON keys (session);
CREATE INDEX keys_created ON keys (created_at);

-- Processes that may write. One that is not here, or dead, owns nothing. The clock is that of the database.
CREATE TABLE replicas (
    id                  uuid PRIMARY KEY,
    dead                boolean NOT NULL DEFAULT false,
    expires_at          timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE attachments (
    session             uuid NOT NULL,
    epoch               bigint NOT NULL,
    -- The replica that holds the socket.
    edge                uuid NOT NULL,
    joined              boolean NOT NULL,
    context             text NOT NULL,
    -- Whether the session is shared with the surface's user.
    guest               boolean NOT NULL,
    PRIMARY KEY (session, epoch)
);

-- Devices that were attached under a name of their own.
CREATE TABLE surfaces (
    session             uuid NOT NULL,
    surface_id          text COLLATE "C" NOT NULL,
    context             text NOT NULL,
    first_seen          bigint NOT NULL,
    -- 0: it has never attached.
    last_seen           bigint NOT NULL,
    -- The hash of the device's own token.
    token_hash          bytea,
    token_expires_at    bigint,
    -- Null: it has never attached.
    delivered_seq       bigint,
    PRIMARY KEY (session, surface_id)
);

CREATE TABLE approvals (
    number              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id                  uuid NOT NULL UNIQUE,
    session             uuid NOT NULL,
    turn_id             uuid NOT NULL,
    -- The log entry with the call, and which of its calls.
    seq                 bigint NOT NULL,
    nth                 bigint NOT NULL,
    tool                text NOT NULL,
    input               text NOT NULL,
    state               text NOT NULL,
    created_at          bigint NOT NULL,
    expires_at          bigint NOT NULL,
    -- The rest, as JSON; the definition that it is for; who decided, as JSON.
    about               text NOT NULL,
    definition          text NOT NULL,
    decision            text,
    UNIQUE (turn_id, seq, nth)
);
CREATE INDEX approvals_session ON approvals (session, number);
CREATE INDEX approvals_expiry ON approvals (expires_at);

-- Tools that a person allowed for good, by session and device.
CREATE TABLE grants (
    session             uuid NOT NULL,
    tool                text COLLATE "C" NOT NULL,
    device              text COLLATE "C" NOT NULL,
    definition          text NOT NULL,
    created_at          bigint NOT NULL,
    PRIMARY KEY (session, tool, device)
);

-- What servers said of their tools when these were first seen, or accepted last.
CREATE TABLE tool_pins (
    tool                text COLLATE "C" PRIMARY KEY,
    definition          text NOT NULL,
    created_at          bigint NOT NULL
);

-- What is to be told once, at the first start after an upgrade.
CREATE TABLE notices (
    name                text COLLATE "C" PRIMARY KEY
);

-- Images, sounds and files, by the SHA-256 of their bytes. They are compressed already.
CREATE TABLE blobs (
    hash                bytea PRIMARY KEY,
    bytes               bytea NOT NULL
);
ALTER TABLE blobs ALTER COLUMN bytes SET STORAGE EXTERNAL;
-- The entries that refer to a blob; seq 0 of a log: its unfinished turns. The reference keeps a blob from
-- being deleted by one transaction while another one adds a use of it.
CREATE TABLE blob_uses (
    hash                bytea NOT NULL REFERENCES blobs (hash),
    session             uuid NOT NULL,
    seq                 bigint NOT NULL,
    PRIMARY KEY (hash, session, seq)
);
CREATE INDEX blob_uses_session ON blob_uses (session, seq);

CREATE TABLE users (
    id                  uuid PRIMARY KEY,
    name                text NOT NULL,
    -- In lower case (ASCII), because a name is unique whatever its case.
    folded_name         text COLLATE "C" NOT NULL UNIQUE,
    role                text NOT NULL,
    limits              text NOT NULL DEFAULT '{}',
    created_at          bigint NOT NULL,
    disabled_at         bigint
);
INSERT INTO users (id, name, folded_name, role, created_at)
    VALUES ('00000000-0000-0000-0000-000000000000', 'owner', 'owner', 'owner', 0);

CREATE TABLE user_keys (
    id                  text COLLATE "C" PRIMARY KEY,
    user_id             uuid NOT NULL,
    name                text NOT NULL,
    secret_hash         bytea NOT NULL,
    -- The public key of a device. A revoked row keeps it, so that a list still says what it was.
    device              bytea,
    scopes              text NOT NULL,
    -- Patterns, one a line; none: all.
    agents              text NOT NULL,
    models              text NOT NULL,
    limits              text NOT NULL DEFAULT '{}',
    created_at          bigint NOT NULL,
    expires_at          bigint,
    revoked_at          bigint,
    last_used_at        bigint
);
CREATE INDEX user_keys_user ON user_keys (user_id);
CREATE UNIQUE INDEX user_keys_device ON user_keys (device) WHERE device IS NOT NULL AND revoked_at IS NULL;

CREATE TABLE shares (
    session             uuid NOT NULL,
    user_id             uuid NOT NULL,
    share               text NOT NULL,
    PRIMARY KEY (session, user_id)
);
CREATE INDEX shares_user ON shares (user_id);

CREATE TABLE exports (
    number              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id                  uuid NOT NULL UNIQUE,
    session_id          uuid NOT NULL,
    cid                 bytea NOT NULL,
    label               text,
    messages            bigint NOT NULL,
    with_memory         boolean NOT NULL,
    created_at          bigint NOT NULL,
    expires_at          bigint NOT NULL,
    imported_at         bigint,
    imported_as         uuid
);
CREATE INDEX exports_session ON exports (session_id, number);

-- Until it has expired, or its session is deleted.
CREATE TABLE bundles (
    export              bigint PRIMARY KEY,
    expires_at          bigint NOT NULL,
    bundle              bytea NOT NULL
);
CREATE INDEX bundles_expiry ON bundles (expires_at);

-- Where sessions come from. Ids are text: one end may belong to another gateway.
CREATE TABLE edges (
    number              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind                text NOT NULL,
    origin              text COLLATE "C" NOT NULL,
    session             text COLLATE "C" NOT NULL,
    export_id           uuid,
    detail              text NOT NULL,
    created_at          bigint NOT NULL,
    -- Whose session the edge leads to.
    user_id             uuid NOT NULL
);
CREATE INDEX edges_origin ON edges (origin);
CREATE INDEX edges_session ON edges (session);

CREATE TABLE memories (
    number              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id                  uuid NOT NULL UNIQUE,
    user_id             uuid NOT NULL,
    agent_id            text COLLATE "C" NOT NULL,
    kind                text COLLATE "C" NOT NULL,
    text                text NOT NULL,
    -- The SHA-256 of the text, which may be longer than an index takes.
    text_hash           bytea NOT NULL,
    session_id          uuid,
    created_at          bigint NOT NULL,
    -- The words of the text.
    words               tsvector NOT NULL
);
CREATE UNIQUE INDEX memories_agent ON memories (user_id, agent_id, kind, text_hash);
CREATE INDEX memories_number ON memories (user_id, agent_id, number);

-- What was used on a UTC day, counted from 1970: by a user in all, and by each key. Each process has rows of
-- its own, so that the commits of one do not wait for those of another.
CREATE TABLE spending (
    day                 bigint NOT NULL,
    user_id             uuid NOT NULL,
    -- Empty: the user in all, with and without keys.
    user_key            text COLLATE "C" NOT NULL,
    writer              uuid NOT NULL,
    turns               bigint NOT NULL,
    model_calls         bigint NOT NULL,
    prompt_tokens       bigint NOT NULL,
    completion_tokens   bigint NOT NULL,
    usd_micros          bigint NOT NULL,
    exports             bigint NOT NULL,
    PRIMARY KEY (day, user_id, user_key, writer)
) WITH (fillfactor = 50);

-- What was done, by whom. Only appended to, and deleted by age. A row with an hour is a tally.
CREATE TABLE audit (
    number              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at                  bigint NOT NULL,
    user_id             uuid,
    credential          text COLLATE "C" NOT NULL,
    action              text COLLATE "C" NOT NULL,
    object              text NOT NULL,
    result              text COLLATE "C" NOT NULL,
    address             text COLLATE "C" NOT NULL,
    times               bigint NOT NULL,
    hour                bigint
);
CREATE INDEX audit_at ON audit (at);
CREATE UNIQUE INDEX audit_tallies ON audit (hour, action, result, credential, address,
    coalesce(user_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')) WHERE hour IS NOT NULL;

CREATE TABLE secrets (
    name                text COLLATE "C" PRIMARY KEY,
    secret              bytea NOT NULL
);

-- The keys behind roaming tokens; numbers are never used twice.
CREATE TABLE signing_keys (
    number              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    secret              bytea NOT NULL,
    created_at          bigint NOT NULL
);

-- The words of entries. It holds no text: that is in the log.
CREATE TABLE entry_words (
    -- The session or trunk.
    log                 uuid NOT NULL,
    seq                 bigint NOT NULL,
    -- Those of the session: the order of hits, and whose they are.
    number              bigint NOT NULL,
    user_id             uuid NOT NULL,
    words               tsvector NOT NULL,
    PRIMARY KEY (log, seq)
);
-- Without a list of words to be sorted in later: what is deleted is in no such list, and no search pays for it.
CREATE INDEX entry_words_words ON entry_words USING gin (words) WITH (fastupdate = off);
CREATE INDEX entry_words_user ON entry_words (user_id);

-- Up to where each log is indexed.
CREATE TABLE indexed (
    log                 uuid PRIMARY KEY,
    seq                 bigint NOT NULL
);


-- Counts changes of what gateways keep in memory (`postgres/revision.rs`). One row: changes wait for each other,
-- so that whoever reads a number sees all changes up to it.
CREATE TABLE access_revision (
    only_row            boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    revision            bigint NOT NULL
);
INSERT INTO access_revision (revision) VALUES (0);

-- What each replica counts now, of a user or of a key; the other one is empty.
CREATE TABLE replica_counts (
    replica             uuid NOT NULL,
    user_id             uuid,
    user_key            text COLLATE "C" NOT NULL,
    minute              bigint NOT NULL,
    requests            bigint NOT NULL,
    turns               bigint NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX replica_counts_of ON replica_counts
    (replica, user_key, coalesce(user_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'));

-- When each periodic task was begun last.
CREATE TABLE upkeep (
    task                text COLLATE "C" PRIMARY KEY,
    done_at             timestamptz NOT NULL
);
