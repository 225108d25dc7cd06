//! The schema and its migrations: forward only, each in the transaction that records it.
//!
//! Several processes may start at once: an advisory lock lets one of them migrate, and the others find its work
//! done. A database that holds other tables is left alone.

use tokio_postgres::Client;

use super::connect::PostgresConfig;
use super::error::{open_error, text_of};
use crate::OpenError;

/// Each element brings the schema from its index to the next version.
const MIGRATIONS: [&str; 5] = [
    include_str!("schema/first.sql"),
    include_str!("schema/pairing.sql"),
    include_str!("schema/federation.sql"),
    include_str!("schema/announced.sql"),
    include_str!("schema/open_calls.sql"),
];

/// The schema version that this version writes.
pub const VERSION: u32 = MIGRATIONS.len() as u32;

/// Marks the schema as ours, with its version.
const MARKER: &str = "
    CREATE TABLE bowline (
        only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        version     integer NOT NULL
    );
    INSERT INTO bowline (version) VALUES (0)";

/// The lock of who migrates ("bowl"), of each schema.
const LOCK: &str = "SELECT pg_advisory_xact_lock(x'626f776c'::int, hashtext($1))";
const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock(x'626f776c'::int, hashtext($1))";

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// The version before; 0 if there was nothing.
    pub from: u32,
    pub to: u32,
    /// Whether a copy into the database did not finish.
    pub is_unfinished: bool,
}

/// Tables that are not those of an extension.
const TABLES: &str = "
    SELECT count(*), count(*) FILTER (WHERE c.relname = 'bowline')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')
      AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')";

/// Migrates the database to the current schema; an error if it is newer or not ours.
pub async fn migrate(config: &PostgresConfig) -> Result<Migration, OpenError> {
    let failed = |error: tokio_postgres::Error| open_error(config, &error);
    let (mut client, _task) = config.connect().await.map_err(failed)?;
    check_server(&client).await?;
    let tx = client.transaction().await.map_err(failed)?;
    // Building an index of much data takes long, and so does waiting for who does it.
    tx.batch_execute("SET LOCAL lock_timeout TO 0; SET LOCAL statement_timeout TO 0")
        .await
        .map_err(failed)?;
    let locked = tx.query_one(TRY_LOCK, &[&config.schema()]).await.map_err(failed)?;
    if !locked.get::<_, bool>(0) {
        tracing::warn!("another gateway is migrating the database; waiting until it is done");
        tx.execute(LOCK, &[&config.schema()]).await.map_err(failed)?;
    }
    let tables = tx.query_one(TABLES, &[&config.schema()]).await.map_err(failed)?;
    let (all, ours): (i64, i64) = (tables.get(0), tables.get(1));
    if all > 0 && ours == 0 {
        return Err(OpenError::Foreign { path: config.name() });
    }
    if all == 0 {
        // Not for one that is there: the right to make schemas is not everybody's.
        let known = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
        if tx.query_opt(known, &[&config.schema()]).await.map_err(failed)?.is_none() {
            let create = format!("CREATE SCHEMA \"{}\"", config.schema());
            tx.batch_execute(&create).await.map_err(failed)?;
        }
        tx.batch_execute(MARKER).await.map_err(failed)?;
    }
    let row = tx.query_one("SELECT version FROM bowline", &[]).await.map_err(failed)?;
    let found = u32::try_from(row.get::<_, i32>(0)).unwrap_or(u32::MAX);
    if found > VERSION {
        return Err(OpenError::NewerSchema { found, known: VERSION });
    }
    let unfinished = tx.query_one("SELECT to_regclass('copying') IS NOT NULL", &[]).await;
    let is_unfinished = unfinished.map_err(failed)?.get(0);
    let migration = Migration { from: found, to: VERSION, is_unfinished };
    if found == VERSION {
        return Ok(migration);
    }
    for (version, step) in (1..).zip(MIGRATIONS).skip(found as usize) {
        if found > 0 {
            tracing::info!(version, of = VERSION, "migrating the database");
        }
        tx.batch_execute(step).await.map_err(failed)?;
    }
    tx.execute("UPDATE bowline SET version = $1", &[&(VERSION as i32)]).await.map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(migration)
}

/// The version of the schema; none if there is nothing of ours.
pub(crate) async fn schema_version(
    client: &Client,
    config: &PostgresConfig,
) -> Result<Option<u32>, OpenError> {
    let failed = |error: tokio_postgres::Error| open_error(config, &error);
    let known = client.query_one("SELECT to_regclass('bowline') IS NOT NULL", &[]).await;
    if !known.map_err(failed)?.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_one("SELECT version FROM bowline", &[]).await.map_err(failed)?;
    Ok(Some(u32::try_from(row.get::<_, i32>(0)).unwrap_or(u32::MAX)))
}

/// The oldest PostgreSQL that has all that is used here.
const OLDEST: &str = "13";

/// Whether the server is one that keeps what it says it keeps.
pub(super) async fn check_server(client: &Client) -> Result<(), OpenError> {
    let failed = |error: tokio_postgres::Error| OpenError::Database(text_of(&error));
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int >= 130000,
                    current_setting('server_encoding') = 'UTF8',
                    current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'",
            &[],
        )
        .await
        .map_err(failed)?;
    let refuse = |reason: String| Err(OpenError::Database(reason));
    if !row.get::<_, bool>(0) {
        return refuse(format!("PostgreSQL {OLDEST} or newer is needed"));
    }
    if !row.get::<_, bool>(1) {
        return refuse("the database's encoding must be UTF8".into());
    }
    if !row.get::<_, bool>(2) {
        tracing::warn!(
            "the database runs without fsync: a power cut loses or damages what was stored"
        );
    }
    Ok(())
}
