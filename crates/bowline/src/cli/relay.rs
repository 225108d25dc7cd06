//! Arguments of `bowline relay`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_net::{duration, listen};
use clap::{Args, Subcommand};

use super::tls::{PathArgs, TlsArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum RelayCommand {
    /// Run a relay until SIGTERM, Ctrl-C or SIGHUP
    Run(Box<RelayArgs>),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A relay forwards encrypted frames between clients and daemons and cannot read them. It accepts the
tokens of one control plane, whose keys it fetches from <issuer>/.well-known/jwks.json.

Examples:
  bowline relay run --with-control
  bowline relay run --with-control --listen 0.0.0.0:443 --url https://relay.example \\
      --tls-cert /etc/bowline/cert.pem --tls-key /etc/bowline/key.pem
  bowline relay run --issuer http://127.0.0.1:7000
  bowline relay run --listen 0.0.0.0:443 --issuer https://control.example --region eu \\
      --tls-cert /etc/bowline/cert.pem --tls-key /etc/bowline/key.pem
  bowline relay run --listen 0.0.0.0:443 --issuer https://control.example --name eu-2 --region eu \\
      --tls-cert /etc/bowline/cert.pem --tls-key /etc/bowline/key.pem
  bowline relay run --listen 10.0.0.5:8090 --issuer https://control.example \\
      --behind-proxy 10.0.0.4")]
pub(crate) struct RelayArgs {
    /// The configuration file; its section is [relay_server], and flags win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where to listen: HOST:PORT, localhost:PORT, or :PORT for every address of this machine
    /// [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDR", value_parser = listen::parse)]
    pub(crate) listen: Option<SocketAddr>,
    /// The control plane whose tokens are accepted: https, or http on this machine
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,
    /// Also run the control plane, at the same address
    #[arg(long, conflicts_with = "issuer")]
    pub(crate) with_control: bool,
    /// The control plane's data folder [default: `control` in bowline's data folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The public address of relay and control plane [default: the address it listens on]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<url::Url>,
    /// The relay's name in `bowline control relay list`, by which it learns that it is drained
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The relay's region; tokens for another region are refused
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// A file with a key; who shows it may read /metrics from other machines, too
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_key_file: Option<PathBuf>,
    /// How long a session stays paused for a disconnected daemon to reconnect [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) grace: Option<Duration>,
    /// How long cached signing keys are used while the control plane cannot be reached [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) keys_stale: Option<Duration>,
    /// How often to ask the control plane which daemons and users were revoked [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) revoked_every: Option<Duration>,
    /// How old a session may become before its client has to open a new one with a new token; 0s for
    /// no limit [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) session_age: Option<Duration>,
    /// The maximum number of open connections [default: 100000]
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<u64>,
    /// Messages per second from one connection; more are delayed; 0 for no limit [default: 50000]
    #[arg(long, value_name = "N")]
    pub(crate) rate_frames: Option<u32>,
    /// New connections per second; more are refused; 0 for no limit [default: 5000]
    #[arg(long, value_name = "N")]
    pub(crate) rate_connections: Option<u32>,
    /// The maximum number of open connections from one address; 0 for no limit, as needed behind a
    /// proxy without --behind-proxy [default: 1024]
    #[arg(long, value_name = "N")]
    pub(crate) connections_per_address: Option<u64>,
    /// New connections per second from one address; 0 for no limit, as needed behind a proxy
    /// without --behind-proxy [default: 50]
    #[arg(long, value_name = "N")]
    pub(crate) rate_connections_ip: Option<u32>,
    /// How long a connection may be idle before it is pinged [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ping_every: Option<Duration>,
    /// Print one line of JSON when ready
    #[arg(long)]
    pub(crate) json: bool,
}
