//! The tables that a copy carries, and how each is called and ordered in both databases.
//!
//! The search index is not among them: it is derived from the logs, and the target makes its own. Nor is what
//! belongs to running processes: replicas and their counts, the owners of sessions, the times of upkeep,
//! pairing codes that wait, and the revision of what gateways keep in memory, which begins anew with them.
//!
//! A session, or what is left of a deleted one, is named by its number: the row's key in SQLite, the column
//! `number` in PostgreSQL. So both databases give equal rows.

/// The type of a column, as both databases have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    /// An integer of two bytes in PostgreSQL.
    Small,
    Bool,
    Real,
    Text,
    Bytes,
    Uuid,
    /// The number of a session or trunk; its id in PostgreSQL.
    Session,
}

/// A column, by its name in PostgreSQL and its name or expression in SQLite.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) postgres: &'static str,
    pub(super) sqlite: &'static str,
    pub(super) kind: Kind,
}

/// A table, or what stands for one in a `FROM` clause.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// What is read from in PostgreSQL, if it is not the table itself.
    pub(super) postgres_rows: Option<&'static str>,
    /// Which rows are copied.
    pub(super) only: Option<&'static str>,
    pub(super) columns: &'static [Column],
    /// By which columns the rows are read in order, in each database.
    pub(super) sqlite_key: &'static [(&'static str, Kind)],
    pub(super) postgres_key: &'static [(&'static str, Kind)],
    /// How many rows are read at once.
    pub(super) page: u32,
    /// Whether PostgreSQL has a sequence for its column `number`.
    pub(super) numbered: bool,
}

/// Both halves of `entries.place` in SQLite.
pub(super) const PLACE_LOG: &str = "place >> 32";
pub(super) const PLACE_SEQ: &str = "place & 4294967295";

const fn same(name: &'static str, kind: Kind) -> Column {
    Column { postgres: name, sqlite: name, kind }
}

const fn named(postgres: &'static str, sqlite: &'static str, kind: Kind) -> Column {
    Column { postgres, sqlite, kind }
}

const fn table(
    name: &'static str,
    columns: &'static [Column],
    sqlite_key: &'static [(&'static str, Kind)],
    postgres_key: &'static [(&'static str, Kind)],
) -> Table {
    Table {
        name,
        postgres_rows: None,
        only: None,
        columns,
        sqlite_key,
        postgres_key,
        page: 500,
        numbered: false,
    }
}

/// Rows with a number that the database gives.
const fn numbered(name: &'static str, columns: &'static [Column]) -> Table {
    Table { numbered: true, ..table(name, columns, NUMBER, NUMBER) }
}

const NUMBER: &[(&str, Kind)] = &[("number", Int)];
/// Rows of a session that have another key beside it.
const SESSION: (&str, Kind) = ("session", Int);
const SESSION_ID: (&str, Kind) = ("session", Uuid);
/// The place of a log's entry; the sequence number 0 stands for turns that have not ended.
const LOG: Column = named("session", PLACE_LOG, Session);
const SEQ: Column = named("seq", PLACE_SEQ, Int);

use Kind::{Bool, Bytes, Int, Real, Session, Small, Text, Uuid};

/// In the order in which they are copied: a blob before its uses.
pub(super) static TABLES: [Table; 32] = [
    Table {
        numbered: true,
        ..table(
            "sessions",
            &[
                named("number", "key", Int),
                same("id", Uuid),
                same("token_hash", Bytes),
                same("token_listed", Bool),
                same("token_number", Int),
                same("token_at", Int),
                named("user_id", "user", Uuid),
                same("agent_id", Text),
                same("status", Text),
                same("metadata", Text),
                same("created_at", Int),
                same("updated_at", Int),
                same("step_count", Int),
                same("last_seq", Int),
                same("delivered_seq", Int),
                same("tether_last", Int),
                same("tether_done", Int),
                same("attach_epoch", Int),
                same("turns_accepted", Int),
                same("cost_usd", Real),
                same("spent_usd", Real),
                same("prompt_tokens", Int),
                same("completion_tokens", Int),
                same("stored_bytes", Int),
                same("snapshot_id", Uuid),
                same("snapshot_seq", Int),
                same("snapshot_at", Int),
                same("snapshot_kind", Text),
                named("base", "base_key", Session),
                same("base_seq", Int),
                same("handed_to", Uuid),
                same("title", Text),
                same("auto_title", Text),
                same("fence", Int),
                same("version", Int),
                same("commit_id", Uuid),
            ],
            &[("key", Int)],
            NUMBER,
        )
    },
    table(
        "trunks",
        &[
            named("number", "key", Int),
            same("agent_id", Text),
            named("base", "base_key", Session),
            same("base_seq", Int),
        ],
        &[("key", Int)],
        NUMBER,
    ),
    table(
        "entries",
        &[
            LOG,
            SEQ,
            same("kind", Small),
            same("turn_id", Uuid),
            same("message", Text),
            same("model", Text),
            same("cost_usd", Real),
            same("status", Text),
            same("step", Int),
            same("tether_no", Int),
            same("created_at", Int),
            same("agent_id", Text),
            same("carried", Text),
            same("caller", Int),
            same("replaces", Int),
            same("author", Text),
        ],
        &[("place", Int)],
        &[SESSION_ID, ("seq", Int)],
    ),
    table("carried", &[same("session", Session), same("payload", Text)], &[SESSION], &[SESSION_ID]),
    table(
        "instructions",
        &[same("session", Session), same("messages", Text)],
        &[SESSION],
        &[SESSION_ID],
    ),
    table(
        "turns",
        &[
            same("session", Session),
            same("place", Int),
            same("id", Uuid),
            same("found", Text),
            same("request", Text),
            same("started", Bool),
            same("attempt", Int),
            same("advanced", Bool),
            same("keyed", Bool),
            same("created_at", Int),
            same("open_calls", Text),
        ],
        &[SESSION, ("place", Int)],
        &[SESSION_ID, ("place", Int)],
    ),
    table(
        "keys",
        &[
            same("scope", Text),
            same("key", Text),
            same("body_hash", Bytes),
            same("session", Session),
            same("turn_id", Uuid),
            same("result", Text),
            same("created_at", Int),
        ],
        &[("scope", Text), ("key", Text)],
        &[("scope", Text), ("key", Text)],
    ),
    table(
        "attachments",
        &[
            same("session", Session),
            same("epoch", Int),
            same("edge", Uuid),
            same("joined", Bool),
            same("context", Text),
            same("guest", Bool),
        ],
        &[SESSION, ("epoch", Int)],
        &[SESSION_ID, ("epoch", Int)],
    ),
    table(
        "surfaces",
        &[
            same("session", Session),
            same("surface_id", Text),
            same("context", Text),
            same("first_seen", Int),
            same("last_seen", Int),
            same("token_hash", Bytes),
            same("token_expires_at", Int),
            same("delivered_seq", Int),
        ],
        &[SESSION, ("surface_id", Text)],
        &[SESSION_ID, ("surface_id", Text)],
    ),
    numbered(
        "approvals",
        &[
            same("number", Int),
            same("id", Uuid),
            same("session", Session),
            same("turn_id", Uuid),
            same("seq", Int),
            same("nth", Int),
            same("tool", Text),
            same("input", Text),
            same("state", Text),
            same("created_at", Int),
            same("expires_at", Int),
            same("about", Text),
            same("definition", Text),
            same("decision", Text),
        ],
    ),
    table(
        "grants",
        &[
            same("session", Session),
            same("tool", Text),
            same("device", Text),
            same("definition", Text),
            same("created_at", Int),
        ],
        &[SESSION, ("tool", Text), ("device", Text)],
        &[SESSION_ID, ("tool", Text), ("device", Text)],
    ),
    table(
        "tool_pins",
        &[same("tool", Text), same("definition", Text), same("created_at", Int)],
        &[("tool", Text)],
        &[("tool", Text)],
    ),
    table("notices", &[same("name", Text)], &[("name", Text)], &[("name", Text)]),
    Table {
        page: 4,
        ..table(
            "blobs",
            &[same("hash", Bytes), same("bytes", Bytes)],
            &[("hash", Bytes)],
            &[("hash", Bytes)],
        )
    },
    table(
        "blob_uses",
        &[same("hash", Bytes), LOG, SEQ],
        &[("hash", Bytes), ("place", Int)],
        &[("hash", Bytes), SESSION_ID, ("seq", Int)],
    ),
    table(
        "users",
        &[
            same("id", Uuid),
            same("name", Text),
            same("role", Text),
            same("limits", Text),
            same("created_at", Int),
            same("disabled_at", Int),
        ],
        &[("id", Uuid)],
        &[("id", Uuid)],
    ),
    table(
        "user_keys",
        &[
            same("id", Text),
            named("user_id", "user", Uuid),
            same("name", Text),
            same("secret_hash", Bytes),
            same("device", Bytes),
            same("scopes", Text),
            same("agents", Text),
            same("models", Text),
            same("limits", Text),
            same("created_at", Int),
            same("expires_at", Int),
            same("revoked_at", Int),
            same("last_used_at", Int),
        ],
        &[("id", Text)],
        &[("id", Text)],
    ),
    table(
        "shares",
        &[same("session", Session), named("user_id", "user", Uuid), same("share", Text)],
        &[SESSION, ("user", Uuid)],
        &[SESSION_ID, ("user_id", Uuid)],
    ),
    numbered(
        "exports",
        &[
            same("number", Int),
            same("id", Uuid),
            same("session_id", Uuid),
            same("cid", Bytes),
            same("label", Text),
            same("messages", Int),
            same("with_memory", Bool),
            same("created_at", Int),
            same("expires_at", Int),
            same("imported_at", Int),
            same("imported_as", Uuid),
            same("peer", Text),
            same("announce", Bool),
        ],
    ),
    Table {
        page: 2,
        ..table(
            "bundles",
            &[same("export", Int), same("expires_at", Int), same("bundle", Bytes)],
            &[("export", Int)],
            &[("export", Int)],
        )
    },
    numbered(
        "edges",
        &[
            same("number", Int),
            same("kind", Text),
            same("origin", Text),
            same("session", Text),
            same("export_id", Uuid),
            same("detail", Text),
            same("created_at", Int),
            named("user_id", "user", Uuid),
        ],
    ),
    numbered(
        "memories",
        &[
            same("number", Int),
            same("id", Uuid),
            named("user_id", "user", Uuid),
            same("agent_id", Text),
            same("kind", Text),
            same("text", Text),
            same("session_id", Uuid),
            same("created_at", Int),
        ],
    ),
    Table {
        // Each process of PostgreSQL's gateways counts in rows of its own.
        postgres_rows: Some(
            "(SELECT day, user_id, user_key, sum(turns)::bigint AS turns,
                     sum(model_calls)::bigint AS model_calls,
                     sum(prompt_tokens)::bigint AS prompt_tokens,
                     sum(completion_tokens)::bigint AS completion_tokens,
                     sum(usd_micros)::bigint AS usd_micros, sum(exports)::bigint AS exports
              FROM spending GROUP BY day, user_id, user_key) AS days",
        ),
        ..table(
            "spending",
            &[
                same("day", Int),
                named("user_id", "user", Uuid),
                same("user_key", Text),
                same("turns", Int),
                same("model_calls", Int),
                same("prompt_tokens", Int),
                same("completion_tokens", Int),
                same("usd_micros", Int),
                same("exports", Int),
            ],
            &[("day", Int), ("user", Uuid), ("user_key", Text)],
            &[("day", Int), ("user_id", Uuid), ("user_key", Text)],
        )
    },
    numbered(
        "audit",
        &[
            same("number", Int),
            same("at", Int),
            named("user_id", "user", Uuid),
            same("credential", Text),
            same("action", Text),
            same("object", Text),
            same("result", Text),
            same("address", Text),
            same("times", Int),
            same("hour", Int),
        ],
    ),
    Table {
        // Written by readiness checks, and no secret.
        only: Some("name <> 'probe'"),
        ..table(
            "secrets",
            &[same("name", Text), same("secret", Bytes)],
            &[("name", Text)],
            &[("name", Text)],
        )
    },
    numbered(
        "signing_keys",
        &[same("number", Int), same("secret", Bytes), same("created_at", Int)],
    ),
    table(
        "peer_tokens",
        &[same("issuer", Text), same("jti", Uuid), same("expires_at", Int)],
        &[("issuer", Text), ("jti", Uuid)],
        &[("issuer", Text), ("jti", Uuid)],
    ),
    table(
        "reservations",
        &[
            same("id", Uuid),
            same("peer", Text),
            same("session_id", Uuid),
            same("export_id", Uuid),
            same("bundle_id", Uuid),
            same("cid", Bytes),
            same("state", Text),
            same("expires_at", Int),
            same("last_seq", Int),
            same("created_at", Int),
        ],
        &[("id", Uuid)],
        &[("id", Uuid)],
    ),
    table(
        "forwards",
        &[
            same("session_id", Uuid),
            same("peer", Text),
            same("url", Text),
            same("moved_to", Uuid),
            same("created_at", Int),
        ],
        &[("session_id", Uuid)],
        &[("session_id", Uuid)],
    ),
    table(
        "migrations",
        &[
            same("id", Uuid),
            same("origin", Text),
            same("export_id", Uuid),
            named("user_id", "user", Uuid),
            same("request", Text),
            same("stage", Text),
            same("why", Text),
            same("session_id", Uuid),
            same("created_at", Int),
        ],
        &[("id", Uuid)],
        &[("id", Uuid)],
    ),
    Table {
        page: 2,
        ..table(
            "staged",
            &[same("migration", Uuid), same("bundle", Bytes)],
            &[("migration", Uuid)],
            &[("migration", Uuid)],
        )
    },
    table(
        "peers",
        &[
            same("gateway_id", Text),
            same("url", Text),
            same("key", Bytes),
            same("issued_at", Int),
            same("shown", Bytes),
        ],
        &[("gateway_id", Text)],
        &[("gateway_id", Text)],
    ),
];

impl Table {
    /// The condition on all rows that are copied.
    pub(super) fn condition(&self) -> &'static str {
        self.only.unwrap_or("true")
    }

    pub(super) fn postgres_from(&self) -> &'static str {
        self.postgres_rows.unwrap_or(self.name)
    }
}

/// The table of that name.
pub(super) fn by_name(name: &str) -> &'static Table {
    TABLES.iter().find(|table| table.name == name).expect("the names are those of this file")
}
