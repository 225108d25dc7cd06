//! `bowline daemon run`: makes addresses of this machine reachable for paired devices through a relay.

use std::process::ExitCode;
use std::sync::Arc;

use bowline_client::relay::tunnel::{TcpTargets, TunnelServer, TunnelServerConfig};
use bowline_client::relay::{DaemonConfig, DaemonEvent, DeviceFile, RelayDaemon, load_or_create};
use serde_json::json;
use tokio::task::JoinSet;

use crate::cli::relay_ends::{ControlArgs, DaemonArgs, TCP, target};
use crate::failure::{Failure, FailureKind};
use crate::paired::RunningDaemon;
use crate::settings::{DaemonSettings, Settings};
use crate::signals::StopSignals;
use crate::terminal::{note, printable, say};
use crate::{logging, owner};

pub(crate) async fn run(args: DaemonArgs) -> Result<ExitCode, Failure> {
    bowline_net::descriptors::raise();
    let settings = Settings::of(args.config.as_deref(), args.flags())?;
    let args = configured(args, &settings.daemon)?;
    logging::start(&settings.log_or("warn")).map_err(Failure::new)?;
    let data = args.data.as_deref();
    let control = owner::control_plane(&args.control, data)?;
    let path = owner::identity(data);
    let identity =
        load_or_create(&path).map_err(|error| Failure::new(&error).hint(error.hint()))?;
    let targets = targets(&args.tcp)?;
    let about = RunningDaemon {
        control: control.base().clone(),
        daemon: String::new(),
        fingerprint: identity.public().fingerprint().to_string(),
        name: args.name.clone(),
        services: args.tcp.iter().map(|(name, _)| name.clone()).collect(),
        pid: std::process::id(),
    };
    let book = Arc::new(DeviceFile::watched(owner::devices_file(data)));
    let mut tunnels = TunnelServerConfig::new(Arc::<DeviceFile>::clone(&book), Arc::new(targets));
    tunnels.name = args.name.clone().unwrap_or_default();
    tunnels.allow_unpaired = args.allow_unpaired;
    let server = TunnelServer::new(tunnels);
    let mut config = DaemonConfig::new(control, identity);
    config.name = args.name.clone();
    config.region = args.region.clone();
    config.devices = Some(book);
    let mut daemon = RelayDaemon::start(config);
    let mut output = DaemonOutput { about, args: &args };
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
                let server = server.clone();
                sessions.spawn(async move { server.serve(session).await });
            }
            Some(DaemonEvent::Closed(closed)) => return Err(closed.into()),
            Some(event) => output.event(&event)?,
            None => break,
        }
    }
    daemon.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// The arguments with what file and environment say where no flag does.
fn configured(args: DaemonArgs, settings: &DaemonSettings) -> Result<DaemonArgs, Failure> {
    let DaemonSettings { control, key_file, tcp, allow_unpaired, name, region, data } =
        settings.clone();
    let tcp = tcp.iter().map(|one| target(one).map_err(|why| (one, why)));
    let tcp = tcp.collect::<Result<_, _>>().map_err(|(one, why)| {
        Failure::new(format!("`{}` in daemon.tcp is not a target", printable(one)))
            .hint(why)
            .kind(FailureKind::Usage)
    })?;
    // A key in the environment is nearer than a file that the configuration names.
    let has_key = std::env::var_os("BOWLINE_CONTROL_KEY").is_some_and(|key| !key.is_empty());
    let key_file = key_file.filter(|_| args.control.key_file.is_some() || !has_key);
    let control = ControlArgs { control: args.control.control.clone().or(control), key_file };
    Ok(DaemonArgs { control, tcp, allow_unpaired, name, region, data, ..args })
}

fn targets(tcp: &[(String, String)]) -> Result<TcpTargets, Failure> {
    for (at, (name, _)) in tcp.iter().enumerate() {
        if tcp[..at].iter().any(|(other, _)| other == name) {
            return Err(Failure::new(format!("two --tcp targets are called `{name}`"))
                .hint("name them: --tcp ssh=127.0.0.1:22 --tcp web=127.0.0.1:8080")
                .kind(FailureKind::Usage));
        }
    }
    Ok(TcpTargets::new(tcp.iter().cloned()))
}

/// Prints events, as text or as lines of JSON.
struct DaemonOutput<'a> {
    about: RunningDaemon,
    args: &'a DaemonArgs,
}

impl DaemonOutput<'_> {
    fn event(&mut self, event: &DaemonEvent) -> Result<(), Failure> {
        match event {
            DaemonEvent::Registered { daemon } => {
                self.about.daemon = daemon.as_str().to_owned();
                self.about.announce(self.args.data.as_deref())?;
                self.registered();
            }
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
            DaemonEvent::DevicesNotTold(error) => {
                self.tell("warning", &[("why", error)]);
            }
            _ => {}
        }
        Ok(())
    }

    fn registered(&self) {
        let RunningDaemon { daemon, fingerprint, name, .. } = &self.about;
        let targets: Vec<_> = self.args.tcp.iter().map(|(name, to)| (name, to)).collect();
        if self.args.json {
            let targets: serde_json::Map<_, _> =
                targets.into_iter().map(|(name, to)| (name.clone(), json!(to))).collect();
            return say!(
                "{}",
                json!({ "event": "registered", "daemon": daemon, "name": name,
                        "fingerprint": fingerprint, "tcp": targets })
            );
        }
        say!("daemon       {}", printable(daemon));
        say!("fingerprint  {fingerprint}");
        for (name, to) in &targets {
            let named = if *name == TCP { String::new() } else { format!("{name} = ") };
            say!("target       {named}{to}");
        }
        if targets.is_empty() {
            say!("target       none, only pings; see --tcp");
        }
        if self.args.allow_unpaired {
            say!("access       EVERYBODY whom the relay and the control plane let through");
        } else {
            say!("access       paired devices only");
        }
        say!("\npair a device: run `bowline pair` here, and there what it prints.");
        say!("Ctrl-C stops the daemon.\n");
    }

    fn tell(&self, event: &str, facts: &[(&str, &dyn std::fmt::Display)]) {
        if self.args.json {
            let mut line = json!({ "event": event });
            for (name, fact) in facts {
                line[name.replace(' ', "_")] = json!(fact.to_string());
            }
            say!("{line}");
        } else {
            let facts: Vec<_> =
                facts.iter().map(|(name, fact)| format!("{name}: {fact}")).collect();
            note!("{event}  {}", printable(&facts.join("; ")));
        }
    }
}
