//! `bowline connect`: forwards a local port to a daemon's target, or measures round-trip times.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bowline_client::relay::tunnel::{ForwardClosed, Forwarding, forward, ping};
use bowline_client::relay::{ClientClosed, ClientConfig, ClientEvent, RelayClient};
use bowline_sbrp::api::DaemonView;
use bowline_sbrp::id::DaemonId;
use serde_json::json;
use tokio::net::TcpListener;

use crate::cli::SettingArgs;
use crate::cli::relay_ends::ConnectArgs;
use crate::failure::{Failure, FailureKind};
use crate::settings::Settings;
use crate::terminal::{self, note, printable, say};
use crate::{logging, owner};

pub(crate) async fn run(args: ConnectArgs) -> Result<ExitCode, Failure> {
    bowline_net::descriptors::raise();
    let log = Settings::load(&SettingArgs::default())?.log_or("error");
    logging::start(&log).map_err(Failure::new)?;
    let control = owner::control_plane(&args.control)?;
    let daemon = owner::find(&control, &args.daemon).await?;
    let pins = owner::pins(args.data.as_deref());
    let mut config = ClientConfig::new(control, DaemonId::new(&daemon.id), pins);
    if let Some(fingerprint) = &args.approve_new_key {
        config = approve(config, fingerprint).await?;
    }
    match args.listen {
        Some(address) => listen(config, &daemon, address, args.json).await,
        None => measure(config, &daemon, args.count, args.json).await,
    }
}

/// Approves the daemon's changed key if it has the given fingerprint.
async fn approve(config: ClientConfig, fingerprint: &str) -> Result<ClientConfig, Failure> {
    let mut client = RelayClient::connect(config.clone());
    let change = loop {
        match client.next().await {
            Some(ClientEvent::Closed(ClientClosed::KeyChanged(change))) => break change,
            Some(ClientEvent::Closed(closed)) => return Err(closed.into()),
            Some(ClientEvent::Lost { reason, .. }) => return Err(owner::lost(reason)),
            Some(ClientEvent::Established { .. }) | None => {
                note!("the daemon's key is the pinned one; there is nothing to approve");
                client.close().await;
                return Ok(config);
            }
            Some(_) => {}
        }
    };
    let (pinned, offered) = (change.pinned(), change.offered());
    note!("pinned   {pinned}\noffered  {offered}");
    if !fingerprint.trim().eq_ignore_ascii_case(&offered.to_string()) {
        return Err(Failure::new("the daemon's new key does not have that fingerprint")
            .hint("nothing was changed; `bowline daemon run` prints its fingerprint when it starts")
            .kind(FailureKind::KeyChanged));
    }
    note!("approved; pinned as soon as the daemon has proved that it has the key\n");
    config.approve(*change).map_err(Failure::new)
}

async fn listen(
    config: ClientConfig,
    daemon: &DaemonView,
    address: SocketAddr,
    json: bool,
) -> Result<ExitCode, Failure> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::new(format!("cannot listen on {address}: {error}"))
            .hint("choose another port with --listen")
    })?;
    let address = listener.local_addr().map_err(Failure::new)?;
    if !address.ip().is_loopback() {
        note!("warning: anyone who can reach {address} can reach the daemon's target");
    }
    let mut client = RelayClient::connect(config);
    let output = ConnectOutput { json, daemon, address };
    let done = {
        let forwarding =
            forward(listener, &mut client, Forwarding::default(), |event| output.event(event));
        tokio::select! {
            closed = forwarding => Err(closed),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    };
    client.close().await;
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ForwardClosed::Client(closed)) => Err(closed.into()),
        Err(ForwardClosed::Hello(error)) => Err(Failure::new(error)
            .hint("start the daemon with --tcp HOST:PORT, or use --ping here")
            .kind(FailureKind::Refused)),
    }
}

struct ConnectOutput<'a> {
    json: bool,
    daemon: &'a DaemonView,
    address: SocketAddr,
}

impl ConnectOutput<'_> {
    fn event(&self, event: &ClientEvent) {
        let (name, detail) = match event {
            ClientEvent::Established { session, relay, first_use } => {
                if self.json {
                    let address = self.address.to_string();
                    say!(
                        "{}",
                        json!({ "event": "established", "listen": address, "relay": relay,
                                "daemon": self.daemon.id, "session": session.id().to_string(),
                                "fingerprint": session.fingerprint().to_string(),
                                "first_use": first_use })
                    );
                    return;
                }
                say!("{} forwards to {}", self.address, shown(self.daemon));
                say!("fingerprint  {}", session.fingerprint());
                if *first_use {
                    say!("pinned on first use: compare it with the one that the daemon prints");
                }
                return;
            }
            ClientEvent::Paused => {
                ("paused", "the daemon is disconnected; connections wait".to_owned())
            }
            ClientEvent::Pending => ("pending", "the daemon has reconnected".to_owned()),
            ClientEvent::Resumed => ("resumed", "connections continue".to_owned()),
            ClientEvent::NotPinned(error) => {
                ("warning", format!("the daemon's key is not pinned: {error}"))
            }
            ClientEvent::Lost { reason, retry_in } => {
                ("lost", format!("{reason}; retrying in {:.1} s", retry_in.as_secs_f64()))
            }
            ClientEvent::Closed(_) => return,
        };
        let detail = printable(&detail);
        match self.json {
            true => say!("{}", json!({ "event": name, "detail": detail })),
            false => note!("{name}: {detail}"),
        }
    }
}

async fn measure(
    config: ClientConfig,
    daemon: &DaemonView,
    count: u32,
    json: bool,
) -> Result<ExitCode, Failure> {
    let mut client = RelayClient::connect(config);
    let (session, relay) = loop {
        match terminal::waiting("waiting for the daemon", client.next()).await {
            Some(ClientEvent::Established { session, relay, .. }) => break (session, relay),
            Some(ClientEvent::Lost { reason, .. }) => return Err(owner::lost(reason)),
            Some(ClientEvent::Closed(closed)) => return Err(closed.into()),
            Some(ClientEvent::NotPinned(error)) => {
                note!("warning: the daemon's key is not pinned: {error}");
            }
            Some(_) => {}
            None => return Err(Failure::new("the client stopped")),
        }
    };
    let (id, fingerprint) = (session.id().to_string(), session.fingerprint().to_string());
    let mut pings = ping(session).await.map_err(Failure::new)?;
    let mut times = Vec::with_capacity(count as usize);
    let measuring = async {
        for _ in 0..count {
            times.push(pings.once().await.map_err(Failure::new)?);
        }
        Ok::<_, Failure>(())
    };
    terminal::waiting(format_args!("measuring {count} round trips"), measuring).await?;
    drop(pings);
    client.close().await;
    times.sort_unstable();
    let [p50, p99] = [50, 99].map(|percent| milliseconds(percentile(&times, percent)));
    if json {
        say!(
            "{}",
            json!({ "daemon": daemon.id, "name": daemon.name, "fingerprint": fingerprint,
                    "relay": relay, "session": id, "count": count, "p50_ms": p50, "p99_ms": p99 })
        );
    } else {
        say!("daemon       {}", shown(daemon));
        say!("fingerprint  {fingerprint}");
        say!("relay        {relay}");
        say!("session      {}…", &id[..4]);
        say!("round trips  {count}; p50 {p50:.2} ms, p99 {p99:.2} ms");
    }
    Ok(ExitCode::SUCCESS)
}

/// A daemon's name and id.
fn shown(daemon: &DaemonView) -> String {
    match &daemon.name {
        Some(name) => printable(&format!("{name} ({})", daemon.id)),
        None => printable(&daemon.id),
    }
}

/// The nearest-rank percentile. `sorted` must not be empty.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100) - 1]
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(100));
        assert_eq!(percentile(&times, 99), Duration::from_millis(198));
        assert_eq!(percentile(&times[..1], 50), Duration::from_millis(1));
        assert_eq!(percentile(&times[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&times[..2], 50), Duration::from_millis(1));
        assert_eq!(milliseconds(Duration::from_nanos(1_234_567)), 1.235);
    }
}
