//! Arguments of `bowline backup`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    pub(crate) command: BackupCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Write a backup of the data folder to a file, also while the gateway runs
    #[command(after_help = "\
The file contains conversations and keys: who can read it can read all sessions.
It holds what was true at one instant; the gateway goes on meanwhile.

Examples:
  bowline backup create ~/backups/bowline.tar
  bowline backup create /mnt/backup/$(date +%F).tar --quiet
  bowline backup create latest.tar --force --data /var/lib/bowline")]
    Create {
        /// The file to write
        file: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
        /// The data folder
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Check every byte of a backup and say what is inside
    #[command(after_help = "\
The databases are unpacked to a private temporary folder (TMPDIR) and checked by SQLite.

Example:
  bowline backup verify ~/backups/bowline.tar")]
    Verify {
        /// The backup
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Restore a backup into a new or empty data folder
    #[command(after_help = "\
Stop the gateway whose backup it is, if it still runs: two gateways with the same sessions drift apart.

Examples:
  bowline backup restore bowline.tar --data ~/.local/share/bowline
  bowline up --data ~/.local/share/bowline")]
    Restore {
        /// The backup
        file: PathBuf,
        /// The data folder; created if it is missing
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing but errors
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
}
