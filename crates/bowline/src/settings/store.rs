//! Where sessions are stored, and how replicas reach each other: `[store]` and `[bus]`.
//!
//! Apart from the gateway's own settings, because the gateway is given a store and a bus and knows no
//! address of either. An address may hold a password: neither `Debug` nor an error shows it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bowline_net::duration;
use serde::{Deserialize, Serialize};

use super::Origins;
use super::origin::Origin;
use super::secret::has_password;
use crate::failure::{Failure, FailureKind};
use crate::terminal::note;

/// The database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreSettings {
    /// `sqlite` (the default): a file in the data folder. Or `postgres://user@host/database`.
    pub(crate) url: Option<StoreUrl>,
    /// A file with the address, for one that holds a password.
    pub(crate) url_file: Option<PathBuf>,
    /// A program and its arguments that print the address.
    pub(crate) url_command: Vec<String>,
    /// The most connections of a gateway to PostgreSQL, beside those for commits and for its lease.
    pub(crate) connections: usize,
    /// How long PostgreSQL may take for a statement.
    #[serde(with = "duration")]
    pub(crate) statement_timeout: Duration,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            url_command: Vec::new(),
            connections: 8,
            statement_timeout: Duration::from_secs(30),
        }
    }
}

/// Messages between replicas.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BusSettings {
    /// `redis://host`, `rediss://host`, `postgres` (the database of the store; the default with
    /// PostgreSQL), or `none`.
    pub(crate) url: Option<BusUrl>,
    /// A file with the address, for one that holds a password.
    pub(crate) url_file: Option<PathBuf>,
    /// A program and its arguments that print the address.
    pub(crate) url_command: Vec<String>,
}

/// What `store.url` says.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum StoreUrl {
    Sqlite,
    Postgres(String),
}

/// What `bus.url` says.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum BusUrl {
    None,
    Postgres,
    Redis(String),
}

/// Why a text is no address of a store or bus. Shows nothing of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadUrl {
    #[error("it is neither `sqlite` nor an address that begins with postgres://{}", meant(.0))]
    NoStore(Option<&'static str>),
    #[error("Redis stores no sessions; it can be the bus (--bus), beside a store on PostgreSQL")]
    RedisStores,
    #[error(
        "the SQLite database is in the data folder: write `sqlite`, and choose the folder by `data`"
    )]
    SqlitePath,
    #[error(
        "it is neither `postgres`, `none`, nor an address that begins with redis:// or rediss://{}",
        meant(.0)
    )]
    NoBus(Option<&'static str>),
    #[error(
        "the bus `postgres` uses the database of the store: write `postgres`, without an address"
    )]
    OtherDatabase,
}

fn meant(near: &Option<&'static str>) -> String {
    near.map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

impl FromStr for StoreUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let text = text.trim();
        match text.split_once(':').map_or(text, |(scheme, _)| scheme) {
            "sqlite" if text == "sqlite" => Ok(Self::Sqlite),
            "sqlite" | "file" => Err(BadUrl::SqlitePath),
            "postgres" | "postgresql" if text.contains("://") => {
                Ok(Self::Postgres(text.to_owned()))
            }
            "redis" | "rediss" => Err(BadUrl::RedisStores),
            other => Err(BadUrl::NoStore(nearest(
                other,
                &[
                    ("postgres", "postgres://"),
                    ("postgresql", "postgres://"),
                    ("psql", "postgres://"),
                    ("pg", "postgres://"),
                    ("sqlite", "`sqlite`"),
                    ("sqlite3", "`sqlite`"),
                ],
            ))),
        }
    }
}

impl FromStr for BusUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let text = text.trim();
        match text.split_once(':').map_or(text, |(scheme, _)| scheme) {
            "none" if text == "none" => Ok(Self::None),
            "postgres" if text == "postgres" => Ok(Self::Postgres),
            "postgres" | "postgresql" => Err(BadUrl::OtherDatabase),
            "redis" | "rediss" if text.contains("://") => Ok(Self::Redis(text.to_owned())),
            other => Err(BadUrl::NoBus(nearest(
                other,
                &[
                    ("redis", "redis://"),
                    ("rediss", "rediss://"),
                    ("redis+tls", "rediss://"),
                    ("redis+ssl", "rediss://"),
                    ("postgres", "`postgres`"),
                    ("none", "`none`"),
                ],
            ))),
        }
    }
}

/// What was probably meant by a scheme. Only what is known is ever shown: the text may be a password.
fn nearest(scheme: &str, known: &[(&str, &'static str)]) -> Option<&'static str> {
    let scheme = scheme.to_lowercase();
    let distances = known
        .iter()
        .map(|(name, meant)| (strsim::damerau_levenshtein(name, &scheme), name.len(), *meant));
    let (distance, length, meant) = distances.min_by_key(|(distance, ..)| *distance)?;
    (distance <= (length / 3).min(2)).then_some(meant)
}

impl BusUrl {
    /// What it is, without an address.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Postgres => "postgres",
            Self::Redis(_) => "redis",
        }
    }
}

impl TryFrom<String> for StoreUrl {
    type Error = BadUrl;

    fn try_from(text: String) -> Result<Self, BadUrl> {
        text.parse()
    }
}

impl TryFrom<String> for BusUrl {
    type Error = BadUrl;

    fn try_from(text: String) -> Result<Self, BadUrl> {
        text.parse()
    }
}

impl From<StoreUrl> for String {
    fn from(url: StoreUrl) -> Self {
        match url {
            StoreUrl::Sqlite => "sqlite".into(),
            StoreUrl::Postgres(url) => url,
        }
    }
}

impl From<BusUrl> for String {
    fn from(url: BusUrl) -> Self {
        match url {
            BusUrl::None => "none".into(),
            BusUrl::Postgres => "postgres".into(),
            BusUrl::Redis(url) => url,
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "Sqlite",
            Self::Postgres(_) => "Postgres(…)",
        })
    }
}

impl fmt::Debug for BusUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Postgres => "Postgres",
            Self::Redis(_) => "Redis(…)",
        })
    }
}

/// The three settings that give one address.
struct Ways {
    section: &'static str,
    flag: &'static str,
}

const STORE: Ways = Ways { section: "store", flag: "--store" };
const BUS: Ways = Ways { section: "bus", flag: "--bus" };

impl StoreSettings {
    /// Keeps, of the ways to give the address, the one of the highest layer. Two of one layer are an error.
    pub(super) fn settle(&mut self, origins: &Origins) -> Result<(), Failure> {
        let text = self.url.clone().map(String::from);
        let way = STORE.chosen(origins, text.as_deref())?;
        self.url.take_if(|_| way != Some("url"));
        self.url_file.take_if(|_| way != Some("url_file"));
        if way != Some("url_command") {
            self.url_command.clear();
        }
        Ok(())
    }

    /// Whether the database is certainly the one in the data folder: no file or command says another.
    pub(crate) fn is_in_folder(&self) -> bool {
        let is_elsewhere = self.url_file.is_some() || !self.url_command.is_empty();
        !is_elsewhere && !matches!(self.url, Some(StoreUrl::Postgres(_)))
    }

    /// The address, read from where it is.
    pub(crate) async fn resolved(&self) -> Result<StoreUrl, Failure> {
        let given = STORE.read(self.url_file.as_deref(), &self.url_command).await?;
        Ok(given.or_else(|| self.url.clone()).unwrap_or(StoreUrl::Sqlite))
    }
}

impl BusSettings {
    /// As [`StoreSettings::settle`].
    pub(super) fn settle(&mut self, origins: &Origins) -> Result<(), Failure> {
        let text = self.url.clone().map(String::from);
        let way = BUS.chosen(origins, text.as_deref())?;
        self.url.take_if(|_| way != Some("url"));
        self.url_file.take_if(|_| way != Some("url_file"));
        if way != Some("url_command") {
            self.url_command.clear();
        }
        Ok(())
    }

    /// The address, read from where it is. With PostgreSQL the bus is there by default; with SQLite there
    /// is none, because there are no other replicas.
    pub(crate) async fn resolved(&self, store: &StoreUrl) -> Result<BusUrl, Failure> {
        let given = BUS.read(self.url_file.as_deref(), &self.url_command).await?;
        match (store, given.or_else(|| self.url.clone())) {
            (StoreUrl::Postgres(_), None) => Ok(BusUrl::Postgres),
            (StoreUrl::Postgres(_), Some(bus)) => Ok(bus),
            (StoreUrl::Sqlite, None | Some(BusUrl::None)) => Ok(BusUrl::None),
            (StoreUrl::Sqlite, Some(_)) => Err(Failure::new(
                "a bus is set, and the store is SQLite: a bus carries messages between replicas, and a \
                 SQLite database has one process",
            )
            .hint("leave out --bus and `bus.url`, or share a database: --store postgres://host/database")
            .kind(FailureKind::Usage)),
        }
    }
}

impl Ways {
    fn chosen(
        &self,
        origins: &Origins,
        url: Option<&str>,
    ) -> Result<Option<&'static str>, Failure> {
        let layer = |origin: &Origin| match origin {
            Origin::File { .. } => 0,
            Origin::Environment(_) => 1,
            Origin::Flag(_) => 2,
        };
        let set = ["url", "url_file", "url_command"].into_iter().filter_map(|name| {
            let origin = origins.get(&format!("{}.{name}", self.section))?;
            Some((layer(origin), name, origin))
        });
        let mut set: Vec<_> = set.collect();
        set.sort_by_key(|(layer, ..)| std::cmp::Reverse(*layer));
        match set.as_slice() {
            [(one, name, origin), (other, other_name, _), ..] if one == other => {
                let section = self.section;
                let what = format!(
                    "{}: both `{section}.{name}` and `{section}.{other_name}` are set",
                    origin.place()
                );
                Err(Failure::new(what).hint("keep one of them").kind(FailureKind::Usage))
            }
            [(_, name, origin), ..] => {
                if matches!(origin, Origin::Flag(_)) && url.is_some_and(has_password) {
                    let (flag, section) = (self.flag, self.section);
                    note!(
                        "hint: other users of this machine can see the password in {flag}: put the \
                         address into a file and name it as `{section}.url_file`, or use BOWLINE_{}_URL",
                        section.to_uppercase()
                    );
                }
                Ok(Some(name))
            }
            [] => Ok(None),
        }
    }

    /// What the file holds, or the command prints.
    async fn read<U: FromStr<Err = BadUrl>>(
        &self,
        file: Option<&Path>,
        command: &[String],
    ) -> Result<Option<U>, Failure> {
        let section = self.section;
        let wrong =
            |what: String, hint: String| Failure::new(what).hint(hint).kind(FailureKind::Usage);
        let (text, from) = match (file, command) {
            (Some(file), _) => {
                let from = file.display().to_string();
                let text = std::fs::read_to_string(file).map_err(|error| {
                    wrong(
                        format!("cannot read {from}: {error}"),
                        format!("check `{section}.url_file`"),
                    )
                })?;
                (text, from)
            }
            (None, []) => return Ok(None),
            (None, command) => {
                let from = format!("the output of {section}.url_command");
                let printed = bowline_gateway::secrets::printed_by(command).await;
                let printed = printed.map_err(|why| {
                    wrong(
                        format!("{section}.url_command failed: {why}"),
                        "run the command by hand: it prints the address and exits with 0".into(),
                    )
                })?;
                (String::from_utf8_lossy(&printed).into_owned(), from)
            }
        };
        let url = text.trim().parse().map_err(|why| {
            wrong(
                format!("{from} holds no usable address: {why}"),
                format!("check `{section}.url_file`"),
            )
        })?;
        Ok(Some(url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_said_and_the_text_is_not_shown() {
        let store = |text: &str| text.parse::<StoreUrl>().map_err(|error| error.to_string());
        assert_eq!(store(" sqlite\n"), Ok(StoreUrl::Sqlite));
        assert!(matches!(store("postgresql://h/d"), Ok(StoreUrl::Postgres(_))));
        for (text, says) in [
            ("postgre://u:hunter22@h/d", "did you mean postgres://?"),
            ("psql://u:hunter22@h/d", "did you mean postgres://?"),
            ("mysql://u:hunter22@h/d", "begins with postgres://"),
            ("redis://u:hunter22@h", "it can be the bus"),
            ("sqlite:/hunter22", "choose the folder by `data`"),
            ("hunter22", "neither `sqlite`"),
            ("postgres", "did you mean postgres://?"),
        ] {
            let said = store(text).unwrap_err();
            assert!(said.contains(says) && !said.contains("hunter22"), "{text}: {said}");
        }
        let bus = |text: &str| text.parse::<BusUrl>().map_err(|error| error.to_string());
        assert_eq!(bus("postgres"), Ok(BusUrl::Postgres));
        assert_eq!(bus("none"), Ok(BusUrl::None));
        for (text, says) in [
            ("redsi://:hunter22@h", "did you mean redis://?"),
            ("redis+tls://:hunter22@h", "did you mean rediss://?"),
            ("postgres://u:hunter22@h/d", "without an address"),
            ("nats://hunter22@h", "redis:// or rediss://"),
            ("redis", "did you mean redis://?"),
        ] {
            let said = bus(text).unwrap_err();
            assert!(said.contains(says) && !said.contains("hunter22"), "{text}: {said}");
        }
    }

    #[test]
    fn an_address_is_not_shown_by_debug() {
        let url: StoreUrl = "postgres://u:hunter22@h/d".parse().unwrap();
        let settings = StoreSettings { url: Some(url), ..StoreSettings::default() };
        assert!(!format!("{settings:?}").contains("hunter22"));
    }

    #[tokio::test]
    async fn with_postgresql_the_bus_is_there_and_sqlite_has_none() {
        let postgres: StoreUrl = "postgres://h/d".parse().unwrap();
        let bus = |url: Option<&str>| BusSettings {
            url: url.map(|url| url.parse().unwrap()),
            ..BusSettings::default()
        };
        assert_eq!(bus(None).resolved(&postgres).await.unwrap(), BusUrl::Postgres);
        assert_eq!(bus(Some("none")).resolved(&postgres).await.unwrap(), BusUrl::None);
        assert_eq!(bus(None).resolved(&StoreUrl::Sqlite).await.unwrap(), BusUrl::None);
        for other in ["postgres", "redis://h"] {
            let refused = bus(Some(other)).resolved(&StoreUrl::Sqlite).await.unwrap_err();
            assert!(refused.what().contains("SQLite"), "{refused}");
        }
    }

    #[tokio::test]
    async fn an_address_comes_from_a_file_or_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        std::fs::write(&file, "postgres://u:hunter22@h/d\n").unwrap();
        let of_file = StoreSettings { url_file: Some(file.clone()), ..StoreSettings::default() };
        assert!(matches!(of_file.resolved().await, Ok(StoreUrl::Postgres(_))));
        std::fs::write(&file, "mysql://u:hunter22@h/d\n").unwrap();
        let refused = of_file.resolved().await.unwrap_err().text();
        assert!(refused.contains("url") && !refused.contains("hunter22"), "{refused}");
        let command = vec!["echo".to_owned(), "redis://:hunter22@h".to_owned()];
        let of_command = BusSettings { url_command: command, ..BusSettings::default() };
        let store = StoreUrl::Postgres("postgres://h/d".into());
        assert!(matches!(of_command.resolved(&store).await, Ok(BusUrl::Redis(_))));
        let fails = BusSettings { url_command: vec!["false".into()], ..BusSettings::default() };
        let refused = fails.resolved(&store).await.unwrap_err().text();
        assert!(refused.contains("bus.url_command failed: exit status: 1"), "{refused}");
    }
}
