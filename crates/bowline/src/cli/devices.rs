//! Arguments of `bowline pair`, `bowline devices` and `bowline login`.

use std::path::PathBuf;

use bowline_sbp::access::Scopes;
use bowline_sbrp::peer;
use clap::{Args, Subcommand};
use url::Url;

#[derive(Debug, Args)]
#[command(after_help = "\
On the machine to be reached, where `bowline up --relay` or `bowline daemon run` runs, it shows a code,
which is valid for five minutes and for one device. The other device takes it with --accept; it knows
the daemon's key from the code, so that nobody in between can take the daemon's place.

Examples:
  bowline pair
  bowline pair --user bob --scopes turns,read
  bowline pair --service ssh                       only this target of `bowline daemon run`
  bowline pair --accept --name home                asks for the text
  bowline pair --accept bowline-pair:AQcH…
  bowline pair --accept - < code.txt")]
pub(crate) struct PairArgs {
    /// The user of the gateway whom the device is to belong to [default: the owner]
    #[arg(long, value_name = "NAME", conflicts_with = "accept")]
    pub(crate) user: Option<String>,
    /// What the device may be used for: turns, read, approve, tools, export, admin [default: all but
    /// admin]
    #[arg(long, value_name = "LIST", conflicts_with = "accept")]
    pub(crate) scopes: Option<Scopes>,
    /// A target of the daemon that the device may use; repeatable [default: all]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["accept", "user", "scopes"])]
    pub(crate) service: Vec<String>,
    /// Pair this device by the text that the other machine shows; without TEXT it is asked for, `-` reads
    /// it from standard input
    #[arg(long, value_name = "TEXT", num_args = 0..=1)]
    pub(crate) accept: Option<Option<String>>,
    /// What to call the daemon here [default: its own name]
    #[arg(long, value_name = "NAME", requires = "accept", value_parser = name)]
    pub(crate) name: Option<String>,
    /// Let the name stand for this daemon, although it stood for another
    #[arg(long, requires = "name")]
    pub(crate) replace: bool,
    /// What the daemon is to call this device [default: the name of this machine]
    #[arg(long, value_name = "NAME", requires = "accept")]
    pub(crate) device_name: Option<String>,
    /// The data folder
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DevicesCommand {
    /// List the devices that are paired with the gateway or daemon of this machine
    #[command(after_help = "Example:\n  bowline devices list --json")]
    List {
        /// The data folder
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a device, for example a lost phone. It is cut off within seconds
    #[command(after_help = "Example:\n  bowline devices revoke phone")]
    Revoke {
        /// The device's id or name
        device: String,
        /// The data folder
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Asks for your API key of the control plane, checks it and stores it in the data folder, readable by you
alone. In a pipe the key is read from standard input.

Examples:
  bowline login https://control.example.org
  bowline login https://control.example.org < key.txt")]
pub(crate) struct LoginArgs {
    /// The control plane's address
    pub(crate) control: Url,
    /// The data folder
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses what a daemon is to be called on this device.
fn name(text: &str) -> Result<String, String> {
    match peer::is_name(text) && !text.starts_with('-') {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a name has 1 to {} bytes that can be seen, and does not begin with `-`",
            peer::LONGEST_NAME
        )),
    }
}
