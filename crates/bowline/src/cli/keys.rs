//! Arguments of `bowline keys`.

use std::time::Duration;

use bowline_net::duration;
use bowline_sbp::access::Scopes;
use bowline_sbp::budget::OwnLimits;
use clap::{Args, Subcommand};

use super::GatewayArgs;

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key for a user, or without --user one for the configuration file
    #[command(after_help = "\
With --user the running gateway makes the key, and it works at once. Without, a random key is printed with its
line for the configuration file; such a key is the owner's, with every scope.

Examples:
  bowline keys new --user ada --name laptop --scopes turns,read,approve --expires 90d
  bowline keys new --user ada --name bot --limit requests=60/m --limit usd=5/d
  bowline keys new")]
    New(NewKeyArgs),
    /// List users' keys; never their secrets
    #[command(after_help = "Example:\n  bowline keys list --user ada")]
    List {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Only keys of this user
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a user's key: it opens nothing from then on
    #[command(after_help = "Example:\n  bowline keys revoke 0001ab03040506ff")]
    Revoke {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The key's id, as `keys list` shows it
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the fingerprint of the key with which the gateway signs exported bundles
    #[command(after_help = "Example:\n  bowline keys identity")]
    Identity {
        #[command(flatten)]
        gateway: GatewayArgs,
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
pub(crate) struct NewKeyArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The user whose key it is; `owner` is you
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// What the key is called
    #[arg(long, default_value = "key", requires = "user")]
    pub(crate) name: String,
    /// turns, read, approve, tools, export and admin, separated by commas [default: all but admin]
    #[arg(long, requires = "user")]
    pub(crate) scopes: Option<Scopes>,
    /// How long it is valid, such as 90d or 12h [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = life, requires = "user")]
    pub(crate) expires: Option<Duration>,
    /// A pattern of agents that it may be used for; may be repeated [default: all]
    #[arg(long = "agent", value_name = "PATTERN", requires = "user")]
    pub(crate) agents: Vec<String>,
    /// A pattern of models that it may be used for; may be repeated [default: all]
    #[arg(long = "model", value_name = "PATTERN", requires = "user")]
    pub(crate) models: Vec<String>,
    /// A limit of its own: requests=60/m, turns=4, tokens=2M/d, usd=5/d, exports=10/d, or tokens=none;
    /// may be repeated [default: those of the configuration]
    #[arg(long = "limit", value_name = "LIMIT", requires = "user")]
    pub(crate) limits: Vec<OwnLimits>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A duration in days, too: keys live long.
pub(super) fn life(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.trim().parse::<u32>().ok());
    match days {
        Some(days) => Ok(Duration::from_secs(u64::from(days) * 24 * 3600)),
        None => duration::parse(text)
            .map_err(|_| format!("`{text}` is not a duration; write it like 90d, 12h or 30m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_may_be_given_in_days() {
        assert_eq!(life("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(life("12h"), Ok(Duration::from_secs(12 * 3600)));
        assert!(life("soon").unwrap_err().contains("90d"));
    }
}
