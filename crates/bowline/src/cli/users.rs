//! Arguments of `bowline users`.

use bowline_sbp::access::{Role, Share};
use bowline_sbp::budget::{BadLimit, Budget, OwnLimits};
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
        /// A limit of its own, such as tokens=2M/d or stored=500MB; may be repeated [default: those of
        /// the configuration]
        #[arg(long = "limit", value_name = "LIMIT")]
        limits: Vec<OwnLimits>,
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
    /// Change the limits of a user
    #[command(after_help = "\
Limits: requests=60/m (a minute), turns=4 (at once), tokens=2M/d and usd=5/d (a UTC day), stored=500MB,
exports=10/d. `none` is no limit; `default` goes back to what the configuration says.

Examples:
  bowline users limit ada tokens=2M/d usd=5/d
  bowline users limit ada tokens=none stored=default")]
    Limit {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The user's name
        name: String,
        /// The limits to change
        #[arg(value_name = "LIMIT", required = true, value_parser = limit_change)]
        limits: Vec<LimitChange>,
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

/// One limit that is set, or goes back to its default.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LimitChange {
    Set(OwnLimits),
    Default(Budget),
}

fn limit_change(text: &str) -> Result<LimitChange, String> {
    if let Some(name) = text.strip_suffix("=default")
        && let Some(budget) = Budget::ALL.into_iter().find(|budget| budget.as_str() == name.trim())
    {
        return Ok(LimitChange::Default(budget));
    }
    text.parse().map(LimitChange::Set).map_err(|error: BadLimit| error.to_string())
}

fn role(text: &str) -> Result<Role, String> {
    Role::named(text).ok_or_else(|| "a role is owner or member".into())
}

fn share(text: &str) -> Result<Share, String> {
    Share::named(text).ok_or_else(|| "a scope of a share is read, talk or approve".into())
}
