//! `bowline tracker run`: which gateway has which bundle.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bowline_gateway::identity_file::{self, IdentityFileError};
use bowline_net::{DoorError, descriptors};
use bowline_tracker::{BoundTracker, RegistryOpenError, Tracker, TrackerConfig, TrackerStartError};
use jiff::Timestamp;
use serde_json::json;

use crate::cli::tracker::TrackerArgs;
use crate::failure::{Failure, FailureKind};
use crate::settings::Settings;
use crate::signals::{STOPPED_AT_ONCE, StopSignals};
use crate::terminal::{note, say};
use crate::{logging, paths};

pub(crate) async fn run(args: TrackerArgs) -> Result<ExitCode, Failure> {
    descriptors::raise();
    let settings = Settings::of(args.config.as_deref(), args.flags())?;
    logging::start(&settings.log).map_err(Failure::new)?;
    let config = settings.tracker;
    let data = folder(&config);
    let bad_file = |error: IdentityFileError| Failure::new(&error).hint(error.hint());
    let identity = identity_file::load_or_make(&data).map_err(bad_file)?;
    let previous = identity_file::load_previous(&data, Timestamp::now()).map_err(bad_file)?;
    let (key, has_url, id) = (identity.public(), config.url.is_some(), config.id.clone());
    let bound = Tracker::bind(config, &data, identity, previous).await.map_err(not_started)?;
    if bound.local_addr().ip().is_unspecified() && !has_url {
        note!("warning: gateways on other machines need the public address: add --url https://…");
    }
    let mut signals = StopSignals::install()?;
    if args.json {
        say!(
            "{}",
            json!({ "url": bound.url(), "id": id, "key": key.to_string(), "data": data,
                    "pid": std::process::id() })
        );
    } else {
        welcome(&bound, id.as_str(), &key.fingerprint().to_string(), &data);
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = bound.run(stopped);
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => return Ok(ExitCode::SUCCESS),
        () = signals.stop() => {}
    }
    tracing::info!("stopping; open requests are answered; Ctrl-C again stops at once");
    let _ = stop.send(());
    tokio::select! {
        () = running => Ok(ExitCode::SUCCESS),
        () = signals.at_once() => Ok(ExitCode::from(STOPPED_AT_ONCE)),
    }
}

/// The folder of a tracker's key and records.
pub(super) fn folder(config: &TrackerConfig) -> PathBuf {
    config.data.clone().unwrap_or_else(|| paths::data().join("tracker"))
}

fn welcome(bound: &BoundTracker, id: &str, fingerprint: &str, data: &Path) {
    say!("bowline tracker {} is ready\n", env!("CARGO_PKG_VERSION"));
    say!("  tracker  {}", bound.url());
    say!("  id       {id}");
    say!("  key      {fingerprint}");
    say!("  data     {}", paths::short(data));
    say!("\nCtrl-C stops it; every answered announcement is kept.");
}

fn not_started(error: TrackerStartError) -> Failure {
    let hint = match &error {
        TrackerStartError::Door(error) => error.hint("127.0.0.1:8092"),
        TrackerStartError::Url(_) => "give it: --url https://tracker.example".into(),
        TrackerStartError::Client(_) | TrackerStartError::Thread(_) => {
            "check the certificates of this system, and `ulimit -a`".into()
        }
        TrackerStartError::Registry(error) => match error {
            RegistryOpenError::Folder { .. } => {
                "check that the folder exists and is yours, or choose another with --data"
            }
            RegistryOpenError::NewerSchema { .. } => {
                "a newer bowline wrote it; run that version, or use another folder with --data"
            }
            RegistryOpenError::Foreign { .. } => "choose an empty folder with --data",
            RegistryOpenError::Database(_) => {
                "check the disk; if the file is damaged, remove it: gateways announce again"
            }
        }
        .into(),
    };
    let kind = match &error {
        TrackerStartError::Door(DoorError::Plain(_)) | TrackerStartError::Url(_) => {
            FailureKind::Usage
        }
        _ => FailureKind::Failed,
    };
    Failure::new(error).hint(hint).kind(kind)
}
