//! `bowline backup`: create, verify, restore.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use bowline_store::sqlite;
use serde_json::{Value, json};

use crate::backup::archive::Archive;
use crate::backup::draft::BackupDraft;
use crate::backup::manifest::Manifest;
use crate::backup::{BackupError, Done, folder};
use crate::cli::SettingArgs;
use crate::cli::backup::{BackupArgs, BackupCommand, Output};
use crate::failure::{Failure, FailureKind};
use crate::paths;
use crate::settings::Settings;
use crate::shell::quote_path;
use crate::terminal::{columns, note, say, show, utc};

/// How often progress is shown; a step that takes less shows none.
const EVERY: Duration = Duration::from_secs(1);

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let kind = match &error {
            BackupError::NoData(_) | BackupError::NoFile(_) | BackupError::NoFolder(_) => {
                FailureKind::NotFound
            }
            BackupError::Exists(_)
            | BackupError::Busy(_)
            | BackupError::NotEmpty { .. }
            | BackupError::InUse(_) => FailureKind::Refused,
            BackupError::Full(_) => FailureKind::DataLost,
            _ => FailureKind::Failed,
        };
        let hint = error.hint();
        Failure::new(error).hint(hint).kind(kind)
    }
}

pub(crate) fn run(args: BackupArgs) -> Result<ExitCode, Failure> {
    match args.command {
        BackupCommand::Create { file, force, data, output } => {
            let settings = settings(data)?;
            if !settings.store.is_in_folder() {
                return Err(Failure::new("the sessions are in PostgreSQL, not in the data folder")
                    .hint("back the database up with pg_dump, and keep secrets.file beside it; or name \
                           a folder that has a database: BOWLINE_STORE_URL=sqlite")
                    .kind(FailureKind::Refused));
            }
            create(&file, force, &settings.data, output)
        }
        BackupCommand::Verify { file, output } => verify(&file, output),
        BackupCommand::Restore { file, data, output } => {
            restore(&file, &settings(data)?.data, output)
        }
    }
}

fn settings(data: Option<PathBuf>) -> Result<Settings, Failure> {
    Settings::load(&SettingArgs { data, ..SettingArgs::default() })
}

fn create(file: &Path, force: bool, data: &Path, output: Output) -> Result<ExitCode, Failure> {
    if file.exists() && !force {
        return Err(BackupError::Exists(file.to_owned()).into());
    }
    if file.is_dir() || file.file_name().is_none() {
        let what = format!("{} is a folder", file.display());
        return Err(Failure::new(what).hint("name the file that the backup is written to"));
    }
    let draft = BackupDraft::begin(file)?;
    let (total, members) = (folder::size(data), draft.members());
    let step = ProgressStep { what: "copying", total, quiet: output.quiet };
    // SQLite does not say how far it is, but the file grows.
    let manifest =
        step.run(|_| folder::copied(&members), |done| folder::collect(data, &draft, done))?;
    let total = manifest.members.iter().map(|member| member.size).sum();
    let step = ProgressStep { what: "writing", total, quiet: output.quiet };
    let size = step.run(Done::bytes, |done| folder::pack(&draft, &manifest, done))?;
    draft.publish(file, force)?;
    if let Some(since) = sqlite::incomplete_since(data)
        && !output.quiet
    {
        note!(
            "warning: the database in {} is a copy that lacks its newest turns: it was copied \
             without its write-ahead log, from a folder in use since {}",
            paths::short(data),
            utc(since)
        );
    }
    match output {
        Output { json: true, .. } => say!("{}", about(file, size, &manifest)),
        Output { quiet: true, .. } => {}
        _ => {
            note!("{}", summary(&manifest, size));
            say!("{}", file.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(file: &Path, output: Output) -> Result<ExitCode, Failure> {
    let mut archive = opened(file, output)?;
    let folder = tempfile::Builder::new().prefix("bowline-verify-").tempdir().map_err(|error| {
        Failure::new(format!("cannot make a temporary folder: {error}"))
            .hint("set TMPDIR to a folder with room for the database")
    })?;
    let step = ProgressStep { what: "unpacking", total: archive.size, quiet: output.quiet };
    step.run(Done::bytes, |done| folder::check(&mut archive, folder.path(), done)).map_err(
        |error| match error {
            BackupError::Full(_) => Failure::new("there is not enough room to unpack the backup")
                .hint("set TMPDIR to a folder with room for the database")
                .kind(FailureKind::DataLost),
            error => error.into(),
        },
    )?;
    let manifest = &archive.manifest;
    match output {
        Output { json: true, .. } => say!("{}", about(file, archive.size, manifest)),
        Output { quiet: true, .. } => {}
        _ => {
            say!("the backup is good: {}\n", summary(manifest, archive.size));
            let rows: Vec<_> =
                manifest.members.iter().map(|m| [m.name.clone(), bytes(m.size)]).collect();
            show!("{}", columns(&rows));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn restore(file: &Path, data: &Path, output: Output) -> Result<ExitCode, Failure> {
    let mut archive = opened(file, output)?;
    let step = ProgressStep { what: "restoring", total: archive.size, quiet: output.quiet };
    step.run(Done::bytes, |done| folder::restore(&mut archive, data, done))?;
    match output {
        Output { json: true, .. } => {
            let mut about = about(file, archive.size, &archive.manifest);
            about["data"] = json!(data);
            say!("{about}");
        }
        Output { quiet: true, .. } => {}
        _ => {
            note!("{}", summary(&archive.manifest, archive.size));
            say!("{}", data.display());
            note!("\nstart it with: bowline up --data {}", quote_path(data));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn opened(file: &Path, output: Output) -> Result<Archive, Failure> {
    let total = std::fs::metadata(file).map_or(0, |file| file.len());
    let step = ProgressStep { what: "checking", total, quiet: output.quiet };
    Ok(step.run(Done::bytes, |done| Archive::open(file, done))?)
}

fn about(file: &Path, size: u64, manifest: &Manifest) -> Value {
    json!({ "file": file, "size": size, "manifest": manifest })
}

fn summary(manifest: &Manifest, size: u64) -> String {
    let sessions = match manifest.sessions {
        Some(1) => "1 session".into(),
        Some(sessions) => format!("{sessions} sessions"),
        None => "a control plane".to_owned(),
    };
    format!(
        "{sessions} of {}, {}, made by bowline {}",
        utc(manifest.created_at),
        bytes(size),
        manifest.bowline
    )
}

fn bytes(size: u64) -> String {
    match size {
        0..10_000 => format!("{size} bytes"),
        10_000..10_000_000 => format!("{} kB", size / 1000),
        _ => format!("{} MB", size / 1_000_000),
    }
}

/// One step of a command. Its progress is shown on stderr, once a second.
struct ProgressStep {
    what: &'static str,
    total: u64,
    quiet: bool,
}

impl ProgressStep {
    fn run<T>(&self, measured: impl Fn(&Done) -> u64 + Sync, work: impl FnOnce(&Done) -> T) -> T {
        let done = Done::default();
        let (end, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (done, measured) = (&done, &measured);
            scope.spawn(move || {
                while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    if !self.quiet {
                        let so_far = measured(done);
                        note!("{}: {} of about {}", self.what, bytes(so_far), bytes(self.total));
                    }
                }
            });
            let outcome = work(done);
            drop(end);
            outcome
        })
    }
}
