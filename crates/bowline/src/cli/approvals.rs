//! Arguments of `bowline approvals`.

use clap::{Args, Subcommand};

use super::GatewayArgs;

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    pub(crate) command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the tool calls that wait for a yes or no, in all your sessions
    #[command(after_help = "Example:\n  bowline approvals list --json")]
    List {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say yes to a tool call
    #[command(after_help = "Examples:\n  bowline approvals approve 0191f2c0\n  \
                      bowline approvals approve 0191f2c0 --always")]
    Approve {
        #[command(flatten)]
        decide: DecideArgs,
        /// Also allow later calls of this tool by the same device in the session, as long as the tool's
        /// definition stays the same
        #[arg(long)]
        always: bool,
    },
    /// Say no to a tool call
    #[command(after_help = "Example:\n  bowline approvals deny 0191f2c0")]
    Deny(DecideArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The approval's id, or the end or beginning of it, as `approvals list` shows it
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
