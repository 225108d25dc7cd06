//! Arguments of `bowline export`, `import`, `inspect`, `handoff`, `fork` and `lineage`.

use std::path::PathBuf;

use bowline_sbp::federation::GatewayId;
use bowline_sbp::gateway_key::KeyFingerprint;
use clap::Args;

use super::GatewayArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Without --out the bundle stays on the gateway, and the printed token imports it there, once.

Examples:
  bowline export last > trip.token
  bowline export 0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f --label 'before the flight' --ttl 7d
  bowline export last --out trip.sbp.json")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The session's id, the beginning of its id, its title, or `last`
    pub(crate) session: String,
    /// A name for the bundle
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// How long the token is valid: 60s to 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = seconds)]
    pub(crate) ttl: u32,
    /// Write the bundle to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Leave out what the agent remembers: needed if another user of the gateway is to import it
    #[arg(long)]
    pub(crate) without_memory: bool,
    /// The gateway that it is for, by its id: that one may fetch the bundle, with what the agent
    /// remembers
    #[arg(long = "for", value_name = "GATEWAY")]
    pub(crate) for_gateway: Option<GatewayId>,
    /// Tell the gateway's trackers who has the bundle: the token leads here even if this gateway has
    /// another address by then. Trackers learn the content id, and nothing of what is in it
    #[arg(long)]
    pub(crate) announce: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The format of a file is detected from its content: an SBP bundle, a ChatGPT `conversations.json`,
OpenAI-style messages (JSON or JSONL), a Letta agent file (.af). What cannot be imported is listed.
Each conversation of another product's file is imported once: the same file again within 24 hours
(`limits.key_memory`) gives the same sessions. For a second copy use `bowline fork`.

Examples:
  bowline import trip.sbp.json
  bowline import --token-file trip.token --agent booking
  bowline import --token-file trip.token --fork     the token stays valid
  bowline import trip.sbp.json --with-memory --require-signature
  bowline import conversations.json --dry-run")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// A file, or `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "token_file")]
    pub(crate) source: Option<String>,
    /// A file with a roaming token, or `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    pub(crate) token_file: Option<PathBuf>,
    /// The agent of the new session [default: the bundle's agent]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Import a copy; the token stays valid
    #[arg(long)]
    pub(crate) fork: bool,
    /// Add the bundle's memory to the memory of the agent, which is yours; without this it only
    /// travels with the session
    #[arg(long)]
    pub(crate) with_memory: bool,
    /// Refuse a bundle that is not signed by a gateway, or not by the one with this fingerprint
    #[arg(long, value_name = "FINGERPRINT", num_args = 0..=1, require_equals = true)]
    pub(crate) require_signature: Option<Option<KeyFingerprint>>,
    /// Only print what would be imported
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bowline inspect trip.sbp.json
  bowline inspect --token-file trip.token")]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// A file, or `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "token_file")]
    pub(crate) source: Option<String>,
    /// A file with a roaming token, or `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Takes a session of one gateway to another one: both must take part in a federation, and the other one must reach this one.
The session is at one of them at every moment. If something fails, it says at which; the same command again goes on.

Examples:
  bowline move last --to https://other.example --to-key-file other.key
  BOWLINE_TO_KEY=… bowline move 'plan the trip' --to https://other.example")]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The session's id, the beginning of its id, its title, or `last`
    pub(crate) session: String,
    /// The address of the gateway that it goes to
    #[arg(long, value_name = "URL")]
    pub(crate) to: url::Url,
    /// A file with an API key of that gateway [default: the key in BOWLINE_TO_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) to_key_file: Option<PathBuf>,
    /// The agent of the session there [default: the one that it has]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Leave out what the agent remembers
    #[arg(long)]
    pub(crate) without_memory: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  bowline handoff last --to booking --message 'The itinerary is approved. Book the flights.'")]
pub(crate) struct HandoffArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The session's id, the beginning of its id, its title, or `last`
    pub(crate) session: String,
    /// The agent that continues the session
    #[arg(long, value_name = "AGENT")]
    pub(crate) to: String,
    /// A message to that agent
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// The reason for the handoff
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bowline fork last --label 'plan B'
  bowline fork 0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f --at-step 3")]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The session's id, the beginning of its id, its title, or `last`
    pub(crate) session: String,
    /// Fork after this many steps, instead of at the present end
    #[arg(long, value_name = "N")]
    pub(crate) at_step: Option<u64>,
    /// A name for the fork
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bowline lineage last
  bowline lineage last --svg > lineage.svg
  bowline lineage last --dot | dot -Tpng > lineage.png")]
pub(crate) struct LineageArgs {
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    /// The session's id, the beginning of its id, its title, or `last`
    pub(crate) session: String,
    /// Print a Graphviz graph
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
    /// Print a picture (SVG)
    #[arg(long, conflicts_with_all = ["json", "dot"])]
    pub(crate) svg: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a whole number with a unit, such as `24h`, into seconds.
fn seconds(text: &str) -> Result<u32, String> {
    let form = || "write it like 60s, 90m, 24h or 7d".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u32 = number.parse().map_err(|_| form())?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(form()),
    };
    let seconds = number.checked_mul(unit).ok_or_else(form)?;
    match seconds {
        60..=604_800 => Ok(seconds),
        _ => Err("a token is valid for 60s to 7d".into()),
    }
}
