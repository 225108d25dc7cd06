//! `bowline connect`: a service of a daemon as a local port or on standard input and output, and the
//! round-trip times to it.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bowline_client::relay::tunnel::{
    API, Connected, ForwardNotice, Forwarding, Pings, TunnelClient, TunnelNotice, forward,
    forward_stdio,
};
use bowline_net::loopback;
use serde_json::json;
use tokio::net::TcpListener;

use crate::cli::SettingArgs;
use crate::cli::relay_ends::ConnectArgs;
use crate::failure::{Failure, FailureKind};
use crate::reach::Reach;
use crate::settings::Settings;
use crate::signals::{STOPPED_AT_ONCE, StopSignals};
use crate::terminal::{self, note, printable, say};
use crate::{logging, reach};

pub(crate) async fn run(args: ConnectArgs) -> Result<ExitCode, Failure> {
    bowline_net::descriptors::raise();
    let log = Settings::load(&SettingArgs::default())?.log_or("error");
    logging::start(&log).map_err(Failure::new)?;
    let data = args.data.as_deref();
    let reach = reach::by_name(&args.daemon, &args.control, data, args.approve_new_key).await?;
    let listener = match args.listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let mut signals = StopSignals::install()?;
    let Reach { config, identity } = reach;
    let daemon = config.daemon.as_str().to_owned();
    let mut tunnel = TunnelClient::connect(config, identity);
    // Forwarding goes on until it is stopped; what measures or approves has an end of its own.
    let stopped = match listener.is_some() || args.stdio {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(STOPPED_AT_ONCE),
    };
    let done = tokio::select! {
        done = work(args, daemon, listener, &mut tunnel) => done.map(|()| ExitCode::SUCCESS),
        () = signals.stop() => Ok(stopped),
    };
    // However it ended: the daemon would keep the tunnel for a device that comes back.
    tunnel.close().await;
    done
}

async fn work(
    args: ConnectArgs,
    daemon: String,
    listener: Option<TcpListener>,
    tunnel: &mut TunnelClient,
) -> Result<(), Failure> {
    let waiting = reach::connected(tunnel, args.approve_new_key.is_some());
    let connected = terminal::waiting("waiting for the daemon", waiting).await?;
    let output = ConnectOutput { json: args.json, name: args.daemon, daemon };
    match (listener, args.stdio, args.ping) {
        (Some(listener), ..) => output.listening(&listener, args.service, tunnel, connected).await,
        (None, true, _) => output.stdio(args.service, tunnel, connected).await,
        (None, false, true) => output.ping(tunnel, connected, args.count).await,
        (None, false, false) => {
            output.approved(&connected);
            Ok(())
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::new(format!("cannot listen on {address}: {error}"))
            .hint("choose another port with --listen")
    })?;
    loopback::without_pacing(&listener, address.ip());
    if !address.ip().is_loopback() {
        note!("warning: anyone who can reach {address} can reach the daemon's service");
    }
    Ok(listener)
}

/// The service that was asked for, or the one that is meant: a gateway's, or the only one.
fn service(asked: Option<String>, connected: &Connected) -> Result<String, Failure> {
    let offered: Vec<_> =
        connected.services.iter().map(String::as_str).filter(|name| *name != HTTP).collect();
    let list = printable(&offered.join(", "));
    let wrong = |what: String| Failure::new(what).kind(FailureKind::Refused);
    match (asked, offered.as_slice()) {
        (Some(asked), _) if connected.services.contains(&asked) => Ok(asked),
        (Some(asked), []) => Err(wrong(format!("the daemon offers no service `{asked}`"))
            .hint("start the daemon with --tcp NAME=HOST:PORT, or pair this device for it")),
        (Some(asked), _) => {
            Err(wrong(format!("the daemon offers this device no service `{asked}`"))
                .hint(format!("it offers: {list}")))
        }
        (None, []) => Err(wrong("the daemon offers this device no service".into())
            .hint("start the daemon with --tcp HOST:PORT, or use --ping here")),
        (None, offered) if offered.contains(&API) => Ok(API.into()),
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) => Err(Failure::new("the daemon offers several services")
            .hint(format!("choose one with --service: {list}"))
            .kind(FailureKind::Usage)),
    }
}

/// Why the tunnel closes, if it does within a moment.
async fn closed_soon(tunnel: &mut TunnelClient) -> Option<Failure> {
    let closing = async {
        loop {
            if let TunnelNotice::Closed(closed) = tunnel.next().await? {
                return Some(closed.into());
            }
        }
    };
    tokio::time::timeout(MOMENT, closing).await.ok().flatten()
}

const MOMENT: Duration = Duration::from_secs(2);

/// The service for Bowline's own client; local ports use [`API`].
const HTTP: &str = bowline_client::relay::tunnel::HTTP;

struct ConnectOutput {
    json: bool,
    /// What the person typed.
    name: String,
    daemon: String,
}

impl ConnectOutput {
    async fn listening(
        &self,
        listener: &TcpListener,
        asked: Option<String>,
        tunnel: &mut TunnelClient,
        connected: Connected,
    ) -> Result<(), Failure> {
        if asked.as_deref() == Some(HTTP) {
            return Err(Failure::new(
                "`http` is not for a local port, which any program could use",
            )
            .hint("leave --service out: `api` is the same without what takes a person")
            .kind(FailureKind::Usage));
        }
        let service = service(asked, &connected)?;
        let address = listener.local_addr().map_err(Failure::new)?;
        self.connected(&connected, address, &service);
        let tell = |notice| self.forwarded(&notice);
        let forwarding = forward(listener, tunnel.opener(), &service, Forwarding::default(), tell);
        let mut forwarding = std::pin::pin!(forwarding);
        loop {
            tokio::select! {
                () = forwarding.as_mut() => return Ok(()),
                notice = tunnel.next() => match notice {
                    Some(TunnelNotice::Closed(closed)) => return Err(closed.into()),
                    Some(TunnelNotice::Connected(connected)) => {
                        self.connected(&connected, address, &service);
                    }
                    Some(notice) => self.notice(&notice),
                    None => return Ok(()),
                },
            }
        }
    }

    async fn stdio(
        &self,
        asked: Option<String>,
        tunnel: &mut TunnelClient,
        connected: Connected,
    ) -> Result<(), Failure> {
        let service = service(asked, &connected)?;
        self.first_use(&connected);
        let opener = tunnel.opener();
        let mut forwarding = std::pin::pin!(forward_stdio(&opener, &service));
        loop {
            tokio::select! {
                done = forwarding.as_mut() => {
                    let Err(error) = done else { return Ok(()) };
                    let cut_off = Failure::new(printable(&error.to_string()));
                    let cut_off = cut_off.kind(FailureKind::Unreachable);
                    // If the whole tunnel ended, that says more.
                    return Err(closed_soon(tunnel).await.unwrap_or(cut_off));
                }
                notice = tunnel.next() => match notice {
                    Some(TunnelNotice::Closed(closed)) => return Err(closed.into()),
                    // Standard output belongs to the service.
                    Some(notice) => {
                        if let Some((state, detail)) = reach::words(&notice) {
                            note!("{state}: {}", printable(&detail));
                        }
                    }
                    None => return Ok(()),
                },
            }
        }
    }

    async fn ping(
        &self,
        tunnel: &TunnelClient,
        connected: Connected,
        count: u32,
    ) -> Result<(), Failure> {
        self.first_use(&connected);
        let mut pings = Pings::open(&tunnel.opener()).await.map_err(Failure::new)?;
        let mut times = Vec::with_capacity(count as usize);
        let measuring = async {
            for _ in 0..count {
                times.push(pings.once().await.map_err(Failure::new)?);
            }
            Ok::<_, Failure>(())
        };
        terminal::waiting(format_args!("measuring {count} round trips"), measuring).await?;
        times.sort_unstable();
        let [p50, p99] = [50, 99].map(|percent| milliseconds(percentile(&times, percent)));
        let id = connected.session.to_string();
        let fingerprint = connected.identity.key().fingerprint();
        if self.json {
            say!(
                "{}",
                json!({ "daemon": self.daemon, "name": connected.name,
                        "fingerprint": fingerprint.to_string(), "relay": connected.relay,
                        "session": id, "count": count, "p50_ms": p50, "p99_ms": p99,
                        "first_use": connected.first_use })
            );
        } else {
            say!("daemon       {}", self.shown());
            say!("fingerprint  {fingerprint}");
            say!("relay        {}", printable(&connected.relay));
            say!("session      {}…", &id[..4]);
            say!("round trips  {count}; p50 {p50:.2} ms, p99 {p99:.2} ms");
        }
        Ok(())
    }

    /// The key was proven and pinned.
    fn approved(&self, connected: &Connected) {
        let fingerprint = connected.identity.key().fingerprint().to_string();
        match self.json {
            true => say!(
                "{}",
                json!({ "daemon": self.daemon, "name": self.name, "fingerprint": fingerprint,
                        "pinned": true })
            ),
            false => say!("`{}` is pinned to {fingerprint}", printable(&self.name)),
        }
    }

    fn connected(&self, connected: &Connected, address: SocketAddr, service: &str) {
        let Connected { session, identity, relay, first_use, resumed, .. } = connected;
        let fingerprint = identity.key().fingerprint();
        if self.json {
            say!(
                "{}",
                json!({ "event": "established", "resumed": resumed, "listen": address.to_string(), "relay": relay,
                        "daemon": self.daemon, "session": session.to_string(),
                        "service": service, "fingerprint": fingerprint.to_string(),
                        "first_use": first_use })
            );
        } else if *resumed {
            note!("connected again: connections continue");
        } else {
            say!("{address} forwards to `{}` of {}", printable(service), self.shown());
            say!("fingerprint  {fingerprint}");
            self.first_use(connected);
        }
    }

    fn forwarded(&self, notice: &ForwardNotice) {
        match notice {
            ForwardNotice::Held { open } if self.json => {
                say!("{}", json!({ "event": "held", "open": open }));
            }
            ForwardNotice::Held { open } => note!(
                "{open} connections are open, as many as there may be: the next ones wait until one of \
                 them ends"
            ),
            ForwardNotice::Failed(error) => {
                note!("a connection was cut off: {}", printable(&error.to_string()));
            }
        }
    }

    fn first_use(&self, connected: &Connected) {
        if connected.first_use && !self.json {
            note!(
                "first use of `{}`: its key is pinned now. Compare the fingerprint with the one that the \
                 daemon prints:\n  {}",
                printable(&self.name),
                connected.identity.key().fingerprint()
            );
        }
    }

    fn notice(&self, notice: &TunnelNotice) {
        let Some((state, detail)) = reach::words(notice) else { return };
        let detail = printable(&detail);
        match self.json {
            true => say!("{}", json!({ "event": state, "detail": detail })),
            false => note!("{state}: {detail}"),
        }
    }

    /// The name that was typed, and the daemon's id.
    fn shown(&self) -> String {
        match self.name == self.daemon {
            true => printable(&self.daemon),
            false => printable(&format!("{} ({})", self.name, self.daemon)),
        }
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
