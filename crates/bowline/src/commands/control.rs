//! `bowline control`: the control plane's server, and its administration.

mod audit;
mod daemon;
mod relay;
mod rotate;
mod serve;
mod user;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bowline_net::DoorError;
use bowline_relay::MetricsAccess;
use bowline_relay::control::ControlStartError;
use bowline_relay::control::registry::{self, Registry, RegistryOpenError};

use crate::cli::control::{ControlArgs, ControlCommand};
use crate::failure::{Failure, FailureKind};
use crate::settings::{self, Settings};
use crate::shell::quote_path;
use crate::terminal::utc;
use crate::{paths, secrets};

/// The shortest key for metrics, in bytes.
const SHORTEST_METRICS_KEY: usize = 20;

pub(crate) async fn run(args: ControlArgs) -> Result<ExitCode, Failure> {
    let config = args.config.as_deref();
    let data = settings::control_data(args.data.clone(), config);
    match args.command {
        ControlCommand::Run(serve) => {
            let flags = serve.flags(args.data.as_deref());
            serve::run(Settings::of(config, flags)?, data, args.json).await
        }
        ControlCommand::User(command) => user::run(&data, command, args.json),
        ControlCommand::Daemon(command) => daemon::run(&data, command, args.json),
        ControlCommand::Relay(command) => relay::run(&data, command, args.json),
        ControlCommand::Rotate { compromised } => rotate::run(&data, compromised, args.json),
        ControlCommand::Audit { limit } => audit::run(&data, limit, args.json),
    }
}

/// Opens an existing registry; fails if neither a first start nor `user add` has created it.
fn registry(data: &Path) -> Result<Registry, Failure> {
    Registry::open_existing(data).map_err(|error| unopened(error, data))
}

fn unopened(error: RegistryOpenError, data: &Path) -> Failure {
    let hint = match &error {
        RegistryOpenError::Missing { .. } => {
            "make its first user with `bowline control user add NAME`, or name another folder with \
             --data"
                .into()
        }
        RegistryOpenError::Folder { .. } => {
            "check that the folder exists and is yours, or choose another with --data".into()
        }
        RegistryOpenError::Exposed { path, .. } => {
            let mode = if Path::new(path) == data { 700 } else { 600 };
            format!(
                "if nobody has opened it: chmod {mode} {path}; otherwise also run `bowline control \
                 rotate --compromised`"
            )
        }
        RegistryOpenError::NewerSchema { .. } => {
            "a newer bowline wrote it; run that version, or use another folder with --data".into()
        }
        RegistryOpenError::Foreign { .. } => "choose an empty folder with --data".into(),
        RegistryOpenError::Database(_) => {
            "check the disk; if the file is damaged, restore it from a backup".into()
        }
    };
    let kind = match &error {
        RegistryOpenError::Missing { .. } => FailureKind::NotFound,
        _ => FailureKind::Failed,
    };
    Failure::new(error).hint(hint).kind(kind)
}

pub(super) fn not_started(error: ControlStartError, data: &Path) -> Failure {
    let hint = match &error {
        ControlStartError::Registry(error) => return unopened(error.clone(), data),
        ControlStartError::Config(_) => "`bowline control run --help` has examples".into(),
        ControlStartError::Door(error) => error.hint("127.0.0.1:7000"),
        ControlStartError::Thread(_) | ControlStartError::Client(_) => {
            "check `ulimit -a` of this machine".into()
        }
    };
    let kind = match &error {
        ControlStartError::Config(_) | ControlStartError::Door(DoorError::Plain(_)) => {
            FailureKind::Usage
        }
        _ => FailureKind::Failed,
    };
    Failure::new(error).hint(hint).kind(kind)
}

/// Who may read a server's metrics: with a file, who has the key in it, too.
pub(super) fn metrics_access(key_file: Option<&Path>) -> Result<MetricsAccess, Failure> {
    let Some(file) = key_file else { return Ok(MetricsAccess::default()) };
    let key = secrets::from_file(file, "--metrics-key-file")?;
    if key.len() < SHORTEST_METRICS_KEY {
        let what = format!("{} is too short to be a key", file.display());
        let hint = format!("write at least {SHORTEST_METRICS_KEY} characters that nobody guesses");
        return Err(Failure::new(what).hint(hint).kind(FailureKind::Usage));
    }
    Ok(MetricsAccess::with_key(&key))
}

/// The error of an operation that the registry refused.
fn undone(error: registry::Error, data: &Path) -> Failure {
    use registry::Error;
    let kind = match &error {
        Error::NoUser | Error::NoDaemon | Error::NoRelay => FailureKind::NotFound,
        Error::NameTaken | Error::RelayTaken | Error::LastRelay | Error::RelayInUse(_) => {
            FailureKind::Refused
        }
        Error::BadName | Error::BadRelayName | Error::BadRelayUrl => FailureKind::Usage,
        _ => FailureKind::Failed,
    };
    let failure = Failure::new(&error).kind(kind);
    match error {
        Error::NoUser => failure.hint("`bowline control user list` lists all users"),
        Error::NameTaken => failure
            .hint("choose another name, or make another key with `bowline control user key NAME`"),
        Error::BadName => failure.hint("for example: bowline control user add alice"),
        Error::NoDaemon => failure.hint("`bowline control daemon list` lists all daemons"),
        Error::NoRelay => failure.hint("`bowline control relay list` lists all relays"),
        Error::RelayTaken => failure
            .hint("choose another name; to change a relay's address, drain and remove it first"),
        Error::BadRelayName | Error::BadRelayUrl => {
            failure.hint("for example: bowline control relay add eu-1 wss://eu-1.example.org/relay")
        }
        Error::LastRelay => {
            failure.hint("add another with `bowline control relay add NAME URL`, or say --force")
        }
        Error::RelayInUse(_) => {
            failure.hint("drain it first with `bowline control relay drain NAME`, or say --force")
        }
        Error::Database(_) => failure.hint(format!("check the disk and {}", data.display())),
        _ => failure,
    }
}

fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0)
}

/// A time to the second, in UTC.
fn when(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => utc(time),
        Err(_) => "-".into(),
    }
}

/// The --data flag to add to a suggested command; empty for the default folder.
pub(super) fn data_flag(data: &Path) -> String {
    let usual: PathBuf = paths::data().join("control");
    if data == usual { String::new() } else { format!(" --data {}", quote_path(data)) }
}
