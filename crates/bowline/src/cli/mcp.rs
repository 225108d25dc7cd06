//! What can be typed about MCP.

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
    /// Be an MCP server for Claude Desktop and other hosts, on standard input and output
    #[command(after_help = "\
Passes everything on to the running gateway. A host starts it; docs/mcp.md says how.

Examples:
  bowline mcp serve
  bowline mcp serve --url https://gateway.example
  BOWLINE_SESSION_TOKEN=sbt_… bowline mcp serve")]
    Serve {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// A session's token: only that session is reached
        #[arg(long, value_name = "TOKEN", env = "BOWLINE_SESSION_TOKEN", hide_env_values = true)]
        token: Option<String>,
    },
}
