//! The database and the bus that the settings name, opened for a gateway.
//!
//! Apart from `bowline up`, because `doctor` and `bowline store` open the same database, and the errors of
//! all of them say what happened, why, and what to do.

use std::fs::File;
use std::sync::Arc;

use bowline_store::Store;
use bowline_store::sqlite::Sqlite;

use crate::failure::Failure;
use crate::settings::{BusUrl, Settings, StoreUrl};

/// An open database, and what carries messages between the replicas that share it.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) store: Arc<dyn Store>,
    /// The database as a person may see it; none: in the data folder.
    pub(crate) name: Option<String>,
    /// Holds the data folder of a replica, which has no database that could be locked.
    _folder: Option<File>,
}

impl Storage {
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Failure> {
        let url = settings.store.resolved().await?;
        let bus = settings.bus.resolved(&url).await?;
        match url {
            StoreUrl::Sqlite => {
                let store: Arc<dyn Store> = Arc::new(Sqlite::open(&settings.data)?);
                Ok(Self { store, name: None, _folder: None })
            }
            StoreUrl::Postgres(_) => {
                let _: BusUrl = bus;
                Err(Failure::new("this build cannot open PostgreSQL databases yet"))
            }
        }
    }

    /// Whether other replicas may use the same database.
    pub(crate) fn is_shared(&self) -> bool {
        self.name.is_some()
    }
}
