//! Arguments of `bowline store`, and the flags that name a database and a bus.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The data folder
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Bring the database's schema to the version that this bowline knows
    #[command(after_help = "\
A gateway does the same when it starts. One migrates, others wait for it. There is no way back: make
a backup first (`bowline backup create`, or pg_dump).

Examples:
  bowline store migrate
  bowline store migrate --store postgres://bowline@db.example/bowline --json")]
    Migrate {
        /// The database [default: the one of the settings]
        #[arg(long, value_name = "URL")]
        store: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check that the database can be used, and what is in it
    #[command(after_help = "\
Connects, compares the schema's version, counts rows, lists the replicas that are alive, says how far
the search index is behind, and computes the content ids of stored bundles and blobs again: of a
sample, or of all with --all. Changes nothing. Ends with 1 if something is wrong.

Examples:
  bowline store check
  bowline store check --store postgres://bowline@db.example/bowline --all --json")]
    Check {
        /// The database [default: the one of the settings]
        #[arg(long, value_name = "URL")]
        store: Option<String>,
        /// Check every bundle and blob, not a sample
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Copy everything to another, empty database; an interrupted copy is resumed
    #[command(after_help = "\
Stop every gateway on the source first. At the end both databases are counted and compared: every
log, bundle and blob by its hash. The source is not changed. The secrets are copied as they are: the
gateway needs the same master secret (secrets.file) as before, and its data folder's identity.key.

A database is postgres://USER@HOST/DATABASE, or sqlite:DIR for the one in a data folder. Keep a
password in a file, and name that as @FILE.

Examples:
  bowline store copy --from sqlite:/var/lib/bowline --to postgres://bowline@db.example/bowline
  bowline store copy --from sqlite:/var/lib/bowline --to @/etc/bowline/store.url
  bowline store copy --from postgres://bowline@db.example/bowline --to sqlite:./copy --json")]
    Copy {
        /// The database to read: sqlite:DIR, postgres://…, or @FILE with such an address
        #[arg(long, value_name = "URL")]
        from: String,
        /// The database to fill; empty, or left by a copy that did not finish
        #[arg(long, value_name = "URL")]
        to: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
