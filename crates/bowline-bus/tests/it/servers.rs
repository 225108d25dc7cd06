//! The servers of tests that do not disturb them: one of each for this process.

use std::sync::{Once, OnceLock};

use bowline_bus::RedisUrl;
use bowline_servers::{Flush, Postgres, Redis};
use bowline_store::postgres::PostgresConfig;

pub(crate) fn redis() -> RedisUrl {
    static SHARED: OnceLock<Redis> = OnceLock::new();
    SHARED.get_or_init(|| Redis::start().unwrap()).url().parse().unwrap()
}

pub(crate) fn postgres() -> PostgresConfig {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    static DATABASE: Once = Once::new();
    let server = SHARED.get_or_init(|| Postgres::start(Flush::Off).unwrap());
    DATABASE.call_once(|| server.make_database("bus").unwrap());
    config(server)
}

pub(crate) fn config(server: &Postgres) -> PostgresConfig {
    PostgresConfig::new(&server.url("bus")).unwrap()
}
