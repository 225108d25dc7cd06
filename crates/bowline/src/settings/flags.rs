//! The settings that flags set: for each command, which flag sets which key.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use bowline_net::duration;
use toml::Value;

use super::key::joined;
use crate::cli::SettingArgs;
use crate::cli::control::ControlServeArgs;
use crate::cli::federation::PeerFlag;
use crate::cli::relay::RelayArgs;
use crate::cli::relay_ends::DaemonArgs;
use crate::cli::tls::{PathArgs, TlsArgs};
use crate::cli::tracker::TrackerArgs;

/// A setting that a flag sets. Without a value the flag was not given.
#[derive(Debug)]
pub(crate) struct Flag {
    pub(super) key: String,
    pub(super) flag: &'static str,
    pub(super) value: Option<Value>,
}

/// The flags of one section of the settings.
struct Flags {
    prefix: &'static str,
    all: Vec<Flag>,
}

impl Flags {
    /// `section` without a dot at its end; empty for the gateway's own settings.
    fn of(section: &'static str) -> Self {
        Self { prefix: section, all: Vec::new() }
    }

    fn put(mut self, name: &str, flag: &'static str, value: Option<Value>) -> Self {
        let key = match self.prefix {
            "" => name.to_owned(),
            section => format!("{section}.{name}"),
        };
        self.all.push(Flag { key, flag, value });
        self
    }

    fn text(self, name: &str, flag: &'static str, text: Option<&impl Display>) -> Self {
        self.put(name, flag, text.map(|text| Value::String(text.to_string())))
    }

    fn path(self, name: &str, flag: &'static str, path: Option<&Path>) -> Self {
        self.put(name, flag, path.map(|path| Value::String(path.display().to_string())))
    }

    fn number(self, name: &str, flag: &'static str, number: Option<u64>) -> Self {
        self.put(name, flag, number.map(|n| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))))
    }

    fn time(self, name: &str, flag: &'static str, time: Option<Duration>) -> Self {
        self.put(name, flag, time.map(|time| Value::String(duration::format(time))))
    }

    /// A flag without a value can only say yes.
    fn yes(self, name: &str, flag: &'static str, given: bool) -> Self {
        self.put(name, flag, given.then_some(Value::Boolean(true)))
    }

    fn list(self, name: &str, flag: &'static str, items: &[impl Display]) -> Self {
        let list = items.iter().map(|item| Value::String(item.to_string())).collect();
        self.put(name, flag, Some(Value::Array(list)).filter(|_| !items.is_empty()))
    }

    fn peers(self, section: &str, flag: &'static str, peers: &[PeerFlag]) -> Self {
        peers.iter().fold(self, |flags, peer| {
            let key = joined(section, peer.id.as_str());
            flags.text(&format!("{key}.url"), flag, Some(&peer.url))
        })
    }

    fn tls(self, args: &TlsArgs) -> Self {
        self.path("tls.cert", "--tls-cert", args.tls_cert.as_deref()).path(
            "tls.key",
            "--tls-key",
            args.tls_key.as_deref(),
        )
    }

    fn exposure(self, args: &PathArgs) -> Self {
        self.list("behind_proxy", "--behind-proxy", &args.behind_proxy).yes(
            "insecure",
            "--insecure",
            args.insecure,
        )
    }
}

impl SettingArgs {
    pub(super) fn flags(&self) -> Vec<Flag> {
        Flags::of("")
            .path("data", "--data", self.data.as_deref())
            .text("store.url", "--store", self.store.store.as_ref())
            .text("bus.url", "--bus", self.store.bus.as_ref())
            .text("listen", "--listen", self.listen.as_ref())
            .tls(&self.tls)
            .text("upstream.default.url", "--upstream", self.upstream.as_ref())
            .text("upstream.default.key_env", "--upstream-key-env", self.upstream_key_env.as_ref())
            .text("default_model", "--model", self.model.as_ref())
            .list("behind_proxy", "--behind-proxy", &self.behind_proxy)
            .text("relay.url", "--relay", self.relay.as_ref())
            .yes("insecure", "--insecure", self.insecure)
            .yes("federation.enabled", "--federation", self.federation.federation)
            .text("federation.gateway_id", "--gateway-id", self.federation.gateway_id.as_ref())
            .peers("federation.peers", "--peer", &self.federation.peer)
            .peers("federation.trackers", "--tracker", &self.federation.tracker)
            .yes("federation.serve_registry", "--also-tracker", self.federation.also_tracker)
            .all
    }
}

impl RelayArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let mut relay = Flags::of("relay_server")
            .text("listen", "--listen", self.listen.as_ref())
            .text("issuer", "--issuer", self.issuer.as_ref())
            .yes("with_control", "--with-control", self.with_control)
            .text("url", "--url", self.url.as_ref())
            .text("name", "--name", self.name.as_ref())
            .text("region", "--region", self.region.as_ref())
            .tls(&self.tls)
            .exposure(&self.path)
            .path("metrics_key_file", "--metrics-key-file", self.metrics_key_file.as_deref())
            .time("grace", "--grace", self.grace)
            .time("keys.stale_for", "--keys-stale", self.keys_stale)
            .time("keys.revoked_every", "--revoked-every", self.revoked_every)
            .time("limits.session_age", "--session-age", self.session_age)
            .number("limits.connections", "--connections", self.connections)
            .number(
                "limits.connections_per_address",
                "--connections-per-address",
                self.connections_per_address,
            )
            .number("limits.rate_frames", "--rate-frames", self.rate_frames.map(u64::from))
            .number(
                "limits.rate_connections",
                "--rate-connections",
                self.rate_connections.map(u64::from),
            )
            .number(
                "limits.rate_connections_ip",
                "--rate-connections-ip",
                self.rate_connections_ip.map(u64::from),
            )
            .time("limits.ping_every", "--ping-every", self.ping_every);
        if self.issuer.is_some() {
            // A control plane that is named takes the place of the one in the file.
            relay = relay.put("with_control", "--issuer", Some(Value::Boolean(false)));
        }
        let control = Flags::of("control").path("data", "--data", self.data.as_deref());
        relay.all.into_iter().chain(control.all).collect()
    }
}

impl ControlServeArgs {
    /// `data` is a flag of all subcommands.
    pub(crate) fn flags(&self, data: Option<&Path>) -> Vec<Flag> {
        Flags::of("control")
            .path("data", "--data", data)
            .text("listen", "--listen", self.listen.as_ref())
            .text("issuer", "--issuer", self.issuer.as_ref())
            .text("relay_url", "--relay-url", self.relay_url.as_ref())
            .text("region", "--region", self.region.as_ref())
            .number("presence_minutes", "--presence-minutes", self.presence_minutes)
            .tls(&self.tls)
            .exposure(&self.path)
            .path("metrics_key_file", "--metrics-key-file", self.metrics_key_file.as_deref())
            .all
    }
}

impl TrackerArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let mut flags = Flags::of("tracker")
            .path("data", "--data", self.data.as_deref())
            .text("listen", "--listen", self.listen.as_ref())
            .text("id", "--id", self.id.as_ref())
            .text("name", "--name", self.name.as_ref())
            .text("url", "--url", self.url.as_ref())
            .tls(&self.tls)
            .exposure(&self.path)
            .yes("only_peers", "--only-peers", self.only_peers)
            .number("limits.records", "--records", self.records)
            .number(
                "limits.records_per_gateway",
                "--records-per-gateway",
                self.records_per_gateway,
            );
        for (id, url) in &self.peer {
            flags = flags.text(&joined("peers", id.as_str()), "--peer", Some(url));
        }
        flags.all
    }
}

impl DaemonArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let tcp: Vec<_> = self.tcp.iter().map(|(name, to)| format!("{name}={to}")).collect();
        Flags::of("daemon")
            .list("tcp", "--tcp", &tcp)
            .yes("allow_unpaired", "--allow-unpaired", self.allow_unpaired)
            .text("name", "--name", self.name.as_ref())
            .text("region", "--region", self.region.as_ref())
            .path("data", "--data", self.data.as_deref())
            .path("key_file", "--key-file", self.control.key_file.as_deref())
            .all
    }
}
