//! `bowline relay run`: forwards encrypted frames between clients and daemons.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bowline_net::{descriptors, listen};
use bowline_relay::control::{Control, ControlConfig};
use bowline_relay::relay::{BoundRelay, Relay};
use serde_json::json;
use url::Url;

use super::control::{data_flag, metrics_access, not_started};
use crate::cli::relay::RelayArgs;
use crate::failure::{Failure, FailureKind};
use crate::settings::{RelayServerSettings, Settings};
use crate::signals::{STOPPED_AT_ONCE, StopSignals};
use crate::terminal::{note, say};
use crate::{allocator, logging, paths};

pub(crate) async fn run(args: RelayArgs) -> Result<ExitCode, Failure> {
    descriptors::raise();
    let settings = Settings::of(args.config.as_deref(), args.flags())?;
    logging::start(&settings.log).map_err(Failure::new)?;
    let announce = args.json;
    let local = local_control(&settings, &args)?;
    let RelayServerSettings { mut relay, around, .. } = settings.relay_server;
    relay.metrics = metrics_access(around.metrics_key_file.as_deref())?;
    let bound = Relay::bind(relay).await?;
    let signals = StopSignals::install()?;
    let bound = match local {
        Some(local) => local.open(bound, announce)?,
        None => {
            greet(&bound, announce);
            bound
        }
    };
    run_until_told(bound, signals).await
}

/// The control plane to run beside the relay, or `None` if its tokens come from an issuer elsewhere.
fn local_control(settings: &Settings, args: &RelayArgs) -> Result<Option<LocalControl>, Failure> {
    let RelayServerSettings { around, relay, has_issuer } = &settings.relay_server;
    let wrong =
        |what: &str, hint: &str| Err(Failure::new(what).hint(hint).kind(FailureKind::Usage));
    match (around.with_control, *has_issuer) {
        (false, false) => wrong(
            "the relay has no control plane whose tokens it accepts",
            "run one with it (--with-control), or name one: --issuer https://control.example, or `issuer` \
             in [relay_server]",
        ),
        (false, true) if args.data.is_some() || args.url.is_some() => wrong(
            "--data and --url are for a control plane in the same process",
            "add --with-control",
        ),
        (false, true) => Ok(None),
        (true, true) if !settings.is_flag("relay_server.with_control") => wrong(
            "[relay_server] has both `with_control` and `issuer`",
            "leave one of them out: tokens are accepted of one control plane",
        ),
        (true, _) => Ok(Some(LocalControl {
            data: settings.control.data.clone().unwrap_or_else(|| paths::data().join("control")),
            url: around.url.clone(),
            region: relay.region.clone(),
        })),
    }
}

/// A control plane in the same process, at the same address.
struct LocalControl {
    data: PathBuf,
    url: Option<Url>,
    region: Option<String>,
}

impl LocalControl {
    fn open(self, bound: BoundRelay, announce: bool) -> Result<BoundRelay, Failure> {
        let url = match self.url {
            Some(url) => url,
            None => {
                let scheme = if bound.is_tls() { "https" } else { "http" };
                let address = bound.local_addr();
                if address.ip().is_unspecified() {
                    note!("warning: other machines need the public address: add --url https://…");
                }
                let own = format!("{scheme}://{}", listen::from_here(address));
                own.parse().map_err(|error| Failure::new(format!("{own}: {error}")))?
            }
        };
        let relay_url = relay_url(&url)?;
        let issuer = url.as_str().trim_end_matches('/').to_owned();
        let mut config = ControlConfig::new(&self.data, &issuer, relay_url.clone());
        config.region = self.region;
        let control = Control::open_with_relay(config, Arc::new(bound.presence()))
            .map_err(|error| not_started(error, &self.data))?;
        let bound = bound.with_control(&issuer, control.router());
        if announce {
            let (url, pid) = (relay_url.as_str(), std::process::id());
            say!("{}", json!({ "url": url, "control": issuer, "data": self.data, "pid": pid }));
        } else {
            say!("bowline relay {} is ready\n", env!("CARGO_PKG_VERSION"));
            say!("  control  {issuer}");
            say!("  relay    {relay_url}");
            say!("  data     {}", paths::short(&self.data));
            say!("\ntry, in another terminal:");
            say!("  bowline control user add alice{}", data_flag(&self.data));
            say!("\nCtrl-C stops it; daemons and clients are told to reconnect.");
        }
        Ok(bound)
    }
}

/// The relay's WebSocket URL, made of the control plane's URL.
fn relay_url(url: &Url) -> Result<Url, Failure> {
    let wrong = || {
        Failure::new(format!("{url} is not an http or https address"))
            .hint("give the public address, such as --url https://relay.example")
            .kind(FailureKind::Usage)
    };
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong());
    }
    // As text, since `Url::set_scheme` may refuse to change from http to ws.
    let text = url.as_str().trim_end_matches('/').replacen("http", "ws", 1);
    format!("{text}/relay").parse().map_err(|_| wrong())
}

fn greet(bound: &BoundRelay, announce: bool) {
    let scheme = if bound.is_tls() { "wss" } else { "ws" };
    let url = format!("{scheme}://{}/relay", bound.local_addr());
    match announce {
        true => say!("{}", json!({ "url": url, "pid": std::process::id() })),
        false => tracing::info!(%url, "listening; ready once the issuer's keys are fetched"),
    }
}

/// Serves until a signal, then shuts down gracefully.
async fn run_until_told(bound: BoundRelay, mut signals: StopSignals) -> Result<ExitCode, Failure> {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let returning_memory = allocator::return_freed(bound.open_connections(), bound.grace());
    let running = bound.run(stopped);
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => return Ok(ExitCode::SUCCESS),
        () = returning_memory => {}
        () = signals.stop() => {}
    }
    tracing::info!("stopping; connections are told to reconnect; Ctrl-C again stops at once");
    let _ = stop.send(());
    tokio::select! {
        () = running => Ok(ExitCode::SUCCESS),
        () = signals.at_once() => Ok(ExitCode::from(STOPPED_AT_ONCE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_is_where_its_control_plane_is() {
        let at = |url: &str| relay_url(&url.parse().unwrap()).ok().map(String::from);
        assert_eq!(at("https://relay.example").as_deref(), Some("wss://relay.example/relay"));
        assert_eq!(at("http://127.0.0.1:8090/").as_deref(), Some("ws://127.0.0.1:8090/relay"));
        assert_eq!(at("https://http.example/a").as_deref(), Some("wss://http.example/a/relay"));
        assert_eq!(at("ftp://x"), None);
    }
}
