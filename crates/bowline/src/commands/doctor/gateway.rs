//! The database, and the gateway that uses it.

use bowline_store::copy::Place;
use bowline_store::postgres::{self, PostgresConfig};
use bowline_store::sqlite::{self, FILE, Sqlite};
use bowline_store::{OpenError, Upkeep};

use super::Finding;
use crate::api::Api;
use crate::failure::Failure;
use crate::local::Running;
use crate::settings::{BusUrl, Settings, StoreUrl};
use crate::storage;
use crate::terminal::{one_line, utc};

/// The most sessions that are counted.
const COUNTED: usize = 200;

/// Does the database open, or is the gateway that uses it well?
pub(super) async fn findings(settings: &Settings, running: Option<&Running>) -> Vec<Finding> {
    let check = "database";
    match storage::place(settings).await {
        Err(failure) => return vec![Finding::fail(check, failure.to_string())],
        Ok(Place::Postgres(config)) => return on_postgres(settings, &config, running).await,
        Ok(Place::Sqlite(_)) => {}
    }
    if !settings.data.join(FILE).exists() {
        return vec![Finding::ok(check, "not created yet")];
    }
    let finding = match Sqlite::open(&settings.data) {
        Ok(store) => match (store.check().await, store.unfinished_turns().await) {
            (Ok(()), Ok(turns)) => incomplete(settings).unwrap_or_else(|| {
                Finding::ok(check, format!("opens and is writable; {turns} unfinished turns"))
            }),
            (Err(error), _) | (_, Err(error)) => Finding::fail(check, error.to_string()),
        },
        Err(OpenError::InUse { .. }) => return in_use(settings, running).await,
        Err(error) => Finding::fail(check, error.to_string()),
    };
    vec![finding]
}

/// The database on a server, the bus beside it, and the replica of this folder, if it runs.
async fn on_postgres(
    settings: &Settings,
    config: &PostgresConfig,
    running: Option<&Running>,
) -> Vec<Finding> {
    let name = config.name();
    let mut findings = vec![match postgres::version_of(config).await {
        Ok(Some(version)) => Finding::ok("database", format!("{name}, schema version {version}")),
        Ok(None) => {
            Finding::ok("database", format!("{name} is empty; the first start prepares it"))
        }
        Err(error) => Finding::fail("database", Failure::from(error).to_string()),
    }];
    let bus = settings.bus.resolved(&StoreUrl::Postgres(String::new())).await;
    findings.push(match bus {
        Ok(BusUrl::None) => {
            Finding::warn("bus", "none: this gateway has to be the only one with this database")
        }
        Ok(bus) => Finding::ok("bus", bus.name()),
        Err(failure) => Finding::fail("bus", failure.to_string()),
    });
    if let Some(running) = running {
        findings.extend(match Api::of_folder(&settings.data) {
            Ok(api) => asked(&api, &running.url).await,
            Err(failure) => vec![Finding::fail("gateway", failure.what())],
        });
    }
    findings
}

/// What to say of a database whose write-ahead log is missing.
fn incomplete(settings: &Settings) -> Option<Finding> {
    let since = sqlite::incomplete_since(&settings.data)?;
    let detail = format!(
        "opens, but its write-ahead log is missing: it was copied or moved without {FILE}-wal from \
         a folder in use since {}, and its newest turns may be missing, or all; use `bowline \
         backup` to copy a gateway",
        utc(since)
    );
    Some(Finding::warn("database", detail))
}

/// A running gateway has locked the database: asks it.
async fn in_use(settings: &Settings, running: Option<&Running>) -> Vec<Finding> {
    let Some(running) = running else {
        let in_use = || Finding::warn("database", "in use by another process");
        return vec![incomplete(settings).unwrap_or_else(in_use)];
    };
    let (url, pid) = (&running.url, running.pid);
    let database = incomplete(settings).unwrap_or_else(|| {
        Finding::ok("database", format!("in use by the gateway at {url} (pid {pid})"))
    });
    let gateway = match Api::of_folder(&settings.data) {
        Ok(api) => asked(&api, url).await,
        Err(failure) => vec![Finding::fail("gateway", failure.what())],
    };
    std::iter::once(database).chain(gateway).collect()
}

async fn asked(api: &Api, url: &str) -> Vec<Finding> {
    let check = "gateway";
    let ready = match api.status("/readyz").await {
        Ok(200) => Finding::ok(check, format!("{url}, which is ready")),
        Ok(status) => Finding::fail(check, format!("{url} is not ready ({status}); see its log")),
        Err(failure) => return vec![Finding::fail(check, failure.what())],
    };
    vec![ready, version(api).await, sessions(api).await]
}

/// Is it the same version as this command?
async fn version(api: &Api) -> Finding {
    let (check, ours) = ("version", env!("CARGO_PKG_VERSION"));
    match api.get("/healthz").await {
        Ok(health) if health["version"] == ours => Finding::ok(check, ours),
        Ok(health) => {
            let theirs = one_line(health["version"].as_str().unwrap_or("unknown"));
            let detail = format!("the gateway is {theirs}, this command is {ours}; restart it");
            Finding::warn(check, detail)
        }
        Err(failure) => Finding::fail(check, failure.what()),
    }
}

/// Does the folder's key open it, and what is there?
async fn sessions(api: &Api) -> Finding {
    let check = "sessions";
    match api.get(&format!("/v1/sessions?limit={COUNTED}")).await {
        Ok(list) => {
            let count = list["sessions"].as_array().map_or(0, Vec::len);
            let more = if list["next"].is_string() { " or more" } else { "" };
            Finding::ok(check, format!("{count}{more}"))
        }
        Err(failure) => Finding::fail(check, failure.what()),
    }
}
