//! Arguments of `bowline daemon`, `bowline connect` and `bowline daemons`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use url::Url;

/// The control plane's address and the user's API key.
#[derive(Debug, Clone, Args)]
pub(crate) struct ControlArgs {
    /// The control plane's address
    #[arg(long, value_name = "URL", env = "BOWLINE_CONTROL")]
    pub(crate) control: Option<Url>,
    /// A file with your API key [default: the key in BOWLINE_CONTROL_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Run a daemon until SIGTERM, Ctrl-C or SIGHUP
    Run(DaemonArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Clients reach the one address given with --tcp and no other. Traffic is encrypted end to end:
neither relay nor control plane can read it. Sessions survive the loss of the connection.

Examples:
  export BOWLINE_CONTROL=https://control.example.org BOWLINE_CONTROL_KEY=…
  bowline daemon run --tcp 127.0.0.1:22 --name home
  bowline daemon run --tcp 127.0.0.1:8080 --key-file ~/.config/bowline/control.key")]
pub(crate) struct DaemonArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// The address to forward connections to; without it, clients can only ping
    #[arg(long, value_name = "HOST:PORT", value_parser = target)]
    pub(crate) tcp: Option<String>,
    /// The daemon's name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The data folder, where the daemon's identity key is stored
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print events as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").required(true).args(["listen", "ping"]),
    after_help = "\
The daemon's key is pinned on first use. If the key changes later, connections are refused until you
have compared both fingerprints and approved the new one.

Examples:
  bowline connect home --listen 127.0.0.1:2222
  ssh -p 2222 127.0.0.1
  bowline connect home --ping --count 100
  bowline connect home --listen 127.0.0.1:2222 --approve-new-key SHA256:0A:1B:…"
)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// The daemon's id or name
    pub(crate) daemon: String,
    /// Forward this local address to the daemon's target: HOST:PORT or localhost:PORT
    #[arg(long, value_name = "ADDR", value_parser = bowline_net::listen::parse)]
    pub(crate) listen: Option<SocketAddr>,
    /// Measure round-trip times instead
    #[arg(long)]
    pub(crate) ping: bool,
    /// How many round trips
    #[arg(long, value_name = "N", requires = "ping", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
    /// Trust the daemon's changed key if it has this fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) approve_new_key: Option<String>,
    /// The data folder, where pinned keys are stored
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DaemonsCommand {
    /// List your daemons
    #[command(after_help = "\
Examples:
  bowline daemons list --control https://control.example.org
  bowline daemons list --json")]
    List {
        #[command(flatten)]
        control: ControlArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a daemon another name
    #[command(after_help = "\
A daemon that is started with --name takes that name again.

Example:
  bowline daemons rename old-laptop workshop")]
    Rename {
        #[command(flatten)]
        control: ControlArgs,
        /// The daemon's id or name
        daemon: String,
        /// The new name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a daemon permanently, for example a lost machine. It and its clients are disconnected
    #[command(after_help = "Example:\n  bowline daemons revoke old-laptop")]
    Revoke {
        #[command(flatten)]
        control: ControlArgs,
        /// The daemon's id or name
        daemon: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Parses `HOST:PORT`. The host name is resolved when a connection is made, not here.
fn target(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) =>
        {
            Ok(text.to_owned())
        }
        _ => Err("write it like 127.0.0.1:22".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        for good in ["127.0.0.1:22", "localhost:8080", "[::1]:22"] {
            assert_eq!(target(good).as_deref(), Ok(good));
        }
        for bad in ["22", ":22", "host", "host:", "host:0", "host:70000", "host:ssh"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
