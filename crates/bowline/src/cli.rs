//! What can be typed.

pub(crate) mod control;
pub(crate) mod mcp;
pub(crate) mod relay;
pub(crate) mod relay_ends;
pub(crate) mod roaming;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Keeps an AI agent's session alive: it survives every disconnect, crash and device change.
#[derive(Debug, Parser)]
#[command(
    name = "bowline",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  bowline up                            start everything, with a built-in offline agent
  bowline chat                          talk; leave at any time, nothing is lost
  bowline chat --last                   come back to where you were
  bowline up --upstream https://host/v1 --upstream-key-env OPENAI_API_KEY --model gpt-4o"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the gateway with friendly defaults and say what to do next
    Up(ServeArgs),
    /// Start the gateway, for scripts and services
    Gateway(ServeArgs),
    /// Talk to an agent; come back at any time from any terminal
    Chat(ChatArgs),
    /// Look at sessions, end them, remove them
    Sessions(SessionsArgs),
    /// Pack a session: a token for this gateway, or a file for any other
    Export(roaming::ExportArgs),
    /// Import a session: by token, from a bundle, or from another product's export
    Import(roaming::ImportArgs),
    /// Look at a token or a file without using it up
    Inspect(roaming::InspectArgs),
    /// Let another agent go on with a session
    Handoff(roaming::HandoffArgs),
    /// Begin a second session where another one is, or was
    Fork(roaming::ForkArgs),
    /// Show where a session comes from and what became of it
    Lineage(roaming::LineageArgs),
    /// Use MCP servers, and be one for Claude Desktop and other hosts
    Mcp(mcp::McpArgs),
    /// Run the control plane of a relay, or change who may use it
    Control(control::ControlArgs),
    /// Pass sealed frames between clients and daemons, without being able to read them
    Relay(relay::RelayArgs),
    /// Make one address of this machine reachable through a relay, encrypted end to end
    Daemon(relay_ends::DaemonArgs),
    /// Connect to a daemon: forward a local port to it, or measure round trips
    Connect(relay_ends::ConnectArgs),
    /// List your daemons
    Daemons(relay_ends::DaemonsArgs),
    /// Show the settings in force and where each comes from
    Config(ConfigArgs),
    /// Check data folder, database, upstreams, clock and limits
    Doctor(DoctorArgs),
    /// Make an API key, or change the key that signs roaming tokens
    Keys(KeysArgs),
    /// Measure the gateway against bare servers in the same run
    Bench(BenchArgs),
}

/// Where settings come from, besides file and environment.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SettingArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The data folder
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where to listen
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) tls: tls::TlsArgs,
    /// An OpenAI-compatible server for every model
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,
    /// The environment variable that holds the upstream's key
    #[arg(long, value_name = "NAME", requires = "upstream")]
    pub(crate) upstream_key_env: Option<String>,
    /// The model for chats that name none
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Allow a public address without API keys
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bowline up
  bowline up --listen 127.0.0.1:9000 --data ./data
  bowline gateway --listen 127.0.0.1:8080 --data /var/lib/bowline --upstream http://localhost:11434/v1")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Print one line of JSON when ready, instead of a welcome
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which gateway to talk to.
#[derive(Debug, Clone, Args)]
pub(crate) struct GatewayArgs {
    /// The gateway's address; found by itself when it runs on this machine
    #[arg(long, value_name = "URL", env = "BOWLINE_URL")]
    pub(crate) url: Option<url::Url>,
    /// An API key of the gateway
    #[arg(long, value_name = "KEY", env = "BOWLINE_API_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,
    /// The data folder of a gateway on this machine
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
While chatting:
  /back     show earlier messages      /cancel   stop the running answer
  /session  show this session's id     /quit     leave (the agent goes on)

Examples:
  bowline chat
  bowline chat --session 0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f
  bowline chat --last --device phone
  bowline chat --read-folder ~/notes --allow-run
  bowline chat --message 'count to 5'
  echo 'count to 5' | bowline chat --json")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// Go on with this session
    #[arg(long, value_name = "ID", conflicts_with = "last")]
    pub(crate) session: Option<String>,
    /// Go on with the newest session
    #[arg(long)]
    pub(crate) last: bool,
    /// The session's token, if you have no API key of the gateway
    #[arg(long, value_name = "TOKEN", env = "BOWLINE_SESSION_TOKEN", hide_env_values = true)]
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
    /// Let the agent run commands; you are asked about each
    #[arg(long)]
    pub(crate) allow_run: bool,
    /// Send this message, print the answer and exit
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Print events as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What kind of surface a chat is.
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
        /// Only sessions in this state
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// The most to show
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a session and its newest messages
    #[command(
        after_help = "Example:\n  bowline sessions show 0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f"
    )]
    Show {
        #[command(flatten)]
        gateway: GatewayArgs,
        id: String,
        /// How many messages to show
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=500))]
        messages: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a session: it stays readable and takes no more turns
    #[command(after_help = "Example:\n  bowline sessions end 0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f")]
    End {
        #[command(flatten)]
        gateway: GatewayArgs,
        id: String,
        /// Mark it as failed instead of completed
        #[arg(long)]
        failed: bool,
    },
    /// Remove sessions and all they hold, for good
    #[command(after_help = "Example:\n  bowline sessions rm 0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f")]
    Rm {
        #[command(flatten)]
        gateway: GatewayArgs,
        #[arg(required = true, num_args = 1..)]
        ids: Vec<String>,
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
    #[command(after_help = "Example:\n  BOWLINE_LIMITS_DRAIN=5s bowline config show")]
    Show {
        #[command(flatten)]
        settings: SettingArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bowline doctor --json")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a random key, and show it with the line for the configuration file
    #[command(after_help = "Example:\n  bowline keys new")]
    New {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Sign roaming tokens with a new key; tokens already issued stay valid until they expire
    #[command(after_help = "Example:\n  bowline keys rotate")]
    Rotate {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// A gateway on this machine, durable, with the load generator beside it
    #[command(after_help = "\
Each figure is compared with a bare server that does the same without a gateway, in the same run
on the same cores. Use a release build.

Examples:
  bowline bench gateway
  bowline bench gateway --json --seconds 5
  bowline bench gateway --only attach,drain
  bowline bench gateway --only ready --large")]
    Gateway {
        /// How long each load runs
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Only these parts: ready, http, stream, latency, attach, drain, followers, turns,
        /// idle, idle-sessions
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Also the start on a database of that size, which is written first [default: 1000]
        #[arg(long, value_name = "MB", num_args = 0..=1, default_missing_value = "1000")]
        large: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Export, import and fork of long sessions, durable, and the content id beside Python's
    #[command(after_help = "Example:\n  bowline bench roaming --json")]
    Roaming {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Tool calls to attached devices, and answers put into the form of small ones
    #[command(after_help = "\
A model calls a tool of an attached device, which answers at once. tool_call_* is the round trip as the
gateway sees it, call handed over to answer there; tool_call_vs_echo compares it with a bare WebSocket
echo of the same bytes at the same pace. tool_step_* is the whole step seen from outside, from the model's
server to the device and back: two flushes to disk are in it, and four trips over loopback.
tool_step_memory_* is the same on a store in memory; fsync_* is what the disk takes by itself.

Calls begin at fixed moments, so that latency is measured and not the machine's limit. Use a release
build.

Examples:
  bowline bench tools
  bowline bench tools --json --seconds 20
  bowline bench tools --sessions 10 --rate 50")]
    Tools {
        /// How long each load runs
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Devices that are attached, each with a session of its own
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        sessions: u32,
        /// Calls a second, of all together
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rate: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// A relay on one core, beside a bare TCP forwarder and nginx, with the generator on the other
    #[command(after_help = "\
Needs taskset and prlimit (util-linux) to keep the two apart, room for 10,200 open files, and nginx
if it is to be compared. Use a release build on a quiet machine.

Examples:
  bowline bench relay
  bowline bench relay --json --seconds 10
  bowline bench relay --only frames,latency")]
    Relay {
        /// How long each of the contestants is under load, in all
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Only these parts: frames, latency, idle, handshakes, seal
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The forwarder that the relay is compared with
    #[command(hide = true)]
    Forward {
        /// Where connections go
        #[arg(long)]
        to: SocketAddr,
    },
    /// The model's server that the others measure with
    #[command(hide = true)]
    Mock {
        /// Serve TLS, with a certificate that is made now and written to this file
        #[arg(long, value_name = "FILE")]
        tls: Option<PathBuf>,
    },
    /// The bare WebSocket echo that tool calls are compared with
    #[command(hide = true)]
    Echo,
    /// The same load against any OpenAI-compatible or SBP server
    #[command(
        after_help = "Example:\n  bowline bench compare --url http://127.0.0.1:9000 --model gpt-4o"
    )]
    Compare {
        /// The server's address, with or without /v1
        #[arg(long, value_name = "URL")]
        url: url::Url,
        /// Its API key, if it wants one
        #[arg(long, value_name = "KEY", env = "BOWLINE_API_KEY", hide_env_values = true)]
        key: Option<String>,
        /// The model to ask for
        #[arg(long, default_value = "bench")]
        model: String,
        /// How long each load runs
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
