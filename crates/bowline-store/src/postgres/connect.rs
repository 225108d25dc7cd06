//! Where the database is, and how a connection to it is made and set up.
//!
//! The URL may hold a password: it is never shown, neither by `Debug` nor in an error.

use std::fmt;
use std::future::poll_fn;
use std::path::PathBuf;
use std::time::Duration;

use bowline_net::trust::{ServerCheck, tls_config};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Client, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error;
use super::servers::Servers;
use crate::OpenError;

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// Connections of the pool, if the configuration does not say.
const CONNECTIONS: usize = 8;
/// How long a statement may take, if the configuration does not say.
const STATEMENT: Duration = Duration::from_secs(30);
/// The schema, if the URL does not say.
const SCHEMA: &str = "public";

/// Where the database is, and how it is used.
#[derive(Clone)]
pub struct PostgresConfig {
    servers: Servers,
    tls: MakeRustlsConnect,
    schema: String,
    /// How many connections there are at most, beside that of commits and that of the replica's lease.
    pub connections: usize,
    /// How long the server may take for a statement.
    pub statement_timeout: Duration,
}

impl PostgresConfig {
    /// Reads `postgres://user:password@host:port/database?option=value&…`, with the options of libpq that
    /// are known here (`sslmode`, `sslrootcert`, `connect_timeout`, …) and `schema`: the schema for the
    /// tables, which is made if it is missing (default `public`). Of several hosts with commas between them
    /// the one that takes writes is used.
    pub fn new(url: &str) -> Result<Self, OpenError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(unusable("it does not begin with postgres://".into()));
        }
        let Options { url, mode, roots, schema } = Options::split(url)?;
        let (encrypt, check) = match mode.as_deref() {
            Some("disable") => (SslMode::Disable, ServerCheck::Nothing),
            // `allow` tries without first: nobody is harmed by encryption.
            None | Some("allow" | "prefer") => (SslMode::Prefer, ServerCheck::Nothing),
            Some("require") => (SslMode::Require, ServerCheck::Nothing),
            Some("verify-ca") => (SslMode::Require, ServerCheck::Authority),
            Some("verify-full") => (SslMode::Require, ServerCheck::Host),
            Some(_) => {
                return Err(unusable(
                    "sslmode is disable, prefer, require, verify-ca or verify-full".into(),
                ));
            }
        };
        let servers = Servers::read(&url, |config| {
            config
                .ssl_mode(encrypt)
                .application_name("bowline")
                .keepalives(true)
                .keepalives_idle(Duration::from_secs(5))
                .keepalives_interval(Duration::from_secs(2))
                .keepalives_retries(3)
                .tcp_user_timeout(Duration::from_secs(10));
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(CONNECT);
            }
        });
        let servers = servers.map_err(|error| unusable(error.to_string()))?;
        let tls = tls_config(check, roots.as_deref());
        let tls = tls.map_err(|error| unusable(error.to_string()))?;
        let tls = MakeRustlsConnect::new(tls);
        let schema = schema.unwrap_or_else(|| SCHEMA.to_owned());
        let (connections, statement_timeout) = (CONNECTIONS, STATEMENT);
        Ok(Self { servers, tls, schema, connections, statement_timeout })
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The database as a person may see it: without user and password.
    pub fn name(&self) -> String {
        let config = self.servers.first();
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        let schema = Some(&self.schema).filter(|schema| *schema != SCHEMA);
        let schema = schema.map(|schema| format!("?schema={schema}")).unwrap_or_default();
        format!("postgres://{}/{database}{schema}", self.servers.hosts())
    }

    /// Makes a connection that hears what is notified on the channels it listens to. The task that
    /// drives it ends when the connection does, and drops `notified`.
    pub async fn connect_listening(
        &self,
        notified: UnboundedSender<Notification>,
    ) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (client, mut connection) = self.servers.connect(&self.tls).await?;
        let task = tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notification(notification)) => {
                        // Nobody needs it any more: then the connection is about to be closed, too.
                        let _ = notified.send(notification);
                    }
                    Ok(_) => {}
                    Err(lost) => {
                        tracing::debug!(
                            reason = error::text_of(&lost),
                            "a database connection ended"
                        );
                        return;
                    }
                }
            }
        });
        client.batch_execute(&self.settings()).await?;
        Ok((client, task))
    }

    /// Makes a connection, and the task that drives it on this runtime.
    pub async fn connect(&self) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let (client, connection) = self.servers.connect(&self.tls).await?;
        let task = tokio::spawn(async move {
            if let Err(lost) = connection.await {
                tracing::debug!(reason = error::text_of(&lost), "a database connection ended");
            }
        });
        client.batch_execute(&self.settings()).await?;
        Ok((client, task))
    }

    /// What every connection is set to. Not as start options: poolers refuse those.
    fn settings(&self) -> String {
        format!(
            "SET search_path TO \"{}\";
             SET client_min_messages TO warning;
             SET default_transaction_isolation TO 'read committed';
             -- A client that was stopped within a transaction holds no lock for longer.
             SET idle_in_transaction_session_timeout TO '5s';
             SET statement_timeout TO '{}ms';
             SET lock_timeout TO '10s';
             SET jit TO off;
             -- What is acknowledged is on disk, and on the standby if there is a synchronous one (G4).
             SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') <> 'remote_apply'",
            self.schema,
            self.statement_timeout.as_millis()
        )
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("database", &self.name())
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// A URL without the options that are read here.
#[derive(Default)]
struct Options {
    url: String,
    mode: Option<String>,
    roots: Option<PathBuf>,
    schema: Option<String>,
}

impl Options {
    fn split(url: &str) -> Result<Self, OpenError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut found = Self { url: base.to_owned(), ..Self::default() };
        let mut separator = '?';
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "sslmode" => found.mode = Some(decoded(value)),
                // As in libpq: the authorities that the system trusts.
                "sslrootcert" if value == "system" => found.roots = None,
                "sslrootcert" => found.roots = Some(decoded(value).into()),
                // What a gateway needs anyway. It writes, so it cannot do with another server.
                "target_session_attrs" if ["any", "read-write", "primary"].contains(&value) => {}
                "target_session_attrs" => {
                    return Err(unusable(
                        "a gateway needs the server that takes writes: target_session_attrs=read-write".into(),
                    ));
                }
                "schema" => found.schema = Some(schema_name(decoded(value))?),
                _ => {
                    found.url.push(separator);
                    found.url.push_str(option);
                    separator = '&';
                }
            }
        }
        Ok(found)
    }
}

fn unusable(reason: String) -> OpenError {
    OpenError::Database(format!("its URL cannot be used: {reason}"))
}

/// A name that needs no quoting rules: it becomes part of statements.
fn schema_name(name: String) -> Result<String, OpenError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_name = !name.is_empty() && name.len() <= 63 && name.chars().all(fits);
    if is_name && !name.starts_with("pg_") {
        return Ok(name);
    }
    Err(unusable(
        "a schema's name is 1 to 63 small letters, digits and underscores, and not one of PostgreSQL's".into(),
    ))
}

/// A percent-encoded value.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                digit(high).zip(digit(low)).map(|(high, low)| (high * 16 + low) as u8)
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::TargetSessionAttrs;

    use super::*;

    #[test]
    fn a_password_is_shown_nowhere() {
        let url = "postgres://me:hunter2@db.example:5433/bowline?schema=one&connect_timeout=3";
        let config = PostgresConfig::new(url).unwrap();
        assert_eq!(config.name(), "postgres://db.example:5433/bowline?schema=one");
        assert!(!format!("{config:?}").contains("hunter2"));
        for url in [
            "postgres://me:hunter2@db.example:port/bowline",
            "postgres://me:hunter2@db.example/bowline?hunter=2",
            "postgres://me:hunter2@db.example/bowline?sslmode=hunter2",
            "mysql://me:hunter2@db.example/bowline",
        ] {
            let error = PostgresConfig::new(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn options_of_libpq_are_understood() {
        let mode = |options: &str| {
            let config = PostgresConfig::new(&format!("postgres://db/bowline?{options}")).unwrap();
            config.servers.first().get_ssl_mode()
        };
        assert_eq!(mode(""), SslMode::Prefer);
        assert_eq!(mode("sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("sslmode=require&application_name=x"), SslMode::Require);
        assert_eq!(mode("sslmode=verify-full&sslrootcert=system"), SslMode::Require);
        let missing = "postgres://db/bowline?sslmode=verify-ca&sslrootcert=%2Fno%2Fsuch.pem";
        let error = PostgresConfig::new(missing).unwrap_err().to_string();
        assert!(error.contains("/no/such.pem"), "{error}");
    }

    #[test]
    fn of_several_servers_the_one_that_takes_writes_is_wanted() {
        let named = |options: &str| {
            PostgresConfig::new(&format!("postgres://me:hunter2@one,two:5433/bowline{options}"))
        };
        for options in ["", "?target_session_attrs=read-write", "?target_session_attrs=primary"] {
            let config = named(options).unwrap();
            assert_eq!(config.name(), "postgres://one:5432,two:5433/bowline");
            let wanted = config.servers.first().get_target_session_attrs();
            assert_eq!(wanted, TargetSessionAttrs::ReadWrite);
        }
        let refused = named("?target_session_attrs=read-only").unwrap_err().to_string();
        assert!(refused.contains("read-write") && !refused.contains("hunter2"), "{refused}");
    }

    #[test]
    fn a_schema_is_a_plain_name() {
        let schema = |name: &str| PostgresConfig::new(&format!("postgres://db/b?schema={name}"));
        assert_eq!(schema("bow_1").unwrap().schema(), "bow_1");
        for name in ["", "a%22b", "A", "pg_catalog", "a;b"] {
            assert!(schema(name).is_err(), "{name}");
        }
    }
}
