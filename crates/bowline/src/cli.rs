//! Command-line arguments of every command (clap).

pub(crate) mod approvals;
pub(crate) mod backup;
pub(crate) mod control;
pub(crate) mod devices;
pub(crate) mod keys;
pub(crate) mod mcp;
pub(crate) mod relay;
pub(crate) mod relay_ends;
pub(crate) mod roaming;
pub(crate) mod store;
pub(crate) mod tls;
pub(crate) mod usage;
pub(crate) mod users;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
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
            Command::Relay(relay::RelayCommand::Run(args)) => args.config.as_deref(),
            Command::Control(args) => args.config.as_deref(),
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
    Chat(ChatArgs),
    /// List, search, rename, show, end or delete sessions
    Sessions(SessionsArgs),
    /// Export a session: as a token for this gateway, or as a file for any other
    Export(roaming::ExportArgs),
    /// Import a session: by token, from a bundle, or from another product's export
    Import(roaming::ImportArgs),
    /// Show what a roaming token or a file contains, without consuming the token
    Inspect(roaming::InspectArgs),
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
    /// Show what users and keys have used: turns, tokens, dollars, bytes
    Usage(usage::UsageArgs),
    /// Show what was done at the gateway, and by whom
    Audit(usage::AuditArgs),
    /// Benchmark the gateway and the relay against bare servers in the same run
    Bench(BenchArgs),
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
#[command(after_help = "\
In a terminal: write below, read above. Enter sends; Ctrl-J, or a backslash before Enter, begins a
new line; what is pasted stays one message. Ctrl-C stops the answer, twice leaves; Ctrl-D leaves.
/help lists the commands. In a pipe: standard input is one message, or with --lines one a line;
the exit code is not 0 if a message was not answered.

Examples:
  bowline chat
  bowline chat --last
  bowline chat --session 'plan the trip'
  bowline chat --last --device phone
  bowline chat --via home
  bowline chat --read-folder ~/notes --allow-run
  bowline chat --message 'count to 5'
  bowline chat < question.txt
  printf 'echo one\\necho two\\n' | bowline chat --lines --json")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// Continue this session: its id, the beginning of its id, its title, or `last`
    #[arg(long, value_name = "SESSION", conflicts_with = "last")]
    pub(crate) session: Option<String>,
    /// Continue the newest session
    #[arg(long)]
    pub(crate) last: bool,
    /// A file with the session's token; needed if you have no API key of the gateway [default: the
    /// token in BOWLINE_SESSION_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The session's token: an old spelling of --token-file
    #[arg(long, value_name = "TOKEN", hide = true)]
    pub(crate) token: Option<String>,
    /// The device to act as
    #[arg(long, value_enum, default_value_t = Device::Desktop)]
    pub(crate) device: Device,
    /// The model that answers
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Offer the agent no tools of this machine (clipboard, open_url, notify)
    #[arg(long, conflicts_with_all = ["read_folder", "allow_run"])]
    pub(crate) no_tools: bool,
    /// Let the agent read text files under this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) read_folder: Option<PathBuf>,
    /// Let the agent run shell commands; each one needs your approval
    #[arg(long)]
    pub(crate) allow_run: bool,
    /// Disconnect the other devices instead of joining them
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Send this message, print the answer and exit
    #[arg(long, short, value_name = "TEXT", conflicts_with = "lines")]
    pub(crate) message: Option<String>,
    /// Read one message a line from standard input, and send them in order
    #[arg(long)]
    pub(crate) lines: bool,
    /// Print events as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The device type that a chat reports to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    Desktop,
    Phone,
    Watch,
    Voice,
    Browser,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: SessionsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, newest first
    #[command(after_help = "Example:\n  bowline sessions list --status suspended --json")]
    List {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Only sessions with this status of the protocol: idle, running, suspended, completed or
        /// failed
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// The maximum number of sessions to show
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Search in what you and the agents said
    #[command(after_help = "\
All words must occur in one message, in any order. `word*` finds all words that begin so.

Examples:
  bowline sessions search kyoto hotel
  bowline sessions search 'book*' --json")]
    Search {
        #[command(flatten)]
        gateway: GatewayArgs,
        #[arg(required = true, num_args = 1..)]
        words: Vec<String>,
        /// The maximum number of messages to show
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
        limit: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a session a title
    #[command(after_help = "\
Examples:
  bowline sessions rename last Trip to Kyoto
  bowline sessions rename 0191f2c0 ''            back to the automatic title")]
    Rename {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The session's id, the beginning of its id, its title, or `last`
        session: String,
        /// The new title, at most 120 characters; empty for the automatic one
        #[arg(required = true, num_args = 1..)]
        title: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a session and its newest messages
    #[command(
        after_help = "Examples:\n  bowline sessions show last\n  bowline sessions show 'trip to kyoto'"
    )]
    Show {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The session's id, the beginning of its id, its title, or `last`
        session: String,
        /// How many messages to show
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=500))]
        messages: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a session: it stays readable and takes no more turns
    #[command(after_help = "Example:\n  bowline sessions end 0191f2c0")]
    End {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The session's id, the beginning of its id, its title, or `last`
        session: String,
        /// Mark it as failed instead of completed
        #[arg(long)]
        failed: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace or revoke a session's token; what was attached with it is disconnected
    #[command(after_help = "Examples:\n  bowline sessions token last --rotate\n  \
                      bowline sessions token 0191f2c0 --revoke")]
    Token {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The session's id, the beginning of its id, its title, or `last`
        session: String,
        /// Make a new token and print it
        #[arg(long, required_unless_present = "revoke", conflicts_with = "revoke")]
        rotate: bool,
        /// Leave the session without a token: only its user's keys and devices open it
        #[arg(long)]
        revoke: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete sessions and all their data; this cannot be undone
    #[command(after_help = "Example:\n  bowline sessions rm 0191f2c0 0191f2c1")]
    Rm {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Ids, beginnings of ids, titles, or `last`
        #[arg(required = true, num_args = 1..)]
        sessions: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
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

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Benchmark a gateway on this machine, writing to disk, with a load generator beside it
    #[command(after_help = "\
Each figure is compared with a bare server that does the same work without a gateway, in the same
run on the same cores. Use a release build.

Examples:
  bowline bench gateway
  bowline bench gateway --json --seconds 5
  bowline bench gateway --only attach,drain
  bowline bench gateway --only ready --large")]
    Gateway {
        /// How many seconds each load runs
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Run only these parts: align, ready, http, stream, latency, attach, drain, followers,
        /// turns, idle, idle-sessions
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Also measure the start on a database of this size, written first [default: 1000]
        #[arg(long, value_name = "MB", num_args = 0..=1, default_missing_value = "1000")]
        large: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark export, import and fork of long sessions, and the content id against Python's
    #[command(after_help = "Example:\n  bowline bench roaming --json")]
    Roaming {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark tool calls to attached devices, and answers adapted to small devices
    #[command(after_help = "\
A model calls a tool of an attached device, which answers at once. tool_call_* is the round trip as
the gateway sees it, from sending the call to receiving the answer; tool_call_vs_echo compares it
with a bare WebSocket echo of the same bytes at the same rate. tool_step_* is the whole step seen
from outside, from the model's server to the device and back: it includes two flushes to disk and
four trips over loopback. tool_step_memory_* is the same with an in-memory store; fsync_* is one
flush alone.

Calls begin at fixed times, so that latency is measured and not the machine's limit. Use a release
build.

Examples:
  bowline bench tools
  bowline bench tools --json --seconds 20
  bowline bench tools --sessions 10 --rate 50")]
    Tools {
        /// How many seconds each load runs
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Attached devices, each with its own session
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        sessions: u32,
        /// Calls per second, over all sessions
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rate: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what keys cost, and what users get done while others flood the gateway
    #[command(after_help = "\
The flood: 2,000 connections that never read, 200 bodies that do not end, 100 wrong keys a second.
Needs a limit of at least 3,000 open files. Use a release build on a quiet machine.

Examples:
  bowline bench access
  bowline bench access --json --seconds 20")]
    Access {
        /// How many seconds each load runs
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark a relay on one core against a bare TCP forwarder and nginx
    #[command(after_help = "\
The server under test runs on one core, the load generator on another. Needs taskset and prlimit
(util-linux), a limit of at least 10,200 open files, and nginx if it is to be compared. Use a
release build on a quiet machine.

Examples:
  bowline bench relay
  bowline bench relay --json --seconds 10
  bowline bench relay --only frames,latency")]
    Relay {
        /// How many seconds each server is under load, in total
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Run only these parts: frames, latency, idle, handshakes, seal, reach, tunnel
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Benchmark two gateways on PostgreSQL and Redis, which it starts itself
    #[command(after_help = "\
Needs the programs of PostgreSQL and Redis; on Debian: apt-get install postgresql redis-server

Examples:
  bowline bench replicas
  bowline bench replicas --json --only turns,takeover")]
    Replicas {
        /// How many seconds the load runs, in total
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=120))]
        seconds: u64,
        /// Run only these parts: turns, tokens, tools, takeover, restart, copy
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The forwarder that the relay is compared with
    #[command(hide = true)]
    Forward {
        /// The address to forward connections to
        #[arg(long)]
        to: SocketAddr,
        /// Seal what is forwarded, and open what comes back
        #[arg(long, conflicts_with = "open")]
        seal: bool,
        /// Open what is forwarded, and seal what comes back
        #[arg(long)]
        open: bool,
    },
    /// The mock model server that the other benchmarks use
    #[command(hide = true)]
    Mock {
        /// Serve TLS with a new self-signed certificate, which is written to this file
        #[arg(long, value_name = "FILE")]
        tls: Option<PathBuf>,
    },
    /// The bare WebSocket echo that tool calls are compared with
    #[command(hide = true)]
    Echo,
    /// Run the same load against any OpenAI-compatible or SBP server
    #[command(
        after_help = "Example:\n  bowline bench compare --url http://127.0.0.1:9000 --model gpt-4o"
    )]
    Compare {
        /// The server's address, with or without /v1
        #[arg(long, value_name = "URL")]
        url: url::Url,
        /// A file with the server's API key, if it needs one [default: the key in BOWLINE_API_KEY]
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// The server's API key: an old spelling of --key-file
        #[arg(long, value_name = "KEY", hide = true)]
        key: Option<String>,
        /// The model to request
        #[arg(long, default_value = "bench")]
        model: String,
        /// How many seconds each load runs
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[cfg(test)]
mod tests;
