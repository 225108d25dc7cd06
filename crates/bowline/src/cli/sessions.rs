//! Arguments of `bowline sessions`.

use clap::{Args, Subcommand};

use super::GatewayArgs;

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
