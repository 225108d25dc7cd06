//! Arguments of `bowline usage` and `bowline audit`.

use std::time::Duration;

use clap::Args;

use super::GatewayArgs;
use super::keys::life;

#[derive(Debug, Args)]
#[command(after_help = "\
A day is a UTC day. With the scope `admin` all users are shown, else yourself.

Examples:
  bowline usage
  bowline usage --user ada --days 30 --json")]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// Only this user
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// How many days, today included
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=400))]
    pub(crate) days: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Newest first: who did what to which user, key or session, from where. Never what was said.

Examples:
  bowline audit --since 7d
  bowline audit --user ada --limit 20 --json")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// Only what was done since then, such as 7d or 12h ago
    #[arg(long, value_name = "DURATION", value_parser = life)]
    pub(crate) since: Option<Duration>,
    /// Only what this user did
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// The most entries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
