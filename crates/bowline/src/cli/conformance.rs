//! Arguments of `bowline conformance`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bowline_conformance::Level;
use clap::{Args, Subcommand};
use url::Url;

#[derive(Debug, Subcommand)]
pub(crate) enum ConformanceCommand {
    /// Check whether a relay keeps to SBRP, ours or another
    Relay(Box<RelayConformanceArgs>),
    /// Verify the signature of a report, offline, and say what it proves
    Verify(VerifyArgs),
}

/// What becomes of the report.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Also write the report to this file, as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Also write a signed report to this file, which `bowline conformance verify` checks
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Also write a badge of what is passed to this file, as SVG
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    pub(crate) badge: Option<PathBuf>,
    /// Sign with the key in this file, made on first use [default: the identity in the data folder]
    #[arg(long, value_name = "FILE", requires = "report")]
    pub(crate) identity: Option<PathBuf>,
    /// The data folder whose identity signs
    #[arg(long, value_name = "DIR", requires = "report", conflicts_with = "identity")]
    pub(crate) data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The relay under test has to accept the tokens of the suite's own control plane: start it with the
issuer that is printed. Daemons and clients are played by the suite. Its sessions have random names,
so a relay may serve others meanwhile. A run takes about a minute. The exit code is 1 if a check
failed.

Examples:
  bowline conformance relay --url ws://127.0.0.1:8090/relay
  bowline conformance relay --url wss://relay.example --issuer https://suite.example
  bowline conformance relay --url ws://127.0.0.1:8090 --only SBRP-TOKEN,SBRP-RELAY-08
  bowline conformance relay --url ws://127.0.0.1:8090 --report report.json --badge sbrp.svg
  bowline conformance relay --list")]
pub(crate) struct RelayConformanceArgs {
    /// The relay's address; its path is /relay unless it says another
    #[arg(long, value_name = "URL", required_unless_present = "list")]
    pub(crate) url: Option<Url>,
    /// Check only these requirements, such as SBRP-RELAY-09, or SBRP-TOKEN or SBRP-RELAY
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// List the checks, and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Where the suite's control plane listens: it publishes the keys of the tokens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8097")]
    pub(crate) jwks_listen: SocketAddr,
    /// How the relay names the suite's control plane, if it reaches it in another way than by the address
    /// it listens on
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<Url>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is 0 if the signature fits, 1 if it does not, 2 if the file is no signed report, 4 if
there is no such file, and 6 if another key than --key signed it. It is 0 also for a report of checks
that failed: read what it says.

Examples:
  bowline conformance verify report.json
  bowline conformance verify report.json --key SHA256:0A:1B:…
  bowline conformance verify report.json --json")]
pub(crate) struct VerifyArgs {
    /// The file that --report has written
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The key that has to have signed it, or its fingerprint
    #[arg(long, value_name = "PUBLIC_KEY")]
    pub(crate) key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
#[command(after_help = "\
The server under test has to use the suite's model as its upstream: start it with the address that is
printed. Without that, name a model of the server's own with --model; checks that need the suite's
are not run then. Levels are cumulative. For L6 the suite brings gateways of its own, and prints how the
server is told of them. The exit code is 1 if a check failed.

Examples:
  bowline conformance --url http://127.0.0.1:9000 --level L5
  bowline conformance --url https://host --model gpt-4o --only SBP-L2-06,SBP-L3
  bowline conformance --url http://127.0.0.1:9000 --restart-command './restart.sh' --junit sbp.xml
  bowline conformance --url http://127.0.0.1:9000 --report report.json --badge sbp.svg
  bowline conformance relay --url ws://127.0.0.1:8090
  bowline conformance --url http://127.0.0.1:9000 --level L6
  bowline conformance --list --level L2")]
pub(crate) struct ConformanceArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConformanceCommand>,
    /// The server's address, with or without /v1
    #[arg(long, value_name = "URL", required_unless_present = "list")]
    pub(crate) url: Option<Url>,
    /// A file with the server's API key, if it needs one [default: the key in BOWLINE_API_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The server's API key: an old spelling of --key-file
    #[arg(long, value_name = "KEY", hide = true)]
    pub(crate) key: Option<String>,
    /// Send the API key without TLS to another machine, such as in a network of containers
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Check this level and those before it: L1 to L6
    #[arg(long, value_name = "LEVEL", default_value = "L5")]
    pub(crate) level: Level,
    /// Check only these requirements, such as SBP-L2-06, or levels, such as SBP-L2
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// List the checks, and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Have this model of the server's own answer, in place of the suite's
    #[arg(long, value_name = "MODEL", conflicts_with = "upstream_listen")]
    pub(crate) model: Option<String>,
    /// Where the suite's model listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8099")]
    pub(crate) upstream_listen: SocketAddr,
    /// How the server under test reaches the suite's model, if it is not by the address it listens on
    #[arg(long, value_name = "URL", conflicts_with = "model")]
    pub(crate) upstream_url: Option<Url>,
    /// Where the suite's gateway listens, for L6: a peer and a tracker of the server under test
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8098")]
    pub(crate) peer_listen: SocketAddr,
    /// How the server under test reaches the suite's gateway, if it is not by the address it listens on
    #[arg(long, value_name = "URL")]
    pub(crate) peer_url: Option<Url>,
    /// Also check what survives a restart: a shell command that ends the server by the signal in
    /// RESTART (kill or stop), and starts it again with the same data and address
    #[arg(long, value_name = "COMMAND")]
    pub(crate) restart_command: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
