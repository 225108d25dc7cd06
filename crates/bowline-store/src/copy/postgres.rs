//! Reads and fills a PostgreSQL database, on one connection.

use std::collections::HashMap;
use std::pin::pin;

use bowline_sbp::access::OWNER;
use sha2::{Digest as _, Sha256};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row as SqlRow};
use uuid::Uuid;

use super::Position;
use super::error::CopyError;
use super::tables::{Kind, TABLES, Table};
use super::value::{Cursor, Page, Row, Value};
use crate::OpenError;
use crate::postgres::{self, PostgresConfig, text, words_of};

#[derive(Debug)]
pub(super) struct Database {
    client: Client,
    name: String,
    schema: String,
    sessions: Sessions,
}

/// Numbers and ids of sessions and trunks.
#[derive(Debug, Default)]
struct Sessions {
    numbers: HashMap<Uuid, i64>,
    ids: HashMap<i64, Uuid>,
}

impl Sessions {
    fn add(&mut self, number: i64, id: Uuid) {
        self.numbers.insert(id, number);
        self.ids.insert(number, id);
    }

    /// A trunk of SQLite has no id; this one says its number.
    fn id(&self, number: i64) -> Uuid {
        self.ids
            .get(&number)
            .copied()
            .unwrap_or_else(|| Uuid::from_u64_pair(NO_ID, 1 << 63 | number as u64))
    }

    fn number(&self, id: Uuid) -> Option<i64> {
        let of_trunk = || {
            let (high, low) = id.as_u64_pair();
            (high == NO_ID).then_some((low & !(1 << 63)) as i64)
        };
        self.numbers.get(&id).copied().or_else(of_trunk)
    }
}

/// The first half of the id of what has none: version 8, for what an application defines.
const NO_ID: u64 = 0x626f_776c_696e_8000;
/// Memories come with their words as a text: `COPY` makes no `tsvector` of that. They go through a table that is
/// there only within the transaction, and not a temporary one: the right to make those may be taken away.
const MEMORIES_BEFORE: &str = "
    CREATE TABLE arriving (LIKE memories);
    ALTER TABLE arriving ALTER COLUMN words TYPE text";
const MEMORIES_AFTER: &str = "
    INSERT INTO memories
        (number, id, user_id, agent_id, kind, text, text_hash, session_id, created_at, words)
    OVERRIDING SYSTEM VALUE
    SELECT number, id, user_id, agent_id, kind, text, text_hash, session_id, created_at,
           array_to_tsvector(string_to_array(words, ' '))
    FROM arriving ORDER BY number;
    DROP TABLE arriving";

/// A trunk of SQLite has no user: it gets that of the first session that shares its entries, through whatever
/// other trunks. That is the user whose searches look for the words of these entries.
const USERS_OF_TRUNKS: &str = "
    WITH RECURSIVE sharing (trunk, number, user_id) AS (
        SELECT base, number, user_id FROM sessions WHERE base IS NOT NULL
        UNION
        SELECT t.base, s.number, s.user_id FROM sharing s JOIN trunks t ON t.id = s.trunk
        WHERE t.base IS NOT NULL)
    UPDATE trunks SET user_id = first.user_id
    FROM (SELECT DISTINCT ON (trunk) trunk, user_id FROM sharing ORDER BY trunk, number) first
    WHERE first.trunk = trunks.id";

/// The lock of who copies ("copy"), of each schema.
const LOCK: &str = "SELECT pg_try_advisory_lock(x'636f7079'::int, hashtext($1))";

impl Database {
    pub(super) async fn source(
        config: &PostgresConfig,
        beside_gateways: bool,
    ) -> Result<Self, CopyError> {
        let mut database = Self::connect(config).await?;
        let opened = |error| CopyError::Open { database: config.name(), error };
        let found = match postgres::schema_version(&database.client, config).await {
            Ok(Some(found)) => found,
            Ok(None) => return Err(CopyError::Missing(config.name())),
            Err(error) => return Err(opened(error)),
        };
        let known = postgres::SCHEMA_VERSION;
        if found > known {
            return Err(opened(OpenError::NewerSchema { found, known }));
        }
        if found < known {
            return Err(CopyError::OlderSchema { database: config.name(), found, known });
        }
        if !beside_gateways {
            database.refuse_alive().await?;
        }
        database.load_sessions().await?;
        Ok(database)
    }

    /// To be filled; its schema is made if it is missing.
    pub(super) async fn target(config: &PostgresConfig) -> Result<Self, CopyError> {
        let opened = |error| CopyError::Open { database: config.name(), error };
        postgres::migrate(config).await.map_err(opened)?;
        let mut database = Self::connect(config).await?;
        let lock = database.client.query_one(LOCK, &[&database.schema]).await;
        if !database.failing(lock)?.get::<_, bool>(0) {
            return Err(CopyError::Running(database.name));
        }
        database.refuse_alive().await?;
        database.load_sessions().await?;
        Ok(database)
    }

    async fn connect(config: &PostgresConfig) -> Result<Self, CopyError> {
        let name = config.name();
        let failed = |error: tokio_postgres::Error| CopyError::Open {
            database: name.clone(),
            error: postgres::open_error(config, &error),
        };
        let (client, _task) = config.connect().await.map_err(failed)?;
        // Reading a whole table takes its time.
        client.batch_execute("SET statement_timeout TO 0").await.map_err(failed)?;
        let schema = config.schema().to_owned();
        Ok(Self { client, name, schema, sessions: Sessions::default() })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Refuses a database that a running gateway uses.
    pub(super) async fn refuse_alive(&self) -> Result<(), CopyError> {
        match self.replicas().await? {
            0 => Ok(()),
            replicas => Err(CopyError::Alive { database: self.name.clone(), replicas }),
        }
    }

    pub(super) async fn replicas(&self) -> Result<i64, CopyError> {
        let sql = "SELECT count(*) FROM replicas WHERE NOT dead AND expires_at > clock_timestamp()";
        Ok(self.failing(self.client.query_one(sql, &[]).await)?.get(0))
    }

    async fn load_sessions(&mut self) -> Result<(), CopyError> {
        let sql = "SELECT number, id FROM sessions UNION ALL SELECT number, id FROM trunks";
        for row in self.failing(self.client.query(sql, &[]).await)? {
            self.sessions.add(row.get(0), row.get(1));
        }
        Ok(())
    }

    /// Whether a copy into it did not finish.
    pub(super) async fn is_unfinished(&self) -> Result<bool, CopyError> {
        let sql = "SELECT to_regclass($1) IS NOT NULL";
        let name = format!("\"{}\".copying", self.schema);
        Ok(self.failing(self.client.query_one(sql, &[&name]).await)?.get(0))
    }

    /// How many entries are not in the search index yet.
    pub(super) async fn unindexed(&self) -> Result<u64, CopyError> {
        let known = self.client.query_one("SELECT to_regclass('indexed') IS NOT NULL", &[]).await;
        if !self.failing(known)?.get::<_, bool>(0) {
            return Ok(0);
        }
        let sql = "SELECT coalesce(sum(greatest(s.last_seq - coalesce(i.seq, s.base_seq, 0), 0)), 0)::bigint
                   FROM sessions s LEFT JOIN indexed i ON i.log = s.id";
        let count: i64 = self.failing(self.client.query_one(sql, &[]).await)?.get(0);
        Ok(count as u64)
    }

    pub(super) async fn count(&self, table: &Table) -> Result<u64, CopyError> {
        let (from, only) = (table.postgres_from(), table.condition());
        let sql = format!("SELECT count(*) FROM {from} WHERE {only}");
        let count: i64 = self.failing(self.client.query_one(&sql, &[]).await)?.get(0);
        Ok(count as u64)
    }

    /// Rows after `after`, in the order of the table's key.
    pub(super) async fn page(
        &self,
        table: &Table,
        after: Option<&Cursor>,
    ) -> Result<Page, CopyError> {
        let keys: Vec<_> = table.postgres_key.iter().map(|(name, _)| *name).collect();
        // With names of their own: a column of the key may also be one of the row.
        let texts = (1..).zip(table.postgres_key).map(|(number, (name, kind))| match kind {
            Kind::Bytes => format!("encode({name}, 'hex') AS key_{number}"),
            _ => format!("{name}::text AS key_{number}"),
        });
        let columns = columns(table);
        let wanted = after.map(|_| {
            let after = (1..).zip(table.postgres_key).map(|(number, (_, kind))| match kind {
                Kind::Bytes => format!("decode(${number}::text, 'hex')"),
                Kind::Uuid => format!("${number}::text::uuid"),
                Kind::Text => format!("${number}::text"),
                _ => format!("${number}::text::bigint"),
            });
            format!(" AND ({}) > ({})", keys.join(", "), after.collect::<Vec<_>>().join(", "))
        });
        let sql = format!(
            "SELECT {}, {} FROM {} WHERE {}{} ORDER BY {} LIMIT {}",
            texts.collect::<Vec<_>>().join(", "),
            columns.join(", "),
            table.postgres_from(),
            table.condition(),
            wanted.unwrap_or_default(),
            keys.join(", "),
            table.page
        );
        let after: Vec<&(dyn ToSql + Sync)> =
            after.into_iter().flatten().map(|text| text as &(dyn ToSql + Sync)).collect();
        let statement = self.failing(self.client.prepare(&sql).await)?;
        let found = self.failing(self.client.query(&statement, &after).await)?;
        let mut page = Page::default();
        for row in found {
            page.rows.push(self.read(table, &row, keys.len())?);
            page.last = Some((0..keys.len()).map(|at| row.get(at)).collect());
        }
        Ok(page)
    }

    fn read(&self, table: &Table, row: &SqlRow, from: usize) -> Result<Row, CopyError> {
        let value = |(at, kind): (usize, Kind)| {
            let value = match kind {
                Kind::Int => row.try_get::<_, Option<i64>>(at)?.map(Value::Int),
                Kind::Small => row.try_get::<_, Option<i16>>(at)?.map(|n| Value::Int(n.into())),
                Kind::Bool => row.try_get::<_, Option<bool>>(at)?.map(Value::Bool),
                Kind::Real => row.try_get::<_, Option<f64>>(at)?.map(Value::Real),
                Kind::Text => {
                    row.try_get(at).map(|text: Option<_>| text.map(text::read).map(Value::Text))?
                }
                Kind::Bytes => row.try_get::<_, Option<Vec<u8>>>(at)?.map(Value::Bytes),
                Kind::Uuid | Kind::Session => row.try_get::<_, Option<Uuid>>(at)?.map(Value::Uuid),
            };
            Ok(value.unwrap_or(Value::Null))
        };
        let kinds = table.columns.iter().map(|column| column.kind);
        let values = (from..).zip(kinds.clone()).map(value);
        let mut values: Row = self.failing(values.collect())?;
        for (value, kind) in values.iter_mut().zip(kinds) {
            if let (Kind::Session, Value::Uuid(id)) = (kind, &*value) {
                let number = self.sessions.number(*id).ok_or_else(|| CopyError::Database {
                    database: self.name.clone(),
                    reason: format!(
                        "a row of `{}` belongs to a session that does not exist",
                        table.name
                    ),
                })?;
                *value = Value::Int(number);
            }
        }
        Ok(values)
    }

    /// Begins a copy, or finds where one stopped.
    pub(super) async fn begin(&mut self, source: &str) -> Result<Position, CopyError> {
        if self.is_unfinished().await? {
            let sql = "SELECT source, table_name, after FROM copying";
            let row = self.failing(self.client.query_one(sql, &[]).await)?;
            let (from, table): (String, String) = (row.get(0), row.get(1));
            return Position::found(&self.name, (source, &from), &table, row.get(2));
        }
        for table in &TABLES {
            if self.count(table).await? > super::rows_of_an_empty_database(table) {
                return Err(CopyError::NotEmpty { database: self.name.clone(), table: table.name });
            }
        }
        let tx = self.client.transaction().await;
        let made = async {
            let tx = tx?;
            tx.batch_execute(
                "CREATE TABLE copying (source text NOT NULL, table_name text NOT NULL, after text);
                 DELETE FROM users; DELETE FROM notices",
            )
            .await?;
            let sql = "INSERT INTO copying (source, table_name) VALUES ($1, $2)";
            tx.execute(sql, &[&source, &TABLES[0].name]).await?;
            tx.commit().await
        };
        let made = made.await;
        self.failing(made)?;
        Ok(Position::default())
    }

    /// Stores rows, and that the copy has come so far, in one transaction.
    pub(super) async fn store(&mut self, table: &Table, page: &Page) -> Result<(), CopyError> {
        let mut names: Vec<_> = table.columns.iter().map(|column| column.postgres).collect();
        let mut types: Vec<_> = table.columns.iter().map(|column| type_of(column.kind)).collect();
        for (name, kind) in added(table) {
            names.push(name);
            types.push(kind);
        }
        let is_memories = table.name == "memories";
        let into = if is_memories { "arriving" } else { table.name };
        let sql = format!("COPY {into} ({}) FROM STDIN BINARY", names.join(", "));
        let sessions = &mut self.sessions;
        let tx = self.client.transaction().await;
        let write = async {
            let tx = tx?;
            if is_memories {
                tx.batch_execute(MEMORIES_BEFORE).await?;
            }
            let mut writer = pin!(BinaryCopyInWriter::new(tx.copy_in(&sql).await?, &types));
            for row in &page.rows {
                let values = stored(table, row, sessions);
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
                writer.as_mut().write(&values).await?;
            }
            writer.as_mut().finish().await?;
            if is_memories {
                tx.batch_execute(MEMORIES_AFTER).await?;
            }
            let after = serde_json::to_string(&page.last).unwrap_or_default();
            let sql = "UPDATE copying SET table_name = $1, after = $2";
            tx.execute(sql, &[&table.name, &after]).await?;
            tx.commit().await
        };
        let written = write.await;
        self.failing(written)
    }

    /// The last number that was given in each table with numbers.
    pub(super) async fn numbers(&self) -> Result<Vec<(&'static str, i64)>, CopyError> {
        let mut last = Vec::new();
        for table in TABLES.iter().filter(|table| table.numbered) {
            let sql = "SELECT coalesce(pg_sequence_last_value(
                           pg_get_serial_sequence($1, 'number')::regclass), 0)";
            let row = self.failing(self.client.query_one(sql, &[&table.name]).await)?;
            last.push((table.name, row.get(0)));
        }
        Ok(last)
    }

    /// The copy is complete: a gateway may use it.
    pub(super) async fn finish(
        &mut self,
        numbers: &[(&'static str, i64)],
    ) -> Result<(), CopyError> {
        let tx = self.client.transaction().await;
        let write = async {
            let tx = tx?;
            for (table, last) in numbers.iter().filter(|(_, last)| *last > 0) {
                let sql = "SELECT setval(pg_get_serial_sequence($1, 'number'), $2)";
                tx.execute(sql, &[table, last]).await?;
            }
            tx.batch_execute(USERS_OF_TRUNKS).await?;
            tx.batch_execute("DROP TABLE copying").await?;
            tx.commit().await
        };
        let written = write.await;
        self.failing(written)?;
        // A planner without statistics reads whole tables.
        let analyzed = self.client.batch_execute("ANALYZE").await;
        self.failing(analyzed)
    }

    fn failing<T>(&self, result: Result<T, tokio_postgres::Error>) -> Result<T, CopyError> {
        result.map_err(|error| CopyError::Database {
            database: self.name.clone(),
            reason: postgres::text_of(&error),
        })
    }
}

fn columns(table: &Table) -> Vec<&'static str> {
    table.columns.iter().map(|column| column.postgres).collect()
}

/// Columns that SQLite does not have, and their types.
fn added(table: &Table) -> Vec<(&'static str, Type)> {
    match table.name {
        "trunks" => vec![("id", Type::UUID), ("user_id", Type::UUID)],
        "users" => vec![("folded_name", Type::TEXT)],
        "memories" => vec![("text_hash", Type::BYTEA), ("words", Type::TEXT)],
        "spending" => vec![("writer", Type::UUID)],
        _ => Vec::new(),
    }
}

/// A row as it is stored, with the values of the added columns.
fn stored(table: &Table, row: &Row, sessions: &mut Sessions) -> Vec<Box<dyn ToSql + Sync + Send>> {
    if let ("sessions", [Value::Int(number), Value::Uuid(id), ..]) = (table.name, row.as_slice()) {
        sessions.add(*number, *id);
    }
    let mut values: Vec<_> = row
        .iter()
        .zip(table.columns)
        .map(|(value, column)| sql_value(value, column.kind, sessions))
        .collect();
    match (table.name, row.as_slice()) {
        ("trunks", [Value::Int(number), ..]) => {
            values.push(Box::new(sessions.id(*number)));
            // Until all are there: see `USERS_OF_TRUNKS`.
            values.push(Box::new(OWNER.0));
        }
        ("users", [_, Value::Text(name), ..]) => {
            values.push(Box::new(text::stored(&name.to_ascii_lowercase()).into_owned()));
        }
        ("memories", [.., Value::Text(said), _, _]) => {
            values.push(Box::new(Sha256::digest(said.as_bytes()).to_vec()));
            values.push(Box::new(words_of(said)));
        }
        ("spending", _) => values.push(Box::new(Uuid::nil())),
        _ => {}
    }
    values
}

fn sql_value(value: &Value, kind: Kind, sessions: &Sessions) -> Box<dyn ToSql + Sync + Send> {
    match (value, kind) {
        (Value::Null, Kind::Int) => Box::new(None::<i64>),
        (Value::Null, Kind::Small) => Box::new(None::<i16>),
        (Value::Null, Kind::Bool) => Box::new(None::<bool>),
        (Value::Null, Kind::Real) => Box::new(None::<f64>),
        (Value::Null, Kind::Text) => Box::new(None::<String>),
        (Value::Null, Kind::Bytes) => Box::new(None::<Vec<u8>>),
        (Value::Null, Kind::Uuid | Kind::Session) => Box::new(None::<Uuid>),
        (Value::Int(number), Kind::Session) => Box::new(sessions.id(*number)),
        (Value::Int(number), Kind::Small) => Box::new(*number as i16),
        (Value::Int(number), _) => Box::new(*number),
        (Value::Bool(yes), _) => Box::new(*yes),
        (Value::Real(number), _) => Box::new(*number),
        (Value::Text(text), _) => Box::new(text::stored(text).into_owned()),
        (Value::Bytes(bytes), _) => Box::new(bytes.clone()),
        (Value::Uuid(id), _) => Box::new(*id),
    }
}

fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Int => Type::INT8,
        Kind::Small => Type::INT2,
        Kind::Bool => Type::BOOL,
        Kind::Real => Type::FLOAT8,
        Kind::Text => Type::TEXT,
        Kind::Bytes => Type::BYTEA,
        Kind::Uuid | Kind::Session => Type::UUID,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_trunk_without_one_says_its_number() {
        let mut sessions = Sessions::default();
        let id = sessions.id(7);
        assert_eq!((id.get_version_num(), sessions.number(id)), (8, Some(7)));
        assert_eq!(sessions.number(Uuid::new_v4()), None);
        let other = Uuid::new_v4();
        sessions.add(7, other);
        assert_eq!((sessions.id(7), sessions.number(other)), (other, Some(7)));
    }
}
