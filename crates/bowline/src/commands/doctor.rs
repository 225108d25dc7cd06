//! `bowline doctor`: checks what a gateway needs, the gateway that runs in the data folder, and what
//! daemons, clients and control planes keep there.
//!
//! One file per subject. A check that has nothing to look at says nothing, unless it is one that
//! every gateway needs.

mod gateway;
mod machine;
mod relay;
mod secret_files;
mod upstreams;

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::terminal::{self, columns, say, show};
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

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, result: Grade::Ok, detail: detail.into() }
    }

    fn warn(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, result: Grade::Warn, detail: detail.into() }
    }

    fn fail(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, result: Grade::Fail, detail: detail.into() }
    }
}

pub(crate) async fn run(args: DoctorArgs) -> Result<ExitCode, Failure> {
    let settings = Settings::load(&args.settings)?;
    let findings = terminal::waiting("checking", findings(&settings)).await;
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

async fn findings(settings: &Settings) -> Vec<Finding> {
    let running = local::running(&settings.data);
    let mut findings = vec![machine::folder(settings)];
    findings.extend(gateway::findings(settings, running.as_ref()).await);
    findings.extend(upstreams::findings(settings, running.as_ref()).await);
    findings.push(machine::address(settings, running.as_ref()).await);
    findings.extend(secret_files::findings(settings));
    findings.extend(relay::findings(settings).await);
    findings.extend([machine::clock(), machine::open_files()]);
    findings
}

/// A path as it is shown.
fn shown(path: &std::path::Path) -> String {
    paths::short(path)
}
