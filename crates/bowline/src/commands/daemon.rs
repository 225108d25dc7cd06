//! `bowline daemon run`: makes one address of this machine reachable for its owner through a relay.

use std::process::ExitCode;

use bowline_client::relay::tunnel::{Services, serve};
use bowline_client::relay::{DaemonConfig, DaemonEvent, RelayDaemon, load_or_create};
use serde_json::json;
use tokio::task::JoinSet;

use crate::cli::SettingArgs;
use crate::cli::relay_ends::DaemonArgs;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::signals::StopSignals;
use crate::terminal::{note, say};
use crate::{logging, owner};

pub(crate) async fn run(args: DaemonArgs) -> Result<ExitCode, Failure> {
    bowline_net::descriptors::raise();
    let log = Settings::load(&SettingArgs::default())?.log_or("warn");
    logging::start(&log).map_err(Failure::new)?;
    let control = owner::control_plane(&args.control)?;
    let path = owner::identity(args.data.as_deref());
    let identity =
        load_or_create(&path).map_err(|error| Failure::new(&error).hint(error.hint()))?;
    let output = DaemonOutput {
        json: args.json,
        fingerprint: identity.public().fingerprint().to_string(),
        tcp: args.tcp.clone(),
        name: args.name.clone(),
    };
    let mut config = DaemonConfig::new(control, identity);
    config.name = args.name;
    let mut daemon = RelayDaemon::start(config);
    let services = Services { tcp: args.tcp };
    let mut sessions = JoinSet::new();

    let mut signals = StopSignals::install()?;
    loop {
        let event = tokio::select! {
            event = daemon.next() => event,
            Some(_) = sessions.join_next() => continue,
            () = signals.stop() => break,
        };
        match event {
            Some(DaemonEvent::SessionOpened(session)) => {
                output.tell("session", &[("session", &session.id())]);
                sessions.spawn(serve(session, services.clone()));
            }
            Some(DaemonEvent::Closed(closed)) => return Err(closed.into()),
            Some(event) => output.event(&event),
            None => break,
        }
    }
    daemon.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// Prints events, as text or as lines of JSON.
struct DaemonOutput {
    json: bool,
    fingerprint: String,
    tcp: Option<String>,
    name: Option<String>,
}

impl DaemonOutput {
    fn event(&self, event: &DaemonEvent) {
        match event {
            DaemonEvent::Registered { daemon } if self.json => say!(
                "{}",
                json!({ "event": "registered", "daemon": daemon.as_str(), "name": self.name,
                        "fingerprint": self.fingerprint, "tcp": self.tcp })
            ),
            DaemonEvent::Registered { daemon } => self.welcome(daemon.as_str()),
            DaemonEvent::Online { relay } => self.tell("online", &[("relay", relay)]),
            DaemonEvent::Lost { reason, retry_in } => {
                let retry_in = format!("{:.1} s", retry_in.as_secs_f64());
                self.tell("lost", &[("why", reason), ("again in", &retry_in)]);
            }
            DaemonEvent::Replaced { .. } => self.tell(
                "replaced",
                &[(
                    "why",
                    &"another process with this identity is connected; waiting for its exit",
                )],
            ),
            DaemonEvent::SessionOpened(_) | DaemonEvent::Closed(_) => {}
        }
    }

    fn welcome(&self, daemon: &str) {
        say!("daemon       {daemon}");
        say!("fingerprint  {}", self.fingerprint);
        say!("target       {}", self.tcp.as_deref().unwrap_or("none, only pings; see --tcp"));
        let named = self.name.as_deref().unwrap_or(daemon);
        let what = if self.tcp.is_some() { "--listen 127.0.0.1:2222" } else { "--ping" };
        say!("\nfrom another machine, with the same control plane and key:");
        say!("  bowline connect {named} {what}");
        say!("\nOn first use, compare the fingerprint that it prints. Ctrl-C stops the daemon.\n");
    }

    fn tell(&self, event: &str, facts: &[(&str, &dyn std::fmt::Display)]) {
        if self.json {
            let mut line = json!({ "event": event });
            for (name, fact) in facts {
                line[name.replace(' ', "_")] = json!(fact.to_string());
            }
            say!("{line}");
        } else {
            let facts: Vec<_> =
                facts.iter().map(|(name, fact)| format!("{name}: {fact}")).collect();
            note!("{event}  {}", facts.join("; "));
        }
    }
}
