//! Keys and tokens from files and from the environment.
//!
//! Never from a command line, which other users of the machine can see and which shells keep in
//! their history. The flags that took a secret are hidden; they keep working for one release, with a
//! hint on stderr.

use std::io::Read as _;
use std::path::Path;

use crate::failure::{Failure, FailureKind};
use crate::terminal::note;

/// The ways to give one secret.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ways {
    /// The hidden flag that takes the secret itself.
    flag: &'static str,
    file_flag: &'static str,
    variable: &'static str,
}

/// An API key of a gateway.
pub(crate) const API_KEY: Ways =
    Ways { flag: "--key", file_flag: "--key-file", variable: "BOWLINE_API_KEY" };
/// An API key of the gateway that a session moves to.
pub(crate) const TO_KEY: Ways =
    Ways { flag: "--to-key-file", file_flag: "--to-key-file", variable: "BOWLINE_TO_KEY" };
/// A session's token.
pub(crate) const SESSION_TOKEN: Ways =
    Ways { flag: "--token", file_flag: "--token-file", variable: "BOWLINE_SESSION_TOKEN" };

impl Ways {
    /// The secret, if one was given: by the file, else by the flag, else by the variable.
    pub(crate) fn secret(
        self,
        flag: Option<&str>,
        file: Option<&Path>,
    ) -> Result<Option<String>, Failure> {
        if let Some(file) = file {
            return from_file(file, self.file_flag).map(Some);
        }
        if let Some(secret) = flag {
            let Self { flag, file_flag, variable } = self;
            note!(
                "hint: other users of this machine can see the value of {flag}, which goes away \
                 with the next release: use {file_flag} FILE or {variable}"
            );
            return Ok(Some(secret.to_owned()));
        }
        let variable = std::env::var(self.variable).unwrap_or_default();
        Ok(Some(variable.trim().to_owned()).filter(|secret| !secret.is_empty()))
    }
}

/// The secret in a file, without the space around it; `-` is standard input. `flag` named the file.
pub(crate) fn from_file(file: &Path, flag: &str) -> Result<String, Failure> {
    let wrong =
        |what: String| Failure::new(what).hint(format!("check {flag}")).kind(FailureKind::Usage);
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(file).map(|read| text = read),
    };
    read.map_err(|error| wrong(format!("cannot read {}: {error}", file.display())))?;
    match text.trim() {
        "" => Err(wrong(format!("{} is empty", file.display()))),
        secret => Ok(secret.to_owned()),
    }
}
