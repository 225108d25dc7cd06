//! Arguments of `bowline control`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bowline_net::listen;
use clap::{Args, Subcommand};

use super::tls::{PathArgs, TlsArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
The subcommands change the data folder directly, also while the control plane runs: it sees changes
at once. A revoked user or daemon gets no new tokens, and relays disconnect its daemons and their
clients within seconds.

Examples:
  bowline control run --relay-url wss://relay.example.org/relay --issuer https://control.example.org
  bowline control user add alice
  bowline control daemon list --json
  bowline control relay add eu-1 wss://eu-1.example.org/relay --region eu
  bowline control rotate")]
pub(crate) struct ControlArgs {
    /// The control plane's data folder [default: `control` in bowline's data folder]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data: Option<PathBuf>,
    /// The configuration file; its section is [control], and flags win
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON; the server prints one line of it when it is ready
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: ControlCommand,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bowline control run --relay-url wss://relay.example.org/relay --issuer https://control.example.org
  bowline control run --relay-url ws://127.0.0.1:7001/relay --listen localhost:7000 --data ./control")]
pub(crate) struct ControlServeArgs {
    /// Where to listen: HOST:PORT, localhost:PORT, or :PORT for every address of this machine
    /// [default: 127.0.0.1:7000]
    #[arg(long, value_name = "ADDR", value_parser = listen::parse)]
    pub(crate) listen: Option<SocketAddr>,
    /// The issuer in tokens: this control plane's address as relays reach it
    /// [default: http://<listen>]
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,
    /// The relay's address, where daemons and clients connect while no relays are added with
    /// `bowline control relay add`
    #[arg(long, value_name = "URL")]
    pub(crate) relay_url: Option<url::Url>,
    /// The relay's region, if it has one
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// How many minutes a daemon's presence token is valid [default: 60]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub(crate) presence_minutes: Option<u64>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// A file with a key; who shows it may read /metrics from other machines, too
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_key_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ControlCommand {
    /// Run the control plane's server until SIGTERM, Ctrl-C or SIGHUP
    Run(Box<ControlServeArgs>),
    /// Add, list or revoke users, or create API keys for them
    #[command(subcommand)]
    User(UserCommand),
    /// List or revoke daemons
    #[command(subcommand)]
    Daemon(DaemonCommand),
    /// Add, list, drain or remove relays
    #[command(subcommand)]
    Relay(RelayCommand),
    /// Sign tokens with the next key; tokens already issued stay valid until they expire
    #[command(
        after_help = "Examples:\n  bowline control rotate\n  bowline control rotate --compromised"
    )]
    Rotate {
        /// The signing keys may be stolen: replace them all, which invalidates every issued token
        #[arg(long)]
        compromised: bool,
    },
    /// Show the audit log, newest first
    #[command(after_help = "Example:\n  bowline control audit --limit 20 --json")]
    Audit {
        /// The maximum number of records to show
        #[arg(long, value_name = "N", default_value_t = 50,
              value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user and show the API key, once
    #[command(after_help = "Example:\n  bowline control user add alice")]
    Add { name: String },
    /// List users
    #[command(after_help = "Example:\n  bowline control user list --json")]
    List,
    /// Create another API key for a user and show it, once
    #[command(after_help = "Example:\n  bowline control user key alice --replace")]
    Key {
        name: String,
        /// Revoke the user's existing keys, and end the connections of daemons and clients that
        /// were opened with them
        #[arg(long)]
        replace: bool,
    },
    /// Revoke a user with all keys and daemons; this cannot be undone
    #[command(after_help = "Example:\n  bowline control user revoke alice")]
    Revoke { name: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// List the daemons of all users
    #[command(after_help = "Example:\n  bowline control daemon list --json")]
    List,
    /// Revoke a daemon; this cannot be undone
    #[command(
        after_help = "Example:\n  bowline control daemon revoke 7b1e4a52-0c1f-4a0e-9f0a-3d1c2b4a5e6f"
    )]
    Revoke { id: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RelayCommand {
    /// Add a relay, or put a drained one back into service. With the first one, `--relay-url` of the
    /// control plane counts only for daemons that registered before
    #[command(after_help = "\
Examples:
  bowline control relay add eu-1 wss://eu-1.example.org/relay --region eu
  bowline control relay add here ws://127.0.0.1:8090/relay")]
    Add {
        name: String,
        /// Where daemons and clients connect: wss://HOST/relay
        url: url::Url,
        /// The relay's region. Daemons that prefer it get this relay, and their tokens name it
        #[arg(long, value_name = "NAME")]
        region: Option<String>,
    },
    /// List relays, and how many daemons each has
    #[command(after_help = "Example:\n  bowline control relay list --json")]
    List,
    /// Give a relay no more daemons, and have it hand over those it has
    #[command(after_help = "Example:\n  bowline control relay drain eu-1")]
    Drain {
        name: String,
        /// Also if it is the last active relay: its daemons are then cut off
        #[arg(long)]
        force: bool,
    },
    /// Remove a relay that is drained, or has no daemons
    #[command(after_help = "\
Examples:
  bowline control relay remove eu-1
  bowline control relay remove eu-1 --force")]
    Remove {
        name: String,
        /// Also while daemons use it
        #[arg(long)]
        force: bool,
    },
}
