//! `bowline doctor`: checks data folder, database, upstreams, address, clock and file limit.

use std::process::ExitCode;

use bowline_gateway::model::Models;
use bowline_net::descriptors;
use bowline_store::sqlite::{self, FILE, Sqlite};
use bowline_store::{OpenError, Upkeep};
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::terminal::{columns, say, show, utc};
use crate::{local, paths};

/// The result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    result: Grade,
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Ok,
    Warn,
    Fail,
}

pub(crate) async fn run(args: DoctorArgs) -> Result<ExitCode, Failure> {
    let settings = Settings::load(&args.settings)?;
    let mut findings = vec![folder(&settings), database(&settings).await];
    findings.extend(upstreams(&settings).await);
    findings.extend([address(&settings).await, clock(), open_files()]);
    let failed = findings.iter().any(|finding| finding.result == Grade::Fail);
    if args.json {
        say!("{}", serde_json::to_string(&findings).map_err(Failure::new)?);
    } else {
        let row = |Finding { check, result, detail }: &Finding| {
            let mark = match result {
                Grade::Ok => "ok",
                Grade::Warn => "warn",
                Grade::Fail => "FAIL",
            };
            [mark.to_owned(), check.to_string(), detail.clone()]
        };
        show!("{}", columns(&findings.iter().map(row).collect::<Vec<_>>()));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn found(check: &'static str, result: Grade, detail: impl Into<String>) -> Finding {
    Finding { check, result, detail: detail.into() }
}

/// Is the data folder writable?
fn folder(settings: &Settings) -> Finding {
    let (check, path) = ("data folder", &settings.data);
    if !path.exists() {
        let detail = format!("{} will be created at the first start", paths::short(path));
        return found(check, Grade::Ok, detail);
    }
    let probe = path.join(".doctor");
    let written = std::fs::write(&probe, [0; 1 << 16]).and_then(|()| std::fs::remove_file(&probe));
    match written {
        Ok(()) => found(check, Grade::Ok, paths::short(path)),
        Err(error) => {
            let detail = format!(
                "{} cannot be written: {error}; fix its owner or use --data",
                path.display()
            );
            found(check, Grade::Fail, detail)
        }
    }
}

/// Does the database open, or is the gateway that uses it ready?
async fn database(settings: &Settings) -> Finding {
    let check = "database";
    if !settings.data.join(FILE).exists() {
        return found(check, Grade::Ok, "not created yet");
    }
    match Sqlite::open(&settings.data) {
        Ok(store) => match (store.check().await, store.unfinished_turns().await) {
            (Ok(()), Ok(turns)) => match incomplete(settings) {
                Some(detail) => found(check, Grade::Warn, detail),
                None => {
                    let detail = format!("opens and is writable; {turns} unfinished turns");
                    found(check, Grade::Ok, detail)
                }
            },
            (Err(error), _) | (_, Err(error)) => found(check, Grade::Fail, error.to_string()),
        },
        Err(OpenError::InUse { .. }) => running(settings).await,
        Err(error) => found(check, Grade::Fail, error.to_string()),
    }
}

/// What to say of a database whose write-ahead log is missing.
fn incomplete(settings: &Settings) -> Option<String> {
    let since = sqlite::incomplete_since(&settings.data)?;
    Some(format!(
        "opens, but its write-ahead log is missing: it was copied or moved without {FILE}-wal from \
         a folder in use since {}, and its newest turns may be missing, or all; use `bowline \
         backup` to copy a gateway",
        utc(since)
    ))
}

/// A running gateway has locked the database: asks its `/readyz`.
async fn running(settings: &Settings) -> Finding {
    let check = "database";
    if let Some(detail) = incomplete(settings) {
        return found(check, Grade::Warn, detail);
    }
    let Some(running) = local::running(&settings.data) else {
        return found(check, Grade::Warn, "in use by another process");
    };
    let ready = reqwest::get(format!("{}/readyz", running.url)).await;
    match ready.map(|answer| answer.status().as_u16()) {
        Ok(200) => found(
            check,
            Grade::Ok,
            format!("in use by the gateway at {}, which is ready", running.url),
        ),
        Ok(status) => {
            let detail =
                format!("the gateway at {} is not ready ({status}); see its log", running.url);
            found(check, Grade::Fail, detail)
        }
        Err(_) => found(check, Grade::Warn, format!("in use, but {} does not answer", running.url)),
    }
}

/// Do the upstreams answer, and do they accept our keys?
async fn upstreams(settings: &Settings) -> Vec<Finding> {
    let check = "upstream";
    let models = match Models::new(&settings.gateway) {
        Ok(models) => models,
        Err(error) => return vec![found(check, Grade::Fail, error.to_string())],
    };
    let mut findings = Vec::new();
    for upstream in models.upstreams() {
        let (name, at) = (upstream.name(), upstream.address());
        findings.push(match upstream.probe().await {
            Ok(401 | 403) => {
                let detail = format!("{name} at {at} refuses the key; check key_env or key_file");
                found(check, Grade::Fail, detail)
            }
            Ok(200..=299) => found(check, Grade::Ok, format!("{name} at {at} answers")),
            Ok(status) => {
                found(check, Grade::Warn, format!("{name} at {at} answers {status} to GET /models"))
            }
            Err(failure) => found(check, Grade::Fail, failure.to_string()),
        });
    }
    if findings.is_empty() {
        findings.push(found(
            check,
            Grade::Ok,
            "none configured; the built-in offline agent answers",
        ));
    }
    findings
}

/// Is the address free, or used by the gateway of this data folder?
async fn address(settings: &Settings) -> Finding {
    let (check, listen) = ("address", settings.gateway.listen);
    match tokio::net::TcpListener::bind(listen).await {
        Ok(_) => found(check, Grade::Ok, format!("{listen} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let ours = local::running(&settings.data)
                .is_some_and(|r| r.url.ends_with(&listen.to_string()));
            match ours {
                true => found(check, Grade::Ok, format!("{listen} is used by this gateway")),
                false => found(
                    check,
                    Grade::Warn,
                    format!("{listen} is used by another program; choose another with --listen"),
                ),
            }
        }
        Err(error) => found(check, Grade::Fail, format!("{listen}: {error}")),
    }
}

/// Tokens expire by the wall clock, so it must not be far off.
fn clock() -> Finding {
    let now = jiff::Timestamp::now();
    let built = jiff::Timestamp::from_second(1_760_000_000).unwrap_or_default();
    if now < built {
        let detail = format!(
            "{now} is in the past; set the clock, or tokens will not expire when they should"
        );
        return found("clock", Grade::Fail, detail);
    }
    found("clock", Grade::Ok, now.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// Each surface needs a file descriptor.
fn open_files() -> Finding {
    let check = "open files";
    // A gateway raises its limit at the start: this is what it would get.
    let limit = descriptors::raise().now;
    if limit < 4096 {
        let detail = format!(
            "at most {limit}, and no more is allowed; raise the hard limit with `ulimit -Hn 65536` \
             or LimitNOFILE to serve many surfaces"
        );
        return found(check, Grade::Warn, detail);
    }
    found(check, Grade::Ok, format!("at most {limit}, raised as far as allowed"))
}
