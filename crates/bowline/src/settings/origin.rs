//! Where a setting's value comes from.

use std::fmt;
use std::path::PathBuf;

/// The origin of a value. Values without one are defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The configuration file; lines count from 1.
    File { path: PathBuf, line: usize },
    /// An environment variable, by name.
    Environment(String),
    /// A flag, with its dashes.
    Flag(&'static str),
}

impl Origin {
    /// The place to look at, as the beginning of a sentence.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::File { path, line } => format!("{}, line {line}", path.display()),
            Self::Environment(name) => format!("the environment variable {name}"),
            Self::Flag(flag) => format!("the flag {flag}"),
        }
    }
}

/// Short, as in `bowline config show`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "file {}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}
