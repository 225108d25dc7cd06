//! Arguments of `bowline peers`.

use bowline_sbp::federation::{Allow, GatewayId};
use bowline_sbp::gateway_key::KeyFingerprint;
use clap::{Subcommand, ValueEnum};

use super::GatewayArgs;
use super::federation::PeerFlag;

#[derive(Debug, Subcommand)]
pub(crate) enum PeersCommand {
    /// List the gateways and trackers that this gateway knows, with the state of their keys
    #[command(after_help = "Example:\n  bowline peers list --json")]
    List {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have the gateway ask them now: whether they answer, how fast, which version, and with which key
    #[command(after_help = "\
Ends with 1 if one does not answer, or shows a key that is not accepted.

Examples:
  bowline peers check
  bowline peers check work --json")]
    Check {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Their ids [default: all that are known]
        #[arg(value_name = "ID")]
        peers: Vec<GatewayId>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Look at a gateway or tracker from here, and print the lines that name it in the configuration
    #[command(after_help = "\
A gateway that is named may have a private address and gets what its policy says. So it is named in the configuration
and nowhere else: the lines go to standard output. Compare the fingerprint with what its operator reads from
`bowline identity show`.

Examples:
  bowline peers add work=https://work.example
  bowline peers add work=https://work.example --allow all >> bowline.toml
  bowline peers add eu=https://tracker.example --tracker")]
    Add {
        /// Its id and address
        #[arg(value_name = "ID=URL")]
        peer: PeerFlag,
        /// What it may have [default: federation.allow]
        #[arg(long, value_enum, conflicts_with = "tracker")]
        allow: Option<AllowFlag>,
        /// It is a tracker
        #[arg(long)]
        tracker: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget the key of a gateway or tracker; the next one that it shows is remembered
    #[command(after_help = "\
If the configuration names it, the lines to delete are said.

Example:
  bowline peers remove work")]
    Remove {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Its id
        #[arg(value_name = "ID")]
        peer: GatewayId,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Accept the changed key of a gateway or tracker
    #[command(after_help = "\
Until then the old key counts and the new one is refused. Without the fingerprint both are shown. The new one has to be
what its operator reads from `bowline identity show`, told on another way than by that gateway itself.

Examples:
  bowline peers approve work
  bowline peers approve work SHA256:3F:…")]
    Approve {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Its id
        #[arg(value_name = "ID")]
        peer: GatewayId,
        /// The fingerprint of the new key
        fingerprint: Option<KeyFingerprint>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What a peer may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllowFlag {
    All,
    ExportedToMe,
    None,
}

impl From<AllowFlag> for Allow {
    fn from(flag: AllowFlag) -> Self {
        match flag {
            AllowFlag::All => Self::All,
            AllowFlag::ExportedToMe => Self::ExportedToMe,
            AllowFlag::None => Self::None,
        }
    }
}
