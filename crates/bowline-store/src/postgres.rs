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
mod connect;
mod devices;
mod error;
mod leases;
mod logs;
mod memory;
mod pool;
mod roaming;
mod rows;
mod schema;
mod search;
mod secrets;
mod sessions;
mod tether;
mod text;
mod tls;
mod upkeep;
mod usage;
mod users;

use uuid::Uuid;

pub use self::connect::PostgresConfig;
use self::pool::Pool;
use crate::OpenError;

/// A PostgreSQL database, used by this process and others.
#[derive(Debug)]
pub struct Postgres {
    pool: Pool,
    /// Names this process in rows that each process has of its own.
    writer: Uuid,
}

impl Postgres {
    /// Opens the database and migrates it as needed.
    pub async fn open(config: &PostgresConfig) -> Result<Self, OpenError> {
        schema::migrate(config).await?;
        Ok(Self { pool: Pool::new(config.clone())?, writer: Uuid::new_v4() })
    }
}
