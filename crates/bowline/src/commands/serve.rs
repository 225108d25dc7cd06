//! `bowline up` and `bowline gateway`: the same server, for interactive use and for services.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use bowline_gateway::Gateway;
use bowline_net::descriptors;
use bowline_store::Upkeep;
use bowline_store::sqlite::Sqlite;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::ServeArgs;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::terminal::say;
use crate::{local, logging, paths};

/// `up`: logs warnings only, and prints the address and what to do next.
pub(crate) async fn up(args: ServeArgs) -> Result<ExitCode, Failure> {
    let mut settings = Settings::load(&args.settings)?;
    if settings.log == Default::default() {
        settings.log.level = "warn".into();
    }
    serve(settings, if args.json { Greeting::Json } else { Greeting::Welcome }).await
}

/// `gateway`: full logs, and a line when ready.
pub(crate) async fn gateway(args: ServeArgs) -> Result<ExitCode, Failure> {
    let settings = Settings::load(&args.settings)?;
    serve(settings, if args.json { Greeting::Json } else { Greeting::Log }).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Welcome,
    Log,
    Json,
}

async fn serve(settings: Settings, greeting: Greeting) -> Result<ExitCode, Failure> {
    descriptors::raise();
    logging::start(&settings.log).map_err(Failure::new)?;
    let data = settings.data.clone();
    let store = Arc::new(Sqlite::open(&data)?);
    let key = local::key_or_make(&data).map_err(|error| {
        let hint = error.hint();
        Failure::new(error).hint(hint)
    })?;
    let model = settings.gateway.default_model.clone();
    // Before it says that it is ready: a signal right after that must stop it in good order.
    let signals = Signals::new()?;
    let gateway =
        Gateway::start(settings.gateway, Arc::<Sqlite>::clone(&store), Some(&key)).await?;
    let url = gateway.url();
    if let Err(error) = local::announce(&data, &url) {
        tracing::warn!(%error, "cannot write running.json; other commands need --url");
    }
    match greeting {
        Greeting::Welcome => welcome(&gateway, &url, &data, &model),
        Greeting::Log => tracing::info!(
            %url, data = %data.display(), recovered = gateway.recovered(), "ready"
        ),
        Greeting::Json => say!(
            "{}",
            json!({ "url": url, "data": data, "pid": std::process::id(),
                    "recovered_turns": gateway.recovered() })
        ),
    }
    let outcome = run_until_told(gateway, signals).await;
    // Close explicitly: other references to the store may still exist, and dropping this one would
    // not leave a clean file. After a failed flush this writes nothing.
    store.close().await;
    local::retract(&data);
    outcome
}

/// The signals that stop a gateway.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))
        };
        let (terminate, interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt })
    }
}

/// Serves until SIGTERM or SIGINT, or until the disk fails permanently.
async fn run_until_told(gateway: Gateway, signals: Signals) -> Result<ExitCode, Failure> {
    let Signals { mut terminate, mut interrupt } = signals;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        error = gateway.failed() => {
            // Nothing may be acknowledged after a failed flush: exit without a graceful shutdown
            // and recover at the next start.
            return Err(Failure::new(error)
                .hint("check the disk, then start again: every acknowledged turn is stored")
                .code(74));
        }
    }
    tracing::info!("stopping; waiting for running turns to finish");
    let stopping = gateway.stop();
    tokio::select! {
        () = stopping => Ok(ExitCode::SUCCESS),
        // A second SIGINT exits without waiting. Acknowledged turns are on disk; unfinished ones
        // are resumed at the next start.
        _ = interrupt.recv() => Ok(ExitCode::from(130)),
    }
}

fn welcome(gateway: &Gateway, url: &str, data: &Path, model: &str) {
    let who = match (gateway.is_open(), gateway.address().ip().is_loopback()) {
        (true, true) => "only this machine can reach it; no key needed",
        (true, false) => "ANYONE who can reach it can use it: no key is set",
        (false, _) => "an API key is needed",
    };
    let model = match gateway.upstreams() {
        [] => "bowline/offline (built in, no key, not a language model)".to_owned(),
        upstreams => {
            let list: Vec<_> =
                upstreams.iter().map(|(name, at)| format!("{name} at {at}")).collect();
            format!("{model} by default; upstreams: {}", list.join(", "))
        }
    };
    say!("bowline {} is ready\n", env!("CARGO_PKG_VERSION"));
    say!("  gateway  {url}  ({who})");
    say!("  data     {}", paths::short(data));
    say!("  model    {model}");
    say!("  docs     {url}/docs");
    if gateway.recovered() > 0 {
        say!("  resumed  {} unfinished turns", gateway.recovered());
    }
    say!("\ntry, in another terminal:");
    say!("  bowline chat");
    say!(
        "  curl -s {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d \
         '{{\"model\":\"bowline/offline\",\"sbp\":{{}},\"messages\":[{{\"role\":\"user\",\"content\":\"count to 5\"}}]}}'"
    );
    say!("  bowline sessions list");
    say!("\nCtrl-C stops it; sessions are kept.");
}
