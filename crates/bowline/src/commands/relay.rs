//! `bowline relay`: passes sealed frames between clients and daemons.

use std::process::ExitCode;

use bowline_relay::relay::config::{Keys, Limits, Tls};
use bowline_relay::relay::{Bound, Config, Relay};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::relay::RelayArgs;
use crate::failure::Failure;
use crate::logging;
use crate::settings::Log;

pub(crate) async fn run(args: RelayArgs) -> Result<ExitCode, Failure> {
    logging::start(&Log::default()).map_err(Failure::new)?;
    let announce = args.json;
    let bound = Relay::bind(config(args)).await?;
    greet(&bound, announce);
    run_until_told(bound).await
}

/// The settings that these arguments mean.
fn config(args: RelayArgs) -> Config {
    Config {
        listen: args.listen,
        issuer: args.issuer,
        region: args.region,
        tls: args.tls_cert.zip(args.tls_key).map(|(cert, key)| Tls::new(cert, key)),
        insecure_plain: args.insecure_plain,
        grace: args.grace,
        keys: Keys { stale_for: args.keys_stale, ..Keys::default() },
        limits: Limits {
            connections: args.connections,
            rate_frames: args.rate_frames,
            rate_connections: args.rate_connections,
            rate_connections_ip: args.rate_connections_ip,
            ping_every: args.ping_every,
            ..Limits::default()
        },
    }
}

fn greet(bound: &Bound, announce: bool) {
    let scheme = if bound.is_tls() { "wss" } else { "ws" };
    let url = format!("{scheme}://{}/relay", bound.local_addr());
    match announce {
        true => println!("{}", json!({ "url": url, "pid": std::process::id() })),
        false => tracing::info!(%url, "listening; ready once the issuer's keys are there"),
    }
}

/// Serves until a signal, then lets all connections end.
async fn run_until_told(bound: Bound) -> Result<ExitCode, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("no signals: {error}")));
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = bound.run(stopped);
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => return Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping; connections are told to come back");
    let _ = stop.send(());
    tokio::select! {
        () = running => Ok(ExitCode::SUCCESS),
        // Asked twice: at once.
        _ = interrupt.recv() => Ok(ExitCode::from(130)),
    }
}
