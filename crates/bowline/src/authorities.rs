//! Private certificate authorities that every outgoing TLS connection of the process trusts, besides this
//! system's: `--ca-file`, else `BOWLINE_CA_FILE`, else `ca_file` of the configuration file.

use bowline_net::trust::{self, BadCaFile};

use crate::cli::{Cli, Command};
use crate::failure::{Failure, FailureKind};
use crate::settings;

/// Reads the files and trusts what is in them. To be called before the first connection.
pub(crate) fn trust(cli: &Cli) -> Result<(), Failure> {
    // These connect to nobody, and have to work whatever the configuration says.
    if matches!(
        cli.command,
        Command::Config(_)
            | Command::Completions { .. }
            | Command::Man { .. }
            | Command::Help { .. }
            | Command::Backup(_)
    ) {
        return Ok(());
    }
    let files = match cli.ca_file.as_slice() {
        [] => settings::ca_files(cli.config()),
        files => files.to_vec(),
    };
    trust::add(files)
        .map_err(|error| Failure::new(error).hint(BadCaFile::HINT).kind(FailureKind::Usage))
}
