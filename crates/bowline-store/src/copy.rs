//! Copies everything that a gateway stores from one database to another, and checks databases.
//!
//! Rows are copied as rows, with their ids, numbers and hashes, table by table. Where the copy stands is
//! stored in the target (`copying`), in the transaction of the rows: a copy that was interrupted goes on
//! there. While that table exists no gateway opens the target. At the end both sides are read again and
//! compared.
//!
//! The source is only read. Calls to SQLite block the thread: nothing else runs in a process that copies.

mod check;
mod compare;
mod error;
mod postgres;
mod sqlite;
mod tables;
mod value;

use std::path::PathBuf;

use self::tables::{TABLES, Table};
use self::value::{Cursor, Page};
use crate::postgres::PostgresConfig;

pub use self::check::{CheckReport, check};
pub use self::error::CopyError;

/// About how many bytes are read at once.
const PAGE_BYTES: usize = 4 << 20;

/// Where a database is.
#[derive(Debug, Clone)]
pub enum Place {
    /// A data folder.
    Sqlite(PathBuf),
    Postgres(Box<PostgresConfig>),
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub step: Step,
    pub table: &'static str,
    pub rows: u64,
    pub of: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Copying,
    Comparing,
}

/// What a copy did. Everything in it was compared with the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyReport {
    pub from: String,
    pub to: String,
    /// Whether an earlier copy was resumed.
    pub resumed: bool,
    pub tables: Vec<TableRows>,
    /// How many logs were compared by their hash.
    pub logs: u64,
}

/// How many rows a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRows {
    pub table: &'static str,
    pub rows: u64,
}

impl CopyReport {
    /// How many rows were copied, in all.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// How many rows that table has.
    pub fn rows_of(&self, table: &str) -> u64 {
        self.tables.iter().find(|other| other.table == table).map_or(0, |found| found.rows)
    }
}

/// Copies everything. The target is empty, or left by a copy of the same source that did not finish.
pub async fn copy(
    from: &Place,
    to: &Place,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<CopyReport, CopyError> {
    let source = Side::source(from, false).await?;
    if source.name() == to.name() {
        return Err(CopyError::Same);
    }
    let mut target = Side::target(to).await?;
    let begun = target.begin(source.name()).await?;
    let resumed = begun.after.is_some();
    for (number, table) in TABLES.iter().enumerate().skip(begun.table) {
        let of = source.count(table).await?;
        let (mut after, mut rows) = (None, 0);
        if number == begun.table {
            after.clone_from(&begun.after);
            rows = target.count(table).await?;
        }
        loop {
            let page = source.page(table, after.as_ref()).await?;
            if page.rows.is_empty() {
                break;
            }
            target.store(table, &page).await?;
            rows += page.rows.len() as u64;
            after = page.last;
            progress(Progress { step: Step::Copying, table: table.name, rows, of });
        }
    }
    let (tables, logs) = compare::compare(&source, &target, progress).await?;
    // One that was started meanwhile may have written behind the comparison.
    source.refuse_alive().await?;
    target.finish(&source.numbers().await?).await?;
    let (from, to) = (source.name().to_owned(), target.name().to_owned());
    Ok(CopyReport { from, to, resumed, tables, logs })
}

/// How many rows a table of a new database has: its owner, and notices of the migrations.
fn rows_of_an_empty_database(table: &Table) -> u64 {
    match table.name {
        "users" => 1,
        "notices" => u64::MAX,
        _ => 0,
    }
}

/// Where a copy stands.
#[derive(Debug, Default)]
struct Position {
    /// Which of [`TABLES`] comes next.
    table: usize,
    after: Option<Cursor>,
}

impl Position {
    /// The position that the target has stored, unless it is that of a copy of another source.
    fn found(
        target: &str,
        (source, stored_source): (&str, &str),
        table: &str,
        after: Option<String>,
    ) -> Result<Self, CopyError> {
        if source != stored_source {
            return Err(CopyError::OtherSource {
                database: target.to_owned(),
                source_name: stored_source.to_owned(),
            });
        }
        let table = TABLES.iter().position(|known| known.name == table).unwrap_or(0);
        let after = after.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Self { table, after })
    }
}

impl Place {
    /// The database as a person may see it.
    pub fn name(&self) -> String {
        match self {
            Self::Sqlite(folder) => sqlite::name(folder),
            Self::Postgres(config) => config.name(),
        }
    }
}

/// One end of a copy.
#[derive(Debug)]
enum Side {
    Sqlite(sqlite::Folder),
    Postgres(Box<postgres::Database>),
}

impl Side {
    async fn source(place: &Place, beside_gateways: bool) -> Result<Self, CopyError> {
        Ok(match place {
            Place::Sqlite(folder) => Self::Sqlite(sqlite::Folder::source(folder, beside_gateways)?),
            Place::Postgres(config) => {
                let database = postgres::Database::source(config, beside_gateways).await?;
                Self::Postgres(Box::new(database))
            }
        })
    }

    async fn target(place: &Place) -> Result<Self, CopyError> {
        Ok(match place {
            Place::Sqlite(folder) => Self::Sqlite(sqlite::Folder::target(folder).await?),
            Place::Postgres(config) => {
                Self::Postgres(Box::new(postgres::Database::target(config).await?))
            }
        })
    }

    fn name(&self) -> &str {
        match self {
            Self::Sqlite(folder) => folder.name(),
            Self::Postgres(database) => database.name(),
        }
    }

    async fn count(&self, table: &Table) -> Result<u64, CopyError> {
        match self {
            Self::Sqlite(folder) => folder.count(table),
            Self::Postgres(database) => database.count(table).await,
        }
    }

    async fn page(&self, table: &Table, after: Option<&Cursor>) -> Result<Page, CopyError> {
        match self {
            Self::Sqlite(folder) => folder.page(table, after),
            Self::Postgres(database) => database.page(table, after).await,
        }
    }

    async fn begin(&mut self, source: &str) -> Result<Position, CopyError> {
        match self {
            Self::Sqlite(folder) => folder.begin(source),
            Self::Postgres(database) => database.begin(source).await,
        }
    }

    async fn store(&mut self, table: &Table, page: &Page) -> Result<(), CopyError> {
        match self {
            Self::Sqlite(folder) => folder.store(table, page),
            Self::Postgres(database) => database.store(table, page).await,
        }
    }

    async fn numbers(&self) -> Result<Vec<(&'static str, i64)>, CopyError> {
        match self {
            Self::Sqlite(folder) => folder.numbers(),
            Self::Postgres(database) => database.numbers().await,
        }
    }

    async fn finish(&mut self, numbers: &[(&'static str, i64)]) -> Result<(), CopyError> {
        match self {
            Self::Sqlite(folder) => folder.finish(numbers),
            Self::Postgres(database) => database.finish(numbers).await,
        }
    }

    async fn refuse_alive(&self) -> Result<(), CopyError> {
        match self {
            // Its folder is locked.
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(database) => database.refuse_alive().await,
        }
    }

    async fn is_unfinished(&self) -> Result<bool, CopyError> {
        match self {
            Self::Sqlite(folder) => folder.is_unfinished(),
            Self::Postgres(database) => database.is_unfinished().await,
        }
    }

    async fn unindexed(&self) -> Result<u64, CopyError> {
        match self {
            Self::Sqlite(folder) => folder.unindexed(),
            Self::Postgres(database) => database.unindexed().await,
        }
    }

    /// How many gateways are alive; none if the database does not know.
    async fn replicas(&self) -> Result<Option<u64>, CopyError> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Postgres(database) => Ok(Some(database.replicas().await? as u64)),
        }
    }

    /// Every side that opens has the version of this program.
    fn schema_version(&self) -> u32 {
        match self {
            Self::Sqlite(_) => crate::sqlite::SCHEMA_VERSION,
            Self::Postgres(_) => crate::postgres::SCHEMA_VERSION,
        }
    }
}
