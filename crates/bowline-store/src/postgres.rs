//! The session log in PostgreSQL: one database for any number of gateway processes.
//!
//! Commits of live sessions are gathered by one task, which sends them together (see [`committer`]). Everything
//! else is a transaction of its own on a connection from a pool. Correctness rests on row locks and on the fence
//! in each session's row, never on what a process remembers.
//!
//! The files are those of [`crate::sqlite`]; each also implements the trait of its subject.

mod approvals;
mod audit;
mod backoff;
mod batch;
mod blobs;
mod commit;
mod committer;
mod connect;
mod counts;
mod devices;
mod error;
mod exports;
mod federation;
mod fold;
mod handoff;
mod history;
mod keys;
mod later;
mod leases;
mod lineage;
mod load;
mod locks;
mod log;
mod logs;
mod memory;
mod pairing;
mod phrases;
mod pool;
mod rememberers;
mod revision;
mod roaming;
mod rows;
mod schema;
mod search;
mod secrets;
mod servers;
mod sessions;
mod statements;
mod tether;
pub(crate) mod text;
mod titles;
mod trunks;
mod upkeep;
mod usage;
mod users;
mod words;

use uuid::Uuid;

use self::committer::Committer;
pub use self::connect::PostgresConfig;
pub(crate) use self::error::{open_error, text_of};
use self::later::LaterWrites;
use self::leases::LeaseRenewer;
use self::pool::Pool;
use self::rememberers::Rememberers;
pub(crate) use self::schema::schema_version;
pub use self::schema::{Migration, VERSION as SCHEMA_VERSION, migrate};
pub(crate) use self::words::words_of;
use crate::OpenError;

/// A PostgreSQL database, used by this process and others.
#[derive(Debug)]
pub struct Postgres {
    pool: Pool,
    committer: Committer,
    /// Renews the lease of this process's replica.
    renewer: LeaseRenewer,
    /// Names this process in rows that each process has of its own.
    writer: Uuid,
    /// Writes that nobody waits for.
    later: LaterWrites,
    /// Which agents have memories.
    rememberers: Rememberers,
    /// One search at a time.
    searching: tokio::sync::Mutex<()>,
}

/// The version of the schema in a database that can be used; none if it is empty. Changes nothing.
pub async fn version_of(config: &PostgresConfig) -> Result<Option<u32>, OpenError> {
    let failed = |error| open_error(config, &error);
    let (client, _task) = config.connect().await.map_err(failed)?;
    schema::check_server(&client).await?;
    match schema_version(&client, config).await? {
        Some(found) if found > SCHEMA_VERSION => {
            Err(OpenError::NewerSchema { found, known: SCHEMA_VERSION })
        }
        found => Ok(found),
    }
}

impl Postgres {
    /// Opens the database and migrates it as needed.
    pub async fn open(config: &PostgresConfig) -> Result<Self, OpenError> {
        if schema::migrate(config).await?.is_unfinished {
            return Err(OpenError::Copying { path: config.name() });
        }
        let pool = Pool::new(config.clone())?;
        let writer = Uuid::new_v4();
        Ok(Self {
            committer: Committer::start(config.clone(), pool.clone(), writer),
            renewer: LeaseRenewer::new(config.clone()),
            later: LaterWrites::new(pool.clone(), writer),
            rememberers: Rememberers::start(pool.clone()),
            searching: tokio::sync::Mutex::default(),
            pool,
            writer,
        })
    }
}
