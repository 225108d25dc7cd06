//! `bowline control` without a subcommand: the control plane's server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bowline_net::descriptors;
use bowline_relay::control::{self, Control, ControlConfig, ControlLimits, Listen};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{data_flag, not_started};
use crate::cli::SettingArgs;
use crate::cli::control::ControlServeArgs;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::terminal::say;
use crate::{logging, paths};

pub(super) async fn run(
    args: ControlServeArgs,
    data: PathBuf,
    json: bool,
) -> Result<ExitCode, Failure> {
    descriptors::raise();
    logging::start(&Settings::load(&SettingArgs::default())?.log).map_err(Failure::new)?;
    let relay_url = args.relay_url.ok_or_else(|| Failure::new("--relay-url is missing"))?;
    let listen = Listen {
        address: args.listen,
        tls: args.tls.files(),
        insecure_plain: args.insecure_plain,
        trusted_proxies: args.trusted_proxies,
    };
    let door = control::open_door(&listen, &ControlLimits::default())
        .await
        .map_err(|error| not_started(error, &data))?;
    let scheme = if door.is_tls() { "https" } else { "http" };
    let url = format!("{scheme}://{}", door.address());
    let mut config = ControlConfig::new(&data, args.issuer.as_deref().unwrap_or(&url), relay_url);
    config.region = args.region;
    config.presence_ttl = Duration::from_secs(args.presence_minutes * 60);
    let (issuer, relay_url) = (config.issuer.clone(), config.relay_url.clone());
    let control = Control::open(config).map_err(|error| not_started(error, &data))?;

    // Install the signal handlers before reporting ready: a supervisor may send SIGTERM right
    // after, and without a handler that would skip the graceful shutdown.
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))
    };
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);

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
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    tokio::select! {
        _ = serving => Ok(ExitCode::SUCCESS),
        // A second SIGINT exits without waiting. Every answered request is on disk.
        _ = interrupt.recv() => Ok(ExitCode::from(130)),
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
