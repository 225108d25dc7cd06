//! Arguments of `bowline mcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::GatewayArgs;

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: McpCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Show the MCP servers that agents use, their status and their tools
    #[command(after_help = "\
Asks the running gateway, which starts the servers that it has not started yet.

Example:
  bowline mcp list --json")]
    List {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Accept what an MCP server says of its tools now; until then, tools that have changed ask each time
    #[command(after_help = "Example:\n  bowline mcp accept files")]
    Accept {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The server's name, as `mcp list` shows it
        server: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the prompts of an MCP server, or fill one in and print it
    #[command(after_help = "\
Examples:
  bowline mcp prompts tickets
  bowline mcp prompts tickets triage id=42 | bowline chat --last")]
    Prompts(PromptsArgs),
    /// List the resources of an MCP server, or read one
    #[command(after_help = "\
A resource that is not text is written as it is: redirect it into a file.

Examples:
  bowline mcp resources files
  bowline mcp resources files file:///home/me/notes/today.md")]
    Resources(ResourcesArgs),
    /// Act as an MCP server for Claude Desktop and other hosts, on standard input and output
    #[command(after_help = "\
Forwards every request to the running gateway. The MCP host starts this command: see docs/mcp.md.

Examples:
  bowline mcp serve
  bowline mcp serve --url https://gateway.example
  bowline mcp serve --token-file session.token")]
    Serve {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// A file with a session's token, which limits access to that session [default: the token in
        /// BOWLINE_SESSION_TOKEN]
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// A session's token: an old spelling of --token-file
        #[arg(long, value_name = "TOKEN", hide = true)]
        token: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PromptsArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The server's name in the gateway's configuration
    pub(crate) server: String,
    /// The prompt to fill in [default: list them]
    pub(crate) prompt: Option<String>,
    /// The prompt's arguments
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResourcesArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The server's name in the gateway's configuration
    pub(crate) server: String,
    /// The resource to read [default: list them]
    pub(crate) uri: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
