//! The sections of `relay run`, `control run` and `daemon run`: `[relay_server]`, `[control]`, `[daemon]`.
//!
//! `[relay]` was taken: it is how a gateway reaches a relay. A field's doc says effect and default;
//! docs/configuration.md has all of them.

use std::net::SocketAddr;
use std::path::PathBuf;

use bowline_net::tls::Tls;
use bowline_net::{listen, peer};
use bowline_relay::relay::RelayConfig;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use url::Url;

/// A relay: what the relay itself takes, and what the program around it does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RelayServerSettings {
    pub(crate) around: RelayProgramSettings,
    /// Its `issuer` counts only if [`RelayServerSettings::has_issuer`].
    pub(crate) relay: RelayConfig,
    pub(crate) has_issuer: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RelayProgramSettings {
    /// Also run the control plane, at the same address; its folder is `control.data`.
    pub(crate) with_control: bool,
    /// The public address of relay and control plane; by default the one it listens on.
    pub(crate) url: Option<Url>,
    /// A file with a key; who shows it may read /metrics from other machines, too.
    pub(crate) metrics_key_file: Option<PathBuf>,
}

impl RelayServerSettings {
    const AROUND: [&str; 3] = ["with_control", "url", "metrics_key_file"];

    /// The defaults as a table. Without an issuer: there is none that could be meant.
    pub(super) fn defaults() -> Result<Table, toml::ser::Error> {
        let mut table = Table::try_from(RelayConfig::default())?;
        table.remove("issuer");
        table.extend(Table::try_from(RelayProgramSettings::default())?);
        Ok(table)
    }

    pub(super) fn read(mut table: Table) -> Result<Self, toml::de::Error> {
        let around = Self::AROUND.iter().filter_map(|name| table.remove_entry(*name));
        let around: Table = around.collect();
        Ok(Self {
            around: Value::Table(around).try_into()?,
            has_issuer: table.contains_key("issuer"),
            relay: Value::Table(table).try_into()?,
        })
    }
}

/// A control plane with a process of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ControlSettings {
    /// The folder of the registry, also for `control user` and the like, and for `relay run
    /// --with-control`; by default `control` in bowline's data folder.
    pub(crate) data: Option<PathBuf>,
    #[serde(deserialize_with = "listen::deserialize")]
    pub(crate) listen: SocketAddr,
    /// The issuer in tokens; by default the address it listens on.
    pub(crate) issuer: Option<String>,
    /// Where daemons and clients connect. Needed.
    pub(crate) relay_url: Option<Url>,
    /// The relay's region, if it has one.
    pub(crate) region: Option<String>,
    /// How many minutes a daemon's presence token is valid, 1 to 1440.
    pub(crate) presence_minutes: u64,
    pub(crate) tls: Option<Tls>,
    /// Proxies in front that end TLS, by address or network.
    #[serde(deserialize_with = "peer::networks")]
    pub(crate) behind_proxy: Vec<IpNet>,
    /// Allows plain HTTP with everybody on a public address.
    pub(crate) insecure: bool,
    pub(crate) metrics_key_file: Option<PathBuf>,
}

impl Default for ControlSettings {
    fn default() -> Self {
        Self {
            data: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 7000)),
            issuer: None,
            relay_url: None,
            region: None,
            presence_minutes: 60,
            tls: None,
            behind_proxy: Vec::new(),
            insecure: false,
            metrics_key_file: None,
        }
    }
}

/// A daemon without a gateway.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DaemonSettings {
    /// The control plane; `--control` and `BOWLINE_CONTROL` win, and without all of them the one of
    /// `bowline login` counts.
    pub(crate) control: Option<Url>,
    /// A file with the owner's key there; `--key-file` and `BOWLINE_CONTROL_KEY` win.
    pub(crate) key_file: Option<PathBuf>,
    /// What devices may connect to: `127.0.0.1:22`, `ssh=127.0.0.1:22`.
    pub(crate) tcp: Vec<String>,
    /// Also serve clients that prove nothing.
    pub(crate) allow_unpaired: bool,
    pub(crate) name: Option<String>,
    /// Prefer a relay in this region, if the control plane has several.
    pub(crate) region: Option<String>,
    /// The folder of the identity key and the paired devices; by default bowline's data folder.
    pub(crate) data: Option<PathBuf>,
}
