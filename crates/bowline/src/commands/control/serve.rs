//! `bowline control run`: the control plane's server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bowline_net::{DoorConfig, descriptors, listen};
use bowline_relay::control::{self, Control, ControlConfig, ControlLimits};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{data_flag, metrics_access, not_started};
use crate::failure::{Failure, FailureKind};
use crate::settings::Settings;
use crate::signals::{STOPPED_AT_ONCE, StopSignals};
use crate::terminal::{note, say};
use crate::{logging, paths};

pub(super) async fn run(
    settings: Settings,
    data: PathBuf,
    json: bool,
) -> Result<ExitCode, Failure> {
    descriptors::raise();
    logging::start(&settings.log).map_err(Failure::new)?;
    let settings = settings.control;
    let relay_url = settings.relay_url.ok_or_else(|| {
        Failure::new("the control plane does not know its relay")
            .hint(
                "name the address where daemons and clients connect: --relay-url \
                 wss://relay.example.org/relay, or `relay_url` in [control]",
            )
            .kind(FailureKind::Usage)
    })?;
    let metrics = metrics_access(settings.metrics_key_file.as_deref())?;
    let place = DoorConfig {
        address: settings.listen,
        tls: settings.tls,
        behind_proxy: settings.behind_proxy,
        insecure: settings.insecure,
    };
    let door = control::open_door(place, &ControlLimits::default())
        .await
        .map_err(|error| not_started(error, &data))?;
    let scheme = if door.is_tls() { "https" } else { "http" };
    if door.address().ip().is_unspecified() && settings.issuer.is_none() {
        note!("warning: relays on other machines need the public address: add --issuer https://…");
    }
    let url = format!("{scheme}://{}", listen::from_here(door.address()));
    let issuer = settings.issuer.as_deref().unwrap_or(&url);
    let mut config = ControlConfig::new(&data, issuer, relay_url);
    config.region = settings.region;
    config.metrics = metrics;
    config.presence_ttl = Duration::from_secs(settings.presence_minutes.saturating_mul(60));
    let (issuer, relay_url) = (config.issuer.clone(), config.relay_url.clone());
    let control = Control::open(config).map_err(|error| not_started(error, &data))?;

    let mut signals = StopSignals::install()?;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(control.serve(door, stop.clone()));
    if json {
        say!(
            "{}",
            json!({ "url": url, "issuer": issuer, "relay_url": relay_url.as_str(), "data": data,
                    "pid": std::process::id() })
        );
    } else {
        welcome(&url, &issuer, relay_url.as_str(), &data);
    }
    signals.stop().await;
    tracing::info!("stopping; open requests are answered; Ctrl-C again stops at once");
    stop.cancel();
    tokio::select! {
        _ = serving => Ok(ExitCode::SUCCESS),
        // Every answered request is on disk.
        () = signals.at_once() => Ok(ExitCode::from(STOPPED_AT_ONCE)),
    }
}

fn welcome(url: &str, issuer: &str, relay_url: &str, data: &Path) {
    say!("bowline control {} is ready\n", env!("CARGO_PKG_VERSION"));
    say!("  control  {url}");
    say!("  issuer   {issuer}  (relays read {issuer}/.well-known/jwks.json)");
    say!("  relay    {relay_url}");
    say!("  data     {}", paths::short(data));
    say!("\ntry, in another terminal:");
    say!("  bowline control user add alice{}", data_flag(data));
    say!("\nCtrl-C stops it; every answered request is on disk.");
}
