//! The database and the bus that the settings name, opened for a gateway.
//!
//! Apart from `bowline up`, because `doctor` and `bowline store` use the same database, and the errors of
//! all of them say what happened, why, and what to do.

use std::fs::File;
use std::sync::Arc;

use bowline_bus::{Bus, BusError, Fallback, Memory, NoFallback, RedisUrl};
use bowline_store::Store;
use bowline_store::copy::Place;
use bowline_store::postgres::{Postgres, PostgresConfig};
use bowline_store::sqlite::{self, Sqlite};

use crate::failure::{Failure, FailureKind};
use crate::settings::{BusUrl, Settings, StoreSettings, StoreUrl};
use crate::terminal;

/// The file of the master secret in a data folder, which seals the secrets of the database in there.
pub(crate) const SECRETS: &str = "secrets.key";

/// An open database, and what carries messages between the replicas that share it.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bus: Arc<dyn Bus>,
    /// What the bus is, without an address.
    pub(crate) bus_name: &'static str,
    /// The database as a person may see it; none: in the data folder.
    pub(crate) name: Option<String>,
    /// Holds the data folder of a replica, in which there is no database to be locked.
    _folder: Option<File>,
}

impl Storage {
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Failure> {
        let url = settings.store.resolved().await?;
        let bus = settings.bus.resolved(&url).await?;
        let StoreUrl::Postgres(url) = url else {
            let store: Arc<dyn Store> = Arc::new(Sqlite::open(&settings.data)?);
            let (bus, bus_name) = (Arc::new(Memory::new()), bus.name());
            return Ok(Self { store, bus, bus_name, name: None, _folder: None });
        };
        let config = config(&url, &settings.store)?;
        // One replica uses a data folder: its key and its address are in there.
        let folder = sqlite::own(&settings.data)?;
        let opening = Postgres::open(&config);
        let waiting = "opening the database; another gateway may be migrating it";
        let store: Arc<dyn Store> = Arc::new(terminal::waiting(waiting, opening).await?);
        if bus == BusUrl::None {
            tracing::warn!(
                "the bus is `none`, so this gateway has to be the only one with this database: others \
                 would not reach the sessions that are live here"
            );
        }
        let bus_name = bus.name();
        // After the store, which makes the tables of an empty database.
        let bus = open_bus(&bus, &config).await?;
        Ok(Self { store, bus, bus_name, name: Some(config.name()), _folder: Some(folder) })
    }

    /// Whether other replicas may use the same database.
    pub(crate) fn is_shared(&self) -> bool {
        self.name.is_some()
    }
}

/// What Redis calls everything of ours. Ids of replicas are random, so installations may share a Redis.
const PREFIX: &str = "bowline";

async fn open_bus(bus: &BusUrl, database: &PostgresConfig) -> Result<Arc<dyn Bus>, Failure> {
    let lost = |error: BusError| {
        Failure::new(error).hint("check that the database is running, then try again")
    };
    Ok(match bus {
        BusUrl::None => Arc::new(Memory::new()),
        BusUrl::Postgres => Arc::new(bowline_bus::Postgres::connect(database).await.map_err(lost)?),
        BusUrl::Redis(url) => {
            let url = url.parse::<RedisUrl>().map_err(|error| {
                Failure::new(format!("`bus.url` is wrong: {error}"))
                    .hint("write it like rediss://:PASSWORD@HOST:6379/0")
                    .kind(FailureKind::Usage)
            })?;
            match Fallback::connect(&url, PREFIX, database).await {
                Ok(bus) => Arc::new(bus),
                Err(NoFallback::Postgres(error)) => return Err(lost(error)),
                Err(error) => return Err(Failure::new(error).kind(FailureKind::Usage)),
            }
        }
    })
}

/// Where the database of the settings is.
pub(crate) async fn place(settings: &Settings) -> Result<Place, Failure> {
    match settings.store.resolved().await? {
        StoreUrl::Sqlite => Ok(Place::Sqlite(settings.data.clone())),
        StoreUrl::Postgres(url) => Ok(Place::Postgres(Box::new(config(&url, &settings.store)?))),
    }
}

fn config(url: &str, settings: &StoreSettings) -> Result<PostgresConfig, Failure> {
    let mut config = PostgresConfig::new(url).map_err(|error| {
        Failure::new(format!("`store.url` is wrong: {error}"))
            .hint(
                "write it like postgres://USER@HOST:5432/DATABASE?sslmode=verify-full; a `/`, `@` or `%` \
                 in a password is written as %2F, %40 or %25",
            )
            .kind(FailureKind::Usage)
    })?;
    config.connections = settings.connections;
    config.statement_timeout = settings.statement_timeout;
    Ok(config)
}
