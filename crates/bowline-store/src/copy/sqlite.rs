//! Reads and fills a SQLite database. The folder is locked meanwhile: no gateway can use it.

use std::fs::File;
use std::path::Path;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql, params, params_from_iter};
use uuid::Uuid;

use super::error::CopyError;
use super::tables::{Column, Kind, PLACE_LOG, PLACE_SEQ, TABLES, Table};
use super::value::{Cursor, Page, Row, Value, hex, unhex};
use super::{PAGE_BYTES, Position};
use crate::Upkeep as _;
use crate::sqlite::{self, FILE, RESTORING, Sqlite};

#[derive(Debug)]
pub(super) struct Folder {
    conn: Connection,
    name: String,
    _lock: Option<File>,
}

impl Folder {
    /// To be read, by nobody else meanwhile unless `beside_a_gateway`.
    pub(super) fn source(folder: &Path, beside_a_gateway: bool) -> Result<Self, CopyError> {
        let name = name(folder);
        if !folder.join(FILE).exists() || folder.join(RESTORING).exists() {
            return Err(CopyError::Missing(name));
        }
        let opened = |error| CopyError::Open { database: name.clone(), error };
        let lock = match beside_a_gateway {
            true => None,
            false => Some(sqlite::lock(folder).map_err(opened)?),
        };
        let conn = sqlite::connect(&folder.join(FILE), true).map_err(opened)?;
        let found = sqlite::schema_version(&conn, &name).map_err(opened)?;
        if found < sqlite::SCHEMA_VERSION {
            let known = sqlite::SCHEMA_VERSION;
            return Err(CopyError::OlderSchema { database: name, found, known });
        }
        Ok(Self { conn, name, _lock: lock })
    }

    /// To be filled; made if it is missing.
    pub(super) async fn target(folder: &Path) -> Result<Self, CopyError> {
        let name = name(folder);
        let opened = |error| CopyError::Open { database: name.clone(), error };
        let path = folder.join(FILE);
        if !path.exists() {
            // Makes the folder, and the schema.
            let store = Sqlite::open(folder).map_err(opened)?;
            store.close().await;
        }
        let lock = sqlite::lock(folder).map_err(opened)?;
        let conn = sqlite::connect(&path, false).map_err(opened)?;
        let found = sqlite::schema_version(&conn, &name).map_err(opened)?;
        if found < sqlite::SCHEMA_VERSION {
            let known = sqlite::SCHEMA_VERSION;
            return Err(CopyError::OlderSchema { database: name, found, known });
        }
        Ok(Self { conn, name, _lock: Some(lock) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a copy into it did not finish.
    pub(super) fn is_unfinished(&self) -> Result<bool, CopyError> {
        let sql = "SELECT 1 FROM sqlite_master WHERE name = 'copying'";
        self.failing(self.conn.prepare(sql).and_then(|mut found| found.exists([])))
    }

    pub(super) fn count(&self, table: &Table) -> Result<u64, CopyError> {
        let sql = format!("SELECT count(*) FROM {} WHERE {}", table.name, table.condition());
        let count: i64 = self.failing(self.conn.query_row(&sql, [], |row| row.get(0)))?;
        Ok(count as u64)
    }

    /// How many entries are not in the search index yet.
    pub(super) fn unindexed(&self) -> Result<u64, CopyError> {
        let sql = "SELECT coalesce(sum(max(s.last_seq - coalesce(i.seq, s.base_seq, 0), 0)), 0)
                   FROM sessions s LEFT JOIN indexed i ON i.log = s.key";
        let count: i64 = self.failing(self.conn.query_row(sql, [], |row| row.get(0)))?;
        Ok(count as u64)
    }

    /// Rows after `after`, in the order of the table's key.
    pub(super) fn page(&self, table: &Table, after: Option<&Cursor>) -> Result<Page, CopyError> {
        let keys: Vec<_> = table.sqlite_key.iter().map(|(name, _)| *name).collect();
        let columns: Vec<_> = table.columns.iter().map(|column| column.sqlite).collect();
        let wanted = after.map(|_| {
            let marks = vec!["?"; keys.len()].join(", ");
            format!(" AND ({}) > ({marks})", keys.join(", "))
        });
        let sql = format!(
            "SELECT {}, {} FROM {} WHERE {}{} ORDER BY {} LIMIT {}",
            keys.join(", "),
            columns.join(", "),
            table.name,
            table.condition(),
            wanted.unwrap_or_default(),
            keys.join(", "),
            table.page
        );
        let read = || {
            let mut statement = self.conn.prepare_cached(&sql)?;
            let after = after.into_iter().flatten().zip(table.sqlite_key);
            let after: Option<Vec<_>> =
                after.map(|(text, (_, kind))| key_of(text, *kind)).collect();
            let after = after.ok_or(rusqlite::Error::InvalidQuery)?;
            let mut found = statement.query(params_from_iter(after))?;
            let (mut page, mut bytes) = (Page::default(), 0);
            while bytes < PAGE_BYTES {
                let Some(row) = found.next()? else { break };
                let key = (0..keys.len()).map(|at| Ok(text_of(row.get_ref(at)?)));
                page.last = Some(key.collect::<rusqlite::Result<_>>()?);
                let mut values = Row::with_capacity(columns.len());
                for (at, column) in table.columns.iter().enumerate() {
                    let at = keys.len() + at;
                    let value = value_of(row.get_ref(at)?, column.kind).ok_or(
                        rusqlite::Error::InvalidColumnName(format!(
                            "{}.{}",
                            table.name, column.postgres
                        )),
                    )?;
                    bytes += size(&value);
                    values.push(value);
                }
                page.rows.push(values);
            }
            Ok(page)
        };
        self.failing(read())
    }

    /// Begins a copy, or finds where one stopped.
    pub(super) fn begin(&mut self, source: &str) -> Result<Position, CopyError> {
        if self.is_unfinished()? {
            let sql = "SELECT source, table_name, after FROM copying";
            let found = self.conn.query_row(sql, [], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?))
            });
            let (from, table, after) = self.failing(found)?;
            return Position::found(&self.name, (source, &from), &table, after);
        }
        for table in &TABLES {
            let rows = self.count(table)?;
            if rows > super::rows_of_an_empty_database(table) {
                return Err(CopyError::NotEmpty { database: self.name.clone(), table: table.name });
            }
        }
        let made = self.conn.execute_batch(
            "BEGIN IMMEDIATE;
             CREATE TABLE copying (source TEXT NOT NULL, table_name TEXT NOT NULL, after TEXT) STRICT;
             DELETE FROM users;
             DELETE FROM notices;",
        );
        let made = made.and_then(|()| {
            let sql = "INSERT INTO copying (source, table_name) VALUES (?1, ?2)";
            self.conn.execute(sql, [source, TABLES[0].name])?;
            self.conn.execute_batch("COMMIT")
        });
        self.failing(made)?;
        Ok(Position::default())
    }

    /// Stores rows, and that the copy has come so far, in one transaction.
    pub(super) fn store(&mut self, table: &Table, page: &Page) -> Result<(), CopyError> {
        let sql = insert(table);
        let write = || {
            let tx = self.conn.unchecked_transaction()?;
            {
                let mut statement = tx.prepare_cached(&sql)?;
                for row in &page.rows {
                    statement.execute(params_from_iter(row))?;
                }
            }
            let after = serde_json::to_string(&page.last).unwrap_or_default();
            tx.execute(
                "UPDATE copying SET table_name = ?1, after = ?2",
                params![table.name, after],
            )?;
            tx.commit()
        };
        self.failing(write())
    }

    /// The last number that was given in each table with numbers.
    pub(super) fn numbers(&self) -> Result<Vec<(&'static str, i64)>, CopyError> {
        let mut last = Vec::new();
        for table in TABLES.iter().filter(|table| table.numbered) {
            let sql = match table.name {
                // The number of a session is never given again while its trunk is there.
                "sessions" => {
                    "SELECT max(coalesce((SELECT max(key) FROM sessions), 0),
                                coalesce((SELECT max(key) FROM trunks), 0))"
                        .to_owned()
                }
                name => format!(
                    "SELECT max(coalesce((SELECT max(number) FROM {name}), 0),
                                coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{name}'), 0))"
                ),
            };
            last.push((table.name, self.failing(self.conn.query_row(&sql, [], |row| row.get(0)))?));
        }
        Ok(last)
    }

    /// The copy is complete: a gateway may use it.
    pub(super) fn finish(&mut self, numbers: &[(&'static str, i64)]) -> Result<(), CopyError> {
        let write = || {
            let tx = self.conn.unchecked_transaction()?;
            // Tables whose numbers are never given twice.
            let never_twice = |(name, last): &&(&str, i64)| {
                *last > 0 && matches!(*name, "signing_keys" | "audit")
            };
            for (name, last) in numbers.iter().filter(never_twice) {
                let known = "SELECT 1 FROM sqlite_sequence WHERE name = ?1";
                let known = tx.query_row(known, [name], |_| Ok(())).optional()?.is_some();
                let sql = match known {
                    true => "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1",
                    false => "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)",
                };
                tx.execute(sql, params![name, last])?;
            }
            tx.execute_batch("DROP TABLE copying")?;
            tx.commit()?;
            self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        };
        self.failing(write())
    }

    fn failing<T>(&self, result: rusqlite::Result<T>) -> Result<T, CopyError> {
        result.map_err(|error| CopyError::Database {
            database: self.name.clone(),
            reason: error.to_string(),
        })
    }
}

pub(super) fn name(folder: &Path) -> String {
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    format!("sqlite:{}", whole.display())
}

/// The statement that stores a row. A place is made of two values.
fn insert(table: &Table) -> String {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (number, Column { sqlite, .. }) in (1..).zip(table.columns) {
        match *sqlite {
            PLACE_LOG => {}
            PLACE_SEQ => {
                names.push("place");
                values.push(format!("(?{} << 32) + ?{number}", number - 1));
            }
            name => {
                names.push(name);
                values.push(format!("?{number}"));
            }
        }
    }
    format!("INSERT INTO {} ({}) VALUES ({})", table.name, names.join(", "), values.join(", "))
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Bool(yes) => ValueRef::Integer(i64::from(*yes)),
            Value::Real(number) => ValueRef::Real(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Uuid(id) => ValueRef::Blob(id.as_bytes()),
        }))
    }
}

/// A value of that kind; none if the column holds something else.
fn value_of(value: ValueRef<'_>, kind: Kind) -> Option<Value> {
    Some(match (kind, value) {
        (_, ValueRef::Null) => Value::Null,
        (Kind::Int | Kind::Small | Kind::Session, ValueRef::Integer(number)) => Value::Int(number),
        (Kind::Bool, ValueRef::Integer(number)) => Value::Bool(number != 0),
        (Kind::Real, ValueRef::Real(number)) => Value::Real(number),
        (Kind::Text, ValueRef::Text(text)) => {
            Value::Text(std::str::from_utf8(text).ok()?.to_owned())
        }
        (Kind::Bytes, ValueRef::Blob(bytes)) => Value::Bytes(bytes.to_vec()),
        (Kind::Uuid, ValueRef::Blob(bytes)) => Value::Uuid(Uuid::from_slice(bytes).ok()?),
        _ => return None,
    })
}

fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 16,
    }
}

/// A value of a key as text.
fn text_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => hex(bytes),
        ValueRef::Null | ValueRef::Real(_) => String::new(),
    }
}

fn key_of(text: &str, kind: Kind) -> Option<rusqlite::types::Value> {
    use rusqlite::types::Value as Sql;
    Some(match kind {
        Kind::Text => Sql::Text(text.to_owned()),
        Kind::Bytes | Kind::Uuid => Sql::Blob(unhex(text)?),
        _ => Sql::Integer(text.parse().ok()?),
    })
}
