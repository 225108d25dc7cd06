//! `bowline man`: manual pages, from the same source as the help.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_mangen::{Man, generate_to};

use crate::cli::Cli;
use crate::failure::Failure;
use crate::terminal::{note, show};

pub(crate) fn run(out: Option<&Path>) -> Result<ExitCode, Failure> {
    match out {
        Some(folder) => {
            let failed = |error: std::io::Error| {
                Failure::new(format!("cannot write to {}: {error}", folder.display()))
                    .hint("choose another folder with --out")
            };
            std::fs::create_dir_all(folder).map_err(failed)?;
            generate_to(Cli::command(), folder).map_err(failed)?;
            note!("the pages are in {}", folder.display());
        }
        None => {
            let mut page = Vec::new();
            Man::new(Cli::command()).render(&mut page).map_err(Failure::new)?;
            show!("{}", String::from_utf8_lossy(&page));
        }
    }
    Ok(ExitCode::SUCCESS)
}
