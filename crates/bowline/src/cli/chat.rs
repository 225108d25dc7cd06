//! Arguments of `bowline chat`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::GatewayArgs;

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
    /// A file with a roaming token of another gateway: its session comes to this one, and the chat continues it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["session", "last", "token_file", "token"])]
    pub(crate) roaming_token_file: Option<PathBuf>,
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
