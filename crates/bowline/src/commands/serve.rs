//! `bowline up` and `bowline gateway run`: the same server, for interactive use and for services.

mod first_model;
mod relay_link;
mod welcome;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bowline_gateway::{Gateway, Signer, identity_file};
use bowline_net::{descriptors, duration};
use bowline_tracker::TrackerConfig;
use jiff::Timestamp;
use serde_json::json;

use self::first_model::FirstModel;
use self::relay_link::{LinkState, RelayLink};
use self::welcome::{Addresses, Welcome};
use crate::cli::ServeArgs;
use crate::commands::pair::invitation;
use crate::failure::{Failure, FailureKind};
use crate::local::Running;
use crate::settings::Settings;
use crate::signals::{STOPPED_AT_ONCE, StopSignals};
use crate::storage::{SECRETS, Storage};
use crate::terminal::{self, note, say, show};
use crate::{local, logging, settings};

/// `up`: logs warnings only, and prints the address and what to do next.
pub(crate) async fn up(args: ServeArgs) -> Result<ExitCode, Failure> {
    let mut settings = loaded(&args)?;
    if settings.log == Default::default() {
        settings.log.level = "warn".into();
    }
    serve(settings, if args.json { Greeting::Json } else { Greeting::Welcome }).await
}

/// `gateway`: full logs, and a line when ready.
pub(crate) async fn gateway(args: ServeArgs) -> Result<ExitCode, Failure> {
    let settings = loaded(&args)?;
    serve(settings, if args.json { Greeting::Json } else { Greeting::Log }).await
}

fn loaded(args: &ServeArgs) -> Result<Settings, Failure> {
    let mut settings = Settings::load(&args.settings)?;
    settings.gateway.secrets.renew = args.new_secrets;
    if args.certify {
        if settings.relay.url.is_some() {
            let why =
                "with --certify anybody may change any session, and a relay leads others here";
            let hint = "leave --relay or --certify out";
            return Err(Failure::new(why).hint(hint).kind(FailureKind::Usage));
        }
        settings.gateway = settings.gateway.certified();
        note!(
            "CERTIFY: this gateway runs for the protocol's public test suite. Do not use it for anything else."
        );
        note!(
            "  wire 0.9, a session for every call, all tools of surfaces, and /v1/sbp/sessions/{{id}}/_test/tether"
        );
    }
    Ok(settings)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Welcome,
    Log,
    Json,
}

async fn serve(mut settings: Settings, greeting: Greeting) -> Result<ExitCode, Failure> {
    descriptors::raise();
    logging::start(&settings.log).map_err(|why| Failure::new(why).kind(FailureKind::Usage))?;
    let data = settings.data.clone();
    let storage = Storage::open(&settings).await?;
    settings.gateway.federation.registry =
        TrackerConfig { data: Some(data.clone()), ..settings.tracker.clone() };
    let secrets = &mut settings.gateway.secrets;
    secrets.keep_in_store = storage.is_shared();
    if !secrets.keep_in_store && !secrets.is_set() {
        secrets.file = Some(data.join(SECRETS));
    }
    let key = local::key_or_make(&data).map_err(|error| {
        let hint = error.hint();
        Failure::new(error).hint(hint)
    })?;
    let signer = signer(&storage, &data)?;
    let asked = FirstModel::ask(&settings);
    let first_model = terminal::waiting("asking the upstream for its models", asked).await;
    if let FirstModel::Found(model) = &first_model {
        settings.gateway.default_model.clone_from(model);
    }
    let model = settings.gateway.default_model.clone();
    let cert = settings.gateway.tls.as_ref().map(|tls| tls.cert.clone());
    let drain = settings.gateway.limits.drain;
    let signals = StopSignals::install()?;
    let origins = settings.origins();
    let store = Arc::clone(&storage.store);
    let bus = Arc::clone(&storage.bus);
    let started = Gateway::start_with(settings.gateway, store, bus, Some(&key), signer);
    let gateway = match terminal::waiting("starting; unfinished turns are recovered", started).await
    {
        Ok(gateway) => gateway,
        Err(error) => {
            storage.store.close().await;
            return Err(settings::not_started(error, &origins));
        }
    };
    let link = RelayLink::start(&settings.relay, &data, &gateway)?;
    let reach = match &link {
        Some(link) => Some(terminal::waiting("connecting to the relay", link.settled()).await),
        None => None,
    };
    let (database, bus) = (storage.name.clone(), storage.bus_name);
    let ready = Ready { data, database, bus, model, first_model, cert, reach };
    ready.tell(&gateway, greeting);
    // A code belongs on a screen, not in a log.
    if greeting == Greeting::Welcome
        && std::io::stdout().is_terminal()
        && let Some(link) = &link
        && let Some(text) = link.first_invitation().await
    {
        show!("\n{}", invitation(&text));
    }
    let outcome = run_until_told(gateway, signals, drain, greeting).await;
    // After the gateway, whose surfaces were told goodbye through it.
    if let Some(link) = link {
        link.stop().await;
    }
    // Close explicitly: other references to the store may still exist, and dropping this one would
    // not leave a clean file. After a failed flush this writes nothing.
    storage.store.close().await;
    local::retract(&ready.data);
    outcome
}

/// What signs for this gateway: the file of its data folder, or with a shared store what all replicas have.
fn signer(storage: &Storage, data: &Path) -> Result<Signer, Failure> {
    let signer = match storage.is_shared() {
        false => identity_file::load_or_make(data).and_then(|identity| {
            Ok(Signer::Own(
                Arc::new(identity),
                identity_file::load_previous(data, Timestamp::now())?,
            ))
        }),
        true => identity_file::load_seed(data).map(Signer::Shared),
    };
    signer.map_err(|error| {
        let hint = error.hint();
        Failure::new(error).hint(hint)
    })
}

/// What is told about a gateway that is ready.
struct Ready {
    data: PathBuf,
    /// Where the sessions are, if not in the data folder.
    database: Option<String>,
    /// What connects it with other replicas.
    bus: &'static str,
    model: String,
    first_model: FirstModel,
    cert: Option<PathBuf>,
    /// How it does at the relay, if it has one.
    reach: Option<LinkState>,
}

impl Ready {
    fn tell(&self, gateway: &Gateway, greeting: Greeting) {
        let addresses = Addresses::new(gateway.address(), self.cert.as_deref());
        let running = Running {
            url: addresses.here.clone(),
            listen: Some(gateway.address()),
            upstreams: gateway.upstreams().to_vec(),
            pid: std::process::id(),
            identity: Some(gateway.identity().to_string()),
        };
        if let Err(error) = local::announce(&self.data, &running) {
            tracing::warn!(%error, "cannot write running.json; other commands need --url");
        }
        let url = gateway.url();
        match greeting {
            Greeting::Welcome => {
                let welcome = Welcome {
                    addresses: &addresses,
                    data: &self.data,
                    database: self.database.as_deref().map(|name| (name, self.bus)),
                    is_open: gateway.is_open(),
                    recovered: gateway.recovered(),
                    model: &self.model,
                    about_model: self.about_model(gateway),
                    reach: self.reach.as_ref(),
                };
                show!("{}", welcome.text());
            }
            Greeting::Log => {
                if let Some(said) = self.first_model.sentence() {
                    tracing::info!(model = %self.model, "{said}");
                }
                let database = self.database.as_deref().unwrap_or("sqlite");
                tracing::info!(
                    %url, data = %self.data.display(), database, bus = self.bus,
                    recovered = gateway.recovered(), "ready"
                );
            }
            Greeting::Json => say!(
                "{}",
                json!({ "url": url, "data": self.data, "database": self.database,
                        "bus": self.bus, "pid": std::process::id(),
                        "recovered_turns": gateway.recovered(), "model": self.model,
                        "relay": self.reach.as_ref().map(LinkState::to_string) })
            ),
        }
    }

    fn about_model(&self, gateway: &Gateway) -> String {
        let list: Vec<_> =
            gateway.upstreams().iter().map(|(name, at)| format!("{name} at {at}")).collect();
        if list.is_empty() {
            return "bowline/offline (built in, no key, not a language model)".to_owned();
        }
        let model = &self.model;
        match self.first_model.sentence() {
            Some(said) => format!("{model}; {said}; upstreams: {}", list.join(", ")),
            None => format!("{model} by default; upstreams: {}", list.join(", ")),
        }
    }
}

/// Serves until a signal, or until the disk fails permanently.
async fn run_until_told(
    gateway: Gateway,
    mut signals: StopSignals,
    drain: Duration,
    greeting: Greeting,
) -> Result<ExitCode, Failure> {
    tokio::select! {
        () = signals.stop() => {}
        error = gateway.failed() => {
            // Nothing may be acknowledged after a failed flush: exit without a graceful shutdown
            // and recover at the next start.
            return Err(Failure::new(error)
                .hint("check the disk, then start again: every acknowledged turn is stored")
                .kind(FailureKind::DataLost));
        }
    }
    let waits_for = waits_for(gateway.at_work().turns, drain);
    match (greeting, &waits_for) {
        (Greeting::Welcome, Some(waits_for)) => note!("\n{waits_for}"),
        (_, Some(waits_for)) => tracing::info!("stopping; {waits_for}"),
        (_, None) => tracing::info!("stopping"),
    }
    let stopping = gateway.stop();
    tokio::select! {
        () = stopping => Ok(ExitCode::SUCCESS),
        // Acknowledged turns are on disk; unfinished ones are resumed at the next start.
        () = signals.at_once() => Ok(ExitCode::from(STOPPED_AT_ONCE)),
    }
}

/// What a stop waits for; `None` if nothing runs.
fn waits_for(turns: usize, drain: Duration) -> Option<String> {
    let what = match turns {
        0 => return None,
        1 => "1 running turn".to_owned(),
        turns => format!("{turns} running turns"),
    };
    let they = if turns == 1 { "it is" } else { "they are" };
    Some(format!(
        "waiting for {what}, up to {}; Ctrl-C again stops at once; {they} resumed at the next start",
        duration::format(drain)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_says_what_it_waits_for() {
        let drain = Duration::from_secs(30);
        assert_eq!(waits_for(0, drain), None);
        assert_eq!(
            waits_for(2, drain).as_deref(),
            Some(
                "waiting for 2 running turns, up to 30s; Ctrl-C again stops at once; they are \
                 resumed at the next start"
            )
        );
    }
}
