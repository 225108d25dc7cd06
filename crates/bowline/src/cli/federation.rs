//! The flags with which a gateway takes part in a federation, and arguments of `bowline identity`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bowline_net::duration;
use bowline_sbp::federation::{BaseUrl, GatewayId};
use clap::{Args, Subcommand};

/// Whether other gateways know this one, and which ones it knows.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FederationFlags {
    /// Let sessions move to and from other gateways; takes --gateway-id
    #[arg(long)]
    pub(crate) federation: bool,
    /// This gateway's id among the others, such as `home`; it never changes
    #[arg(long, value_name = "ID")]
    pub(crate) gateway_id: Option<GatewayId>,
    /// Another gateway, by its id and address; only such ones may have private addresses; repeatable
    #[arg(long, value_name = "ID=URL")]
    pub(crate) peer: Vec<PeerFlag>,
    /// A tracker, by its id and address: it is asked for gateways that are not named, and told of exports
    /// with --announce; repeatable
    #[arg(long, value_name = "ID=URL")]
    pub(crate) tracker: Vec<PeerFlag>,
    /// Be a tracker, too: keep a registry of what other gateways export; takes --federation. A tracker for
    /// everybody should be a process of its own: `bowline tracker run`
    #[arg(long)]
    pub(crate) also_tracker: bool,
}

/// `b=https://b.example`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerFlag {
    pub(crate) id: GatewayId,
    pub(crate) url: BaseUrl,
}

impl FromStr for PeerFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, url) =
            text.split_once('=').ok_or("write it as ID=URL, like b=https://b.example")?;
        let id = id.parse().map_err(|error| format!("`{id}`: {error}"))?;
        let url = url.parse().map_err(|error| format!("`{url}`: {error}"))?;
        Ok(Self { id, url })
    }
}

#[derive(Debug, Args)]
pub(crate) struct IdentityArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The data folder
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data: Option<PathBuf>,
    /// The database of replicas, which have their key in there [default: the one of the settings]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) store: Option<String>,
    /// The key of this machine's tracker, not of its gateway
    #[arg(long, global = true, conflicts_with = "store")]
    pub(crate) tracker: bool,
    #[command(subcommand)]
    pub(crate) command: IdentityCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IdentityCommand {
    /// Show the key of this machine's gateway, by which others know it
    #[command(after_help = "\
Examples:
  bowline identity show
  bowline identity show --store postgres://bowline@db.example/bowline --json
  bowline identity show --tracker")]
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace the key; gateways that know the old one accept the new one for some time
    #[command(after_help = "\
The old key signs that the new one is this gateway's, and the manifest shows that until the overlap ends. A gateway that
looks at it in that time follows by itself; one that does not has to be told the new key. Restart the gateway
afterwards: a running one goes on with the old key. Replicas on PostgreSQL take the new one while they run; the
command needs the settings that they have: the database, and secrets.file or secrets.command.

Examples:
  bowline identity rotate --gateway-id home
  bowline identity rotate --overlap 7d --json
  BOWLINE_SECRETS_FILE=/etc/bowline/secrets.key \\
      bowline identity rotate --store postgres://bowline@db.example/bowline --gateway-id home
  bowline identity rotate --tracker --data /var/lib/bowline-tracker --gateway-id tracker-eu")]
    Rotate {
        /// This gateway's id [default: federation.gateway_id of the settings, or tracker.id]
        #[arg(long, value_name = "ID")]
        gateway_id: Option<GatewayId>,
        /// For how long the old key leads to the new one
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration::parse)]
        overlap: Duration,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_an_id_and_an_address() {
        let peer: PeerFlag = "b.1=https://b.example/sbp/".parse().unwrap();
        assert_eq!((peer.id.as_str(), peer.url.as_str()), ("b.1", "https://b.example/sbp"));
        for wrong in ["", "b", "=https://b.example", "B=https://b.example", "b=b.example"] {
            assert!(wrong.parse::<PeerFlag>().is_err(), "{wrong}");
        }
    }
}
