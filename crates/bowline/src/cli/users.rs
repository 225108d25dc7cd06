//! Arguments of `bowline users`.

use bowline_sbp::access::{Role, Share};
use clap::{Args, Subcommand};

use super::GatewayArgs;

#[derive(Debug, Args)]
pub(crate) struct UsersArgs {
    #[command(subcommand)]
    pub(crate) command: UsersCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UsersCommand {
    /// Add a user; from the first one on, callers on this machine need a key, too
    #[command(after_help = "\
Examples:
  bowline users add ada
  bowline keys new --user ada --name laptop")]
    Add {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The user's name
        name: String,
        /// owner or member; an owner's keys may manage users
        #[arg(long, value_parser = role, default_value = "member")]
        role: Role,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List users
    #[command(after_help = "Example:\n  bowline users list --json")]
    List {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Disable a user: none of its keys opens anything any more
    #[command(after_help = "Example:\n  bowline users disable ada")]
    Disable {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The user's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Enable a user that was disabled
    #[command(after_help = "Example:\n  bowline users enable ada")]
    Enable {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The user's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Share a session with a user
    #[command(after_help = "\
Examples:
  bowline users share last --with ada
  bowline users share last --with ada --scope talk")]
    Share {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The session: its id, the beginning of one, its title, or `last`
        session: String,
        /// The user's name
        #[arg(long, value_name = "USER")]
        with: String,
        /// read, talk, or approve: also decide on its tool calls
        #[arg(long, value_parser = share, default_value = "read")]
        scope: Share,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Share a session with a user no more
    #[command(after_help = "Example:\n  bowline users unshare last --with ada")]
    Unshare {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The session: its id, the beginning of one, its title, or `last`
        session: String,
        /// The user's name
        #[arg(long, value_name = "USER")]
        with: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

fn role(text: &str) -> Result<Role, String> {
    Role::named(text).ok_or_else(|| "a role is owner or member".into())
}

fn share(text: &str) -> Result<Share, String> {
    Share::named(text).ok_or_else(|| "a scope of a share is read, talk or approve".into())
}
