//! What becomes of a report: printed, as JUnit, signed, and as a badge.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;

use bowline_conformance::{Report, to_badge, to_junit};
use bowline_gateway::identity_file::{self, IdentityFileError};
use bowline_sbp::gateway_key::GatewayIdentity;
use jiff::Timestamp;

use super::signed;
use crate::cli::conformance::OutputArgs;
use crate::failure::{Failure, FailureKind};
use crate::settings;
use crate::terminal::{note, say, show};

/// The key that signs, if a signed report is wanted. Looked for before the checks are run: a run of a minute
/// that cannot be signed would be in vain.
pub(super) fn signer(args: &OutputArgs) -> Result<Option<GatewayIdentity>, Failure> {
    if args.report.is_none() {
        return Ok(None);
    }
    let failed = |error: IdentityFileError| {
        let hint = error.hint();
        Failure::new(error).hint(hint)
    };
    let identity = match &args.identity {
        Some(file) => identity_file::load_or_make_at(file).map_err(failed)?,
        None => {
            let folder = settings::data_folder(args.data.as_deref());
            std::fs::create_dir_all(&folder).map_err(|error| {
                Failure::new(format!("cannot make {}: {error}", folder.display()))
                    .hint("choose another data folder with --data, or a key file with --identity")
            })?;
            identity_file::load_or_make(&folder).map_err(failed)?
        }
    };
    Ok(Some(identity))
}

/// Looks whether the files can be written, before the checks are run. What is in them stays.
pub(super) fn is_writable(args: &OutputArgs) -> Result<(), Failure> {
    let files = [(&args.junit, "--junit"), (&args.badge, "--badge"), (&args.report, "--report")];
    for (file, flag) in files {
        let Some(file) = file else { continue };
        let is_new = !file.exists();
        let opened = OpenOptions::new().append(true).create(true).open(file);
        opened.map_err(|error| unwritable(file, &error, flag).kind(FailureKind::Usage))?;
        if is_new {
            // A run that does not begin leaves no empty report.
            let _ = std::fs::remove_file(file);
        }
    }
    Ok(())
}

/// Prints and writes the report; the exit code says whether a check failed.
pub(super) fn write(
    report: &Report,
    args: &OutputArgs,
    signer: Option<&GatewayIdentity>,
) -> Result<ExitCode, Failure> {
    // Printed first: a file that cannot be written after all must not lose the run.
    match args.json {
        true => say!("{}", report.to_json()),
        false => show!("{}", report.to_text()),
    }
    if let Some(file) = &args.junit {
        write_file(file, &to_junit(report), "--junit")?;
    }
    if let Some(file) = &args.badge {
        write_file(file, &to_badge(report), "--badge")?;
    }
    if let (Some(file), Some(identity)) = (&args.report, signer) {
        write_file(file, &signed::sign(report, identity, Timestamp::now()), "--report")?;
        note!("signed by {}", identity.public().fingerprint());
    }
    Ok(match report.failures() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(FailureKind::Failed.exit_code()),
    })
}

fn write_file(file: &Path, text: &str, flag: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|error| unwritable(file, &error, flag).kind(FailureKind::DataLost))
}

fn unwritable(file: &Path, error: &std::io::Error, flag: &str) -> Failure {
    let what = format!("cannot write {}: {error}", file.display());
    Failure::new(what).hint(format!("check {flag}"))
}
