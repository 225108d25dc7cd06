//! `bowline store`: migrate, check, copy.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bowline_store::Upkeep as _;
use bowline_store::copy::{self, CheckReport, CopyReport, Place, Progress, Step, TableRows};
use bowline_store::postgres::{self, PostgresConfig};
use bowline_store::sqlite::{self, Sqlite};
use serde_json::{Value, json};

use crate::cli::SettingArgs;
use crate::cli::store::{StoreArgs, StoreCommand, StoreFlags};
use crate::failure::{Failure, FailureKind};
use crate::settings::Settings;
use crate::shell::quote_path;
use crate::storage::{self, SECRETS};
use crate::terminal::{self, columns, note, say, show};

/// How often progress is shown; a copy that takes less shows none.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: StoreArgs) -> Result<ExitCode, Failure> {
    let StoreArgs { config, data, command } = args;
    let settings = |store: Option<String>| {
        let store = StoreFlags { store, bus: None };
        Settings::load(&SettingArgs { config, data, store, ..SettingArgs::default() })
    };
    match command {
        StoreCommand::Migrate { store, json } => migrate(&settings(store)?, json).await,
        StoreCommand::Check { store, all, json } => check(&settings(store)?, all, json).await,
        StoreCommand::Copy { from, to, json } => copy(&from, &to, json).await,
    }
}

async fn migrate(settings: &Settings, json: bool) -> Result<ExitCode, Failure> {
    let place = storage::place(settings).await?;
    let (from, to) = match &place {
        Place::Postgres(config) => {
            let waiting = "migrating; another gateway may be doing it already";
            let done = terminal::waiting(waiting, postgres::migrate(config)).await?;
            (done.from, done.to)
        }
        Place::Sqlite(folder) => migrate_folder(folder).await?,
    };
    let database = place.name();
    if json {
        say!("{}", json!({ "database": database, "from": from, "to": to }));
        return Ok(ExitCode::SUCCESS);
    }
    match (from, to) {
        (from, to) if from == to => say!("{database} has schema version {to}; nothing to do"),
        (0, to) => say!("{database} was empty and has schema version {to} now"),
        (from, to) => say!("{database} was migrated from schema version {from} to {to}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the versions before and after.
async fn migrate_folder(folder: &Path) -> Result<(u32, u32), Failure> {
    let from = sqlite::version_of(folder)?;
    // A gateway migrates when it opens the folder, and so does this.
    let store = Sqlite::open(folder)?;
    store.close().await;
    Ok((from, sqlite::version_of(folder)?))
}

async fn check(settings: &Settings, all: bool, json: bool) -> Result<ExitCode, Failure> {
    let place = storage::place(settings).await?;
    let report = terminal::waiting("checking", copy::check(&place, all)).await?;
    match json {
        true => say!("{}", check_json(&report)),
        false => show!("{}", check_text(&report)),
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_text(report: &CheckReport) -> String {
    let mut rows = vec![
        ["database".to_owned(), report.database.clone()],
        ["schema".to_owned(), format!("version {}", report.schema_version)],
    ];
    if let Some(replicas) = report.replicas {
        rows.push(["replicas".to_owned(), format!("{replicas} alive")]);
    }
    let index = match report.unindexed {
        0 => "complete".to_owned(),
        behind => format!("{behind} messages behind"),
    };
    rows.push(["search index".to_owned(), index]);
    let filled = report.tables.iter().filter(|table| table.rows > 0);
    rows.extend(filled.map(|TableRows { table, rows }| [table.to_string(), rows.to_string()]));
    let read = format!(
        "{} bundles and {} blobs compared with their content ids",
        report.bundles_read, report.blobs_read
    );
    rows.push(["contents".to_owned(), read]);
    let problems = report.problems.iter().map(|problem| ["FAIL".to_owned(), problem.clone()]);
    rows.extend(problems);
    columns(&rows)
}

fn check_json(report: &CheckReport) -> Value {
    json!({
        "database": report.database,
        "schema_version": report.schema_version,
        "replicas": report.replicas,
        "unindexed": report.unindexed,
        "rows": counts(&report.tables),
        "bundles_read": report.bundles_read,
        "blobs_read": report.blobs_read,
        "problems": report.problems,
    })
}

async fn copy(from: &str, to: &str, json: bool) -> Result<ExitCode, Failure> {
    let (from, to) = (place(from, "--from")?, place(to, "--to")?);
    let begun = Instant::now();
    let shown = Mutex::new(begun);
    let progress = |progress: Progress| {
        let mut last = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.elapsed() >= EVERY {
            *last = Instant::now();
            let doing = match progress.step {
                Step::Copying => "copying",
                Step::Comparing => "comparing",
            };
            note!("{doing} {}: {} of {} rows", progress.table, progress.rows, progress.of);
        }
    };
    let report = copy::copy(&from, &to, &progress).await?;
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        say!("{}", copy_json(&report, seconds));
        return Ok(ExitCode::SUCCESS);
    }
    let how = if report.resumed { "resumed and finished" } else { "copied" };
    say!(
        "{how}: {} to {}; {} sessions, {} messages, {} rows in all, in {seconds:.1} s",
        report.from,
        report.to,
        report.rows_of("sessions"),
        report.rows_of("entries"),
        report.rows(),
    );
    note!("compared: {} logs, {} blobs and every row", report.logs, report.rows_of("blobs"));
    if let (Place::Sqlite(folder), Place::Postgres(_)) = (&from, &to) {
        // The secrets are sealed with the file, and the first gateway brings the identity.
        note!(
            "\nstart the first gateway with the same data folder, and every one with the same secrets.file:\n  \
             BOWLINE_STORE_URL=… BOWLINE_SECRETS_FILE={} bowline gateway run --data {}",
            quote_path(&folder.join(SECRETS)),
            quote_path(folder),
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn copy_json(report: &CopyReport, seconds: f64) -> Value {
    json!({
        "from": report.from,
        "to": report.to,
        "resumed": report.resumed,
        "rows": counts(&report.tables),
        "rows_in_all": report.rows(),
        "logs_compared": report.logs,
        "seconds": seconds,
    })
}

fn counts(tables: &[TableRows]) -> Value {
    tables.iter().map(|TableRows { table, rows }| (table.to_string(), json!(rows))).collect()
}

/// `sqlite:DIR`, `postgres://…`, or `@FILE` with one of these. No error shows the text: it may hold a
/// password.
fn place(text: &str, flag: &'static str) -> Result<Place, Failure> {
    let wrong = |what: String| {
        Failure::new(format!("the flag {flag}: {what}"))
            .hint("write sqlite:DIR, postgres://USER@HOST/DATABASE, or @FILE with such an address")
            .kind(FailureKind::Usage)
    };
    if let Some(file) = text.strip_prefix('@') {
        let text = std::fs::read_to_string(file)
            .map_err(|error| wrong(format!("cannot read {file}: {error}")))?;
        return match text.trim() {
            nested if nested.starts_with('@') => Err(wrong(format!("{file} names another file"))),
            address => place(address, flag),
        };
    }
    if let Some(folder) = text.strip_prefix("sqlite:") {
        return match folder {
            "" => Err(wrong("`sqlite:` names no folder".into())),
            folder => Ok(Place::Sqlite(PathBuf::from(folder))),
        };
    }
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err(wrong("it is neither sqlite:DIR nor postgres://…".into()));
    }
    let config = PostgresConfig::new(text).map_err(|error| wrong(error.to_string()))?;
    Ok(Place::Postgres(Box::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_and_a_mistake_shows_no_password() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        std::fs::write(&file, "postgres://me:hunter22@db/b\n").unwrap();
        let name = |text: &str| place(text, "--to").map(|place| place.name());
        assert_eq!(name(&format!("@{}", file.display())).unwrap(), "postgres://db:5432/b");
        assert_eq!(name("sqlite:/var/lib/b").unwrap(), "sqlite:/var/lib/b");
        for wrong in
            ["sqlite:", "mysql://me:hunter22@db", "hunter22", "postgres://me:hunter22@db:x/b"]
        {
            let said = name(wrong).unwrap_err().text();
            assert!(said.contains("--to") && !said.contains("hunter22"), "{said}");
        }
    }
}
