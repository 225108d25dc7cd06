//! The error of a command: what happened, what to do about it, and the exit code.

use std::fmt::{self, Display};

use crate::terminal;
use bowline_gateway::StartError;
use bowline_store::OpenError;

/// An error that is printed on stderr as `error:` and `hint:`.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    pub(crate) fn new(what: impl Display) -> Self {
        Self { what: what.to_string(), hint: None, code: 1 }
    }

    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Sets an exit code other than 1.
    pub(crate) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.code
    }

    pub(crate) fn print(&self) {
        terminal::error(&self.what, self.hint.as_deref());
    }
}

/// The error and its hint as one text, for programs that go on after it.
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let hint = match &error {
            OpenError::InUse { .. } => {
                "stop the other one, or give this one its own folder with --data"
            }
            OpenError::Folder { .. } => {
                "check that the folder exists and is yours, or choose another with --data"
            }
            OpenError::Restoring { .. } => {
                "run `bowline backup restore` with the same folder again, or delete the folder"
            }
            OpenError::NewerSchema { .. } => {
                "a newer bowline wrote it; run that version, or use another folder with --data"
            }
            OpenError::Foreign { .. } => "choose an empty folder with --data",
            OpenError::Database(_) => {
                "run `bowline doctor`; if the file is damaged, restore it from a backup"
            }
        };
        Failure::new(error).hint(hint)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let hint = match &error {
            StartError::Door(error) => error.hint("127.0.0.1:8080"),
            StartError::Exposed { .. } => {
                "make a key with `bowline keys new` and set auth.api_keys, listen on \
                 127.0.0.1, or use --insecure to allow access without a key"
                    .into()
            }
            StartError::Key(_) => "make a strong one with `bowline keys new`".into(),
            StartError::KeysFile { .. } => "check auth.api_keys_file".into(),
            StartError::Translate(_) => "check translate.model and the upstreams' models".into(),
            StartError::Mcp(_) => "docs/mcp.md shows how a server is added".into(),
            StartError::Upstream(_) => "check it with `bowline config show`".into(),
            StartError::Store(_) => "run `bowline doctor`".into(),
        };
        Failure::new(error).hint(hint)
    }
}

impl From<bowline_relay::relay::RelayStartError> for Failure {
    fn from(error: bowline_relay::relay::RelayStartError) -> Self {
        let hint = error.hint();
        Failure::new(error).hint(hint)
    }
}
