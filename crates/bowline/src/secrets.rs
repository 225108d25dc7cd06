//! Keys and tokens from files.
//!
//! A secret comes from a file or from the environment. Never from a command line, which other users
//! of the machine can see and which shells keep in their history.

use std::path::Path;

use crate::failure::{Failure, Kind};

/// The secret in a file, without the space around it. `flag` named the file.
pub(crate) fn from_file(file: &Path, flag: &str) -> Result<String, Failure> {
    let wrong = |what: String| Failure::new(what).hint(format!("check {flag}")).kind(Kind::Usage);
    let text = std::fs::read_to_string(file)
        .map_err(|error| wrong(format!("cannot read {}: {error}", file.display())))?;
    match text.trim() {
        "" => Err(wrong(format!("{} is empty", file.display()))),
        secret => Ok(secret.to_owned()),
    }
}
