//! The flags that name a database and a bus.

use clap::Args;

/// Where the sessions are, and how replicas reach each other.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StoreFlags {
    /// The database: `sqlite` in the data folder, or postgres://USER@HOST/DATABASE for several
    /// replicas. Others on this machine can see a password in it: put one into BOWLINE_STORE_URL or a
    /// file (`store.url_file`) [default: sqlite]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// How replicas reach each other: redis://HOST, rediss://HOST (TLS), `postgres` or `none`. As with
    /// --store, keep a password in BOWLINE_BUS_URL or a file [default with PostgreSQL: postgres]
    #[arg(long, value_name = "URL")]
    pub(crate) bus: Option<String>,
}
