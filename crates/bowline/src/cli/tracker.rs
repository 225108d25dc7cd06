//! Arguments of `bowline tracker`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bowline_net::listen;
use bowline_sbp::federation::{BaseUrl, GatewayId};
use clap::{Args, Subcommand};

use super::tls::{PathArgs, TlsArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum TrackerCommand {
    /// Run a tracker until SIGTERM, Ctrl-C or SIGHUP
    Run(Box<TrackerArgs>),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A tracker knows which gateway has which exported bundle, and signs what it answers. It sees no
content: gateways announce content ids, and it verifies each gateway's key at its own address.

Examples:
  bowline tracker run
  bowline tracker run --id tracker-eu --listen 0.0.0.0:443 --url https://tracker.example \\
      --tls-cert /etc/bowline/cert.pem --tls-key /etc/bowline/key.pem
  bowline tracker run --listen 10.0.0.5:8092 --url https://tracker.example --behind-proxy 10.0.0.4
  bowline tracker run --peer home=http://127.0.0.1:8080 --peer office=https://10.0.0.7 --only-peers")]
pub(crate) struct TrackerArgs {
    /// The configuration file; its section is [tracker], and flags win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder of its key and its records [default: `tracker` in bowline's data folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Where to listen: HOST:PORT, localhost:PORT, or :PORT for every address of this machine
    /// [default: 127.0.0.1:8092]
    #[arg(long, value_name = "ADDR", value_parser = listen::parse)]
    pub(crate) listen: Option<SocketAddr>,
    /// What gateways call it: 1 to 64 of a-z, 0-9, `.`, `_` and `-` [default: tracker]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<GatewayId>,
    /// A name for people, in its manifest
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Where gateways reach it [default: the address it listens on]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<BaseUrl>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// A gateway that is asked for its key at this address, which may be private; repeatable
    #[arg(long, value_name = "ID=URL", value_parser = peer)]
    pub(crate) peer: Vec<(GatewayId, BaseUrl)>,
    /// Take announcements of the named peers alone
    #[arg(long)]
    pub(crate) only_peers: bool,
    /// The maximum number of records [default: 5000000]
    #[arg(long, value_name = "N")]
    pub(crate) records: Option<u64>,
    /// The maximum number of records of one gateway [default: 100000]
    #[arg(long, value_name = "N")]
    pub(crate) records_per_gateway: Option<u64>,
    /// Print one line of JSON when ready
    #[arg(long)]
    pub(crate) json: bool,
}

fn peer(text: &str) -> Result<(GatewayId, BaseUrl), String> {
    let (id, url) = text.split_once('=').ok_or("write it like home=https://gateway.example")?;
    let id = id.parse().map_err(|error| format!("{error}"))?;
    let url = url.parse().map_err(|error| format!("{error}"))?;
    Ok((id, url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_an_id_and_an_address() {
        let (id, url) = peer("home=http://127.0.0.1:8080/").unwrap();
        assert_eq!((id.as_str(), url.as_str()), ("home", "http://127.0.0.1:8080"));
        for wrong in ["", "home", "home=", "=https://a.example", "Home=https://a.example", "a=b"] {
            assert!(peer(wrong).is_err(), "{wrong}");
        }
    }
}
