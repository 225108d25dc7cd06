//! Arguments of `bowline daemon`, `bowline connect` and `bowline daemons`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bowline_client::relay::tunnel::PING;
use bowline_sbrp::identity::Fingerprint;
use clap::{ArgGroup, Args, Subcommand};
use url::Url;

/// The control plane's address and the user's API key.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ControlArgs {
    /// The control plane's address [default: that of `bowline login`]
    #[arg(long, value_name = "URL", env = "BOWLINE_CONTROL")]
    pub(crate) control: Option<Url>,
    /// A file with your API key [default: the key in BOWLINE_CONTROL_KEY, or that of `bowline login`]
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
Devices reach the addresses given with --tcp and no others, once they are paired (`bowline pair`).
Traffic is encrypted end to end: neither relay nor control plane can read it. Connections survive the
loss of the network.

Examples:
  bowline login https://control.example.org
  bowline daemon run --tcp 127.0.0.1:22 --name home
  bowline daemon run --tcp ssh=127.0.0.1:22 --tcp web=127.0.0.1:8080")]
pub(crate) struct DaemonArgs {
    /// The configuration file; its section is [daemon], and flags win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// An address that devices may connect to, with a name if there are several; repeatable. Without
    /// it, devices can only ping
    #[arg(long, value_name = "[NAME=]HOST:PORT", value_parser = target)]
    pub(crate) tcp: Vec<(String, String)>,
    /// Also serve clients that prove nothing. Whoever runs the relay or the control plane, or breaks into
    /// one, can then use every --tcp target
    #[arg(long)]
    pub(crate) allow_unpaired: bool,
    /// The daemon's name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Prefer a relay in this region, if the control plane has several
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// The data folder, where the daemon's identity key and its paired devices are stored
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print events as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what")
        .required(true)
        .multiple(true)
        .args(["listen", "stdio", "ping", "approve_new_key"]),
    after_help = "\
The daemon's key belongs to the name that you use: it came with the pairing code, or is pinned on first
use. If the name leads to another daemon or key later, it is refused until you have compared both
fingerprints and approved the new one. Connections go on after a lost network, where they were.

Examples:
  bowline connect home --listen 127.0.0.1:8080          the gateway at home, for any program here
  bowline connect home --listen 127.0.0.1:2222 --service ssh
  ssh -o ProxyCommand='bowline connect home --stdio --service ssh' me@home
  bowline connect home --ping --count 100
  bowline connect home --approve-new-key SHA256:0A:1B:…"
)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// The daemon's name: of its pairing, or its name or id at the control plane
    pub(crate) daemon: String,
    /// Forward this local address to a service of the daemon: HOST:PORT or localhost:PORT
    #[arg(long, value_name = "ADDR", value_parser = bowline_net::listen::parse,
          conflicts_with_all = ["stdio", "ping"])]
    pub(crate) listen: Option<SocketAddr>,
    /// Connect standard input and output to a service of the daemon
    #[arg(long, conflicts_with = "ping")]
    pub(crate) stdio: bool,
    /// The service, if the daemon offers several
    #[arg(long, value_name = "NAME", conflicts_with = "ping")]
    pub(crate) service: Option<String>,
    /// Measure round-trip times
    #[arg(long)]
    pub(crate) ping: bool,
    /// How many round trips
    #[arg(long, value_name = "N", requires = "ping", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
    /// Trust the key with this fingerprint and no other, whatever is pinned, and pin it
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) approve_new_key: Option<Fingerprint>,
    /// The data folder, where pins and pairings are stored
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
        /// The data folder, where `bowline login` stored the key
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
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
        /// The data folder, where `bowline login` stored the key
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
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
        /// The data folder, where `bowline login` stored the key
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// The daemon's id or name
        daemon: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The name of a target that was given none.
pub(crate) const TCP: &str = "tcp";

/// Parses `NAME=HOST:PORT` or `HOST:PORT`. The host name is resolved when a connection is made, not
/// here.
pub(crate) fn target(text: &str) -> Result<(String, String), String> {
    let (name, address) = text.split_once('=').unwrap_or((TCP, text));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 32 || !name.bytes().all(is_name) || name == PING {
        return Err(
            "the name has 1 to 32 letters, digits, `-`, `_` or `.`, and is not `ping`".into()
        );
    }
    match address.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) =>
        {
            Ok((name.to_owned(), address.to_owned()))
        }
        _ => Err("write it like 127.0.0.1:22 or ssh=127.0.0.1:22".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        for good in ["127.0.0.1:22", "localhost:8080", "[::1]:22"] {
            assert_eq!(target(good), Ok(("tcp".into(), good.into())));
            assert_eq!(target(&format!("my-web={good}")), Ok(("my-web".into(), good.into())));
        }
        for bad in [
            "22",
            ":22",
            "host",
            "host:",
            "host:0",
            "host:70000",
            "host:ssh",
            "=h:1",
            "ping=h:1",
            "a b=h:1",
        ] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
