//! `bowline completions`: completions for a shell, from the same source as the help.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::cli::Cli;
use crate::terminal::show;

pub(crate) fn run(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "bowline", &mut script);
    show!("{}", String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
