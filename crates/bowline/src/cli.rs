//! Command-line arguments (clap): all commands, and what several of them take. Those of one command
//! are in a file of its name.

pub(crate) mod approvals;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod conformance;
pub(crate) mod control;
pub(crate) mod devices;
pub(crate) mod federation;
pub(crate) mod keys;
pub(crate) mod mcp;
pub(crate) mod peers;
pub(crate) mod relay;
pub(crate) mod relay_ends;
pub(crate) mod roaming;
pub(crate) mod sessions;
pub(crate) mod store;
pub(crate) mod tls;
pub(crate) mod tracker;
pub(crate) mod usage;
pub(crate) mod users;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::shell::{quote, quote_path};

/// Keeps an AI agent's session alive: it survives every disconnect, crash and device change.
#[derive(Debug, Parser)]
#[command(
    name = "bowline",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "\
Examples:
  bowline up                            start the gateway with a built-in offline agent
  bowline chat                          chat; disconnect at any time, nothing is lost
  bowline chat --last                   continue the newest session
  bowline up --upstream https://host/v1 --upstream-key-env OPENAI_API_KEY --model gpt-4o

`bowline help` also lists topics, such as configuration, errors and exit-codes."
)]
pub(crate) struct Cli {
    /// Print no notes on stderr, only errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Also trust servers with a certificate of the authority in this PEM file; repeatable
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Vec<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The configuration file that the command was given.
    pub(crate) fn config(&self) -> Option<&Path> {
        match &self.command {
            Command::Up(args) | Command::Gateway(GatewayCommand::Run(args)) => {
                args.settings.config.as_deref()
            }
            Command::Config(ConfigArgs { command: ConfigCommand::Show { settings, .. } })
            | Command::Doctor(DoctorArgs { settings, .. }) => settings.config.as_deref(),
            Command::Store(args) => args.config.as_deref(),
            Command::Identity(args) => args.config.as_deref(),
            Command::Relay(relay::RelayCommand::Run(args)) => args.config.as_deref(),
            Command::Control(args) => args.config.as_deref(),
            Command::Tracker(tracker::TrackerCommand::Run(args)) => args.config.as_deref(),
            Command::Daemon(relay_ends::DaemonCommand::Run(args)) => args.config.as_deref(),
            _ => None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the gateway for interactive use: logs only warnings, prints what to do next
    Up(ServeArgs),
    /// Run the gateway with full logs, for scripts and services
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// Chat with an agent; reconnect at any time from any terminal
    Chat(chat::ChatArgs),
    /// List, search, rename, show, end or delete sessions
    Sessions(sessions::SessionsArgs),
    /// Export a session: as a token for this gateway, or as a file for any other
    Export(roaming::ExportArgs),
    /// Import a session: by token, from a bundle, or from another product's export
    Import(roaming::ImportArgs),
    /// Show what a roaming token or a file contains, without consuming the token
    Inspect(roaming::InspectArgs),
    /// Move a session to another gateway
    Move(roaming::MoveArgs),
    /// Hand a session over to another agent
    Handoff(roaming::HandoffArgs),
    /// Fork a session: start a second one from its present state or an earlier step
    Fork(roaming::ForkArgs),
    /// Show a session's origin, forks, handoffs, exports and cost
    Lineage(roaming::LineageArgs),
    /// List the MCP servers that agents use, or act as one for Claude Desktop and other hosts
    Mcp(mcp::McpArgs),
    /// Run the control plane of a relay, or manage its users, daemons and keys
    Control(control::ControlArgs),
    /// Run a relay: forwards encrypted frames between clients and daemons, and cannot read them
    #[command(subcommand)]
    Relay(relay::RelayCommand),
    /// Run a tracker: which gateway has which bundle, for gateways that look for one
    #[command(subcommand)]
    Tracker(tracker::TrackerCommand),
    /// Pair a device, so that it reaches this machine through a relay; or pair this device
    Pair(devices::PairArgs),
    /// List and revoke the devices that are paired with this machine
    #[command(subcommand)]
    Devices(devices::DevicesCommand),
    /// Make addresses of this machine reachable through a relay, encrypted end to end
    #[command(subcommand)]
    Daemon(relay_ends::DaemonCommand),
    /// Connect to a gateway or daemon through a relay: as a local port, or measure round trips
    Connect(relay_ends::ConnectArgs),
    /// Store your key of a relay's control plane on this machine
    Login(devices::LoginArgs),
    /// List, rename or revoke your daemons
    #[command(subcommand)]
    Daemons(relay_ends::DaemonsCommand),
    /// Back up the data folder, also while the gateway runs; verify and restore backups
    Backup(backup::BackupArgs),
    /// Prepare and check the gateway's database, or copy it to another, such as PostgreSQL
    Store(store::StoreArgs),
    /// Show the settings in force and where each comes from
    Config(ConfigArgs),
    /// Check a data folder and the gateway that runs there, upstreams, key files and the relay's files
    Doctor(DoctorArgs),
    /// List the tool calls that wait for a yes or no, and decide on them
    Approvals(approvals::ApprovalsArgs),
    /// Add, list and disable users; share sessions with them
    Users(users::UsersArgs),
    /// Create, list and revoke API keys, or rotate the key that signs roaming tokens
    Keys(keys::KeysArgs),
    /// Show or replace the key by which other gateways know this one
    Identity(federation::IdentityArgs),
    /// List, check and approve the gateways and trackers that this gateway knows
    #[command(subcommand)]
    Peers(peers::PeersCommand),
    /// Show what users and keys have used: turns, tokens, dollars, bytes
    Usage(usage::UsageArgs),
    /// Show what was done at the gateway, and by whom
    Audit(usage::AuditArgs),
    /// Benchmark the gateway and the relay against bare servers in the same run
    Bench(bench::BenchArgs),
    /// Check whether a server keeps to the protocol, ours or another: one check per requirement
    Conformance(Box<conformance::ConformanceArgs>),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  bowline completions bash > ~/.local/share/bash-completion/completions/bowline
  bowline completions zsh > ~/.zfunc/_bowline
  bowline completions fish > ~/.config/fish/completions/bowline.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command
    #[command(after_help = "\
Examples:
  bowline man | man -l -
  bowline man --out ~/.local/share/man/man1")]
    Man {
        /// Write the pages of all commands to this folder
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Show help about a command or a topic
    #[command(after_help = "\
Examples:
  bowline help
  bowline help sessions list
  bowline help exit-codes")]
    Help {
        /// A command with its verb, or a topic
        #[arg(value_name = "COMMAND OR TOPIC")]
        about: Vec<String>,
    },
}

/// Flags that override settings from the configuration file and the environment.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SettingArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The data folder
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: store::StoreFlags,
    /// Where to listen: HOST:PORT, localhost:PORT, or :PORT for every address of this machine
    #[arg(long, value_name = "ADDR", value_parser = bowline_net::listen::parse)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) tls: tls::TlsArgs,
    /// An OpenAI-compatible server for every model
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,
    /// The environment variable that holds the upstream's key
    #[arg(long, value_name = "NAME", requires = "upstream")]
    pub(crate) upstream_key_env: Option<String>,
    /// The default model, for messages that name none [default with --upstream: its first model]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A proxy in front that ends TLS, by address or network: its Forwarded and X-Forwarded-For are
    /// believed, and plain HTTP is taken from nobody else; repeatable
    #[arg(long, value_name = "NETWORK", value_parser = bowline_net::peer::parse_network)]
    pub(crate) behind_proxy: Vec<ipnet::IpNet>,
    /// Also be reachable for paired devices through this relay: the address of its control plane
    #[arg(long, value_name = "URL")]
    pub(crate) relay: Option<url::Url>,
    #[command(flatten)]
    pub(crate) federation: federation::FederationFlags,
    /// Allow a public address without TLS and without API keys
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Run the gateway until SIGTERM, Ctrl-C or SIGHUP
    #[command(after_help = "\
Examples:
  bowline gateway run --listen 127.0.0.1:8080 --data /var/lib/bowline
  bowline gateway run --upstream http://localhost:11434/v1 --json
  bowline gateway run --federation --gateway-id home --peer work=https://work.example
  bowline gateway run --store postgres://bowline@db.example/bowline --bus redis://cache.example
  BOWLINE_STORE_URL=postgres://bowline:PASSWORD@db.example/bowline bowline gateway run")]
    Run(ServeArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bowline up
  bowline up --listen localhost:9000 --data ./data
  bowline up --upstream http://localhost:11434/v1
  bowline up --relay https://relay.example.org")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Print one line of JSON when ready, instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Replace secrets that cannot be opened because secrets.file is lost. Session tokens stay valid;
    /// roaming tokens that were not used yet do not
    #[arg(long)]
    pub(crate) new_secrets: bool,
    /// Run as the protocol's public test suite needs it, for tests on this machine only: wire 0.9, a
    /// session for every call, all tools of surfaces, and an address that puts turns into a session
    #[arg(long)]
    pub(crate) certify: bool,
}

/// Which gateway to talk to.
#[derive(Debug, Clone, Args)]
pub(crate) struct GatewayArgs {
    /// The gateway's address; detected if it runs on this machine
    #[arg(long, value_name = "URL", env = "BOWLINE_URL")]
    pub(crate) url: Option<url::Url>,
    /// A gateway that this device is paired with, by its name, through its relay
    #[arg(long, value_name = "NAME", env = "BOWLINE_VIA", conflicts_with = "url")]
    pub(crate) via: Option<String>,
    /// An API key of the gateway: an old spelling of --key-file
    #[arg(long, value_name = "KEY", hide = true)]
    pub(crate) key: Option<String>,
    /// A file with an API key of the gateway [default: the key in BOWLINE_API_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The data folder of a gateway on this machine
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

impl GatewayArgs {
    /// The flags as they are written in a shell, each after a space, for commands that are printed
    /// to be copied.
    pub(crate) fn flags(&self) -> String {
        let url = self.url.as_ref().map(|url| format!(" --url {}", quote(url.as_str())));
        let file = |flag: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| format!(" --{flag} {}", quote_path(path)))
        };
        let via = self.via.as_ref().map(|name| format!(" --via {}", quote(name)));
        let flags = [url, via, file("data", &self.data), file("key-file", &self.key_file)];
        flags.into_iter().flatten().collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value, and where it comes from; secrets are masked
    #[command(after_help = "\
Examples:
  BOWLINE_LIMITS_DRAIN=5s bowline config show
  bowline config show relay_server")]
    Show {
        /// Only this section, or this setting
        #[arg(value_name = "SECTION")]
        section: Option<String>,
        #[command(flatten)]
        settings: SettingArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Asks the gateway that runs in the data folder, with the folder's key. Looks at the control plane that
BOWLINE_CONTROL names, and at the identity, pinned keys and control plane's data in the folder. Ends
with 1 if a check fails.

Examples:
  bowline doctor
  bowline doctor --data ./data --json")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests;
