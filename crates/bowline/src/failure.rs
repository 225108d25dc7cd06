//! The error of a command: what happened, what to do about it, and of which kind it is. The kind
//! decides the exit code, so that scripts need not read the text (docs/errors.md, "Exit codes").

use std::fmt::{self, Display};

use crate::terminal;
use bowline_gateway::StartError;
use bowline_net::DoorError;
use bowline_store::copy::CopyError;
use bowline_store::{OpenError, ServerFault};

/// An error that is printed on stderr as `error:` and `hint:`.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    hint: Option<String>,
    kind: FailureKind,
}

/// What kind of error it is, as far as a script has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FailureKind {
    /// None of the others.
    #[default]
    Failed,
    /// The command line, the environment or the configuration file is wrong.
    Usage,
    /// A server answered and said no: a wrong key, a conflict, a limit.
    Refused,
    /// The named session, daemon, user or file does not exist.
    NotFound,
    /// A server or a daemon does not answer, or its certificate is not trusted.
    Unreachable,
    /// A daemon shows another key than the pinned one.
    KeyChanged,
    /// Data could not be written: the disk failed, or is full.
    DataLost,
}

impl FailureKind {
    /// The exit code. 130 (stopped by Ctrl-C) is no error and has no kind.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            FailureKind::Failed => 1,
            FailureKind::Usage => 2,
            FailureKind::Refused => 3,
            FailureKind::NotFound => 4,
            FailureKind::Unreachable => 5,
            FailureKind::KeyChanged => 6,
            FailureKind::DataLost => 74,
        }
    }

    /// The kind of an error response of a server.
    pub(crate) fn of_status(status: u16) -> Self {
        match status {
            404 => FailureKind::NotFound,
            400..=499 => FailureKind::Refused,
            _ => FailureKind::Failed,
        }
    }
}

impl Failure {
    pub(crate) fn new(what: impl Display) -> Self {
        Self { what: what.to_string(), hint: None, kind: FailureKind::Failed }
    }

    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Sets a kind other than [`FailureKind::Failed`].
    pub(crate) fn kind(mut self, kind: FailureKind) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// What happened, without the hint.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Puts the place of the mistake in front: a file and line, or a variable.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// The error and its hint as they are printed.
    pub(crate) fn text(&self) -> String {
        terminal::error_text(&self.what, self.hint.as_deref())
    }

    pub(crate) fn print(&self) {
        terminal::error(self.text());
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
                "a newer bowline wrote it: run that version, or use another folder with --data or another \
                 database with --store"
            }
            OpenError::Foreign { path } if path.contains("://") => {
                "its schema has tables of another program: name another database, or another schema with \
                 ?schema=NAME"
            }
            OpenError::Foreign { .. } => "choose an empty folder with --data",
            OpenError::Copying { .. } => {
                "run the same `bowline store copy` again: it goes on there"
            }
            OpenError::Server { fault, .. } => match fault {
                ServerFault::Unreachable => {
                    "check that the server runs and that host and port in store.url are right"
                }
                ServerFault::Login => {
                    "check user and password in store.url, and pg_hba.conf of the server"
                }
                ServerFault::NoDatabase => {
                    "make it with `createdb NAME`, or name another in store.url"
                }
                ServerFault::NoRight => {
                    "grant the user CREATE and USAGE on the schema, or name one of its own with ?schema=NAME"
                }
                ServerFault::Full => {
                    "raise max_connections of the server, or lower store.connections of each gateway"
                }
                ServerFault::Tls => {
                    "name the file of the authority that signed the server's certificate, in PEM: \
                     &sslrootcert=FILE in store.url, or --ca-file FILE; with sslmode=verify-full the host in \
                     store.url has to be one in the certificate"
                }
                ServerFault::ReadOnly => {
                    "name the primary in store.url, or all servers with commas between them: \
                     postgres://USER@one,two/DATABASE"
                }
                ServerFault::Other => "the log of the database server may say more",
            },
            OpenError::Database(_) => {
                "run `bowline doctor`; if the file is damaged, restore it from a backup"
            }
        };
        let kind = match &error {
            OpenError::Server { fault: ServerFault::Unreachable | ServerFault::Tls, .. } => {
                FailureKind::Unreachable
            }
            OpenError::Server { fault: ServerFault::Login, .. } => FailureKind::Refused,
            OpenError::Server { fault: ServerFault::NoDatabase, .. } => FailureKind::NotFound,
            _ => FailureKind::Failed,
        };
        Failure::new(error).hint(hint).kind(kind)
    }
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        let hint = error.hint();
        let kind = match &error {
            CopyError::Missing(_) => FailureKind::NotFound,
            CopyError::Same => FailureKind::Usage,
            CopyError::Alive { .. }
            | CopyError::Running(_)
            | CopyError::NotEmpty { .. }
            | CopyError::OtherSource { .. }
            | CopyError::OlderSchema { .. } => FailureKind::Refused,
            _ => FailureKind::Failed,
        };
        match error {
            // The reason already names its database.
            CopyError::Open { error, .. } => Self::from(error),
            error => Failure::new(error).hint(hint).kind(kind),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let hint = match &error {
            StartError::Door(error) => error.hint("127.0.0.1:8080"),
            StartError::Exposed { .. } => {
                "make a key with `bowline keys new` and set auth.api_keys, or add a user with \
                 `bowline users add`, or listen on 127.0.0.1, or say --insecure if nobody is to need a \
                 key"
                    .into()
            }
            StartError::CertifyExposed { .. } => {
                "listen on 127.0.0.1 and behind no proxy, or leave --certify out".into()
            }
            StartError::Key(_) => "make a strong one with `bowline keys new`".into(),
            StartError::Origins(error) => error.hint().into(),
            StartError::KeysFile { .. } => "check auth.api_keys_file".into(),
            StartError::Translate(_) => "check translate.model and the upstreams' models".into(),
            StartError::Mcp(_) => "docs/mcp.md shows how a server is added".into(),
            StartError::Upstream(_) => "check it with `bowline config show`".into(),
            StartError::Federation(error) => error.hint(),
            StartError::Secrets(error) => error.hint(),
            StartError::Store(_) | StartError::Lease(_) => "run `bowline doctor`".into(),
            StartError::Bus(_) => "check bus.url, and that what it names is running".into(),
        };
        let kind = match &error {
            StartError::Door(DoorError::Plain(_)) => FailureKind::Usage,
            StartError::Door(_)
            | StartError::Store(_)
            | StartError::Lease(_)
            | StartError::Bus(_) => FailureKind::Failed,
            _ => FailureKind::Usage,
        };
        Failure::new(error).hint(hint).kind(kind)
    }
}

impl From<bowline_relay::relay::RelayStartError> for Failure {
    fn from(error: bowline_relay::relay::RelayStartError) -> Self {
        use bowline_relay::relay::RelayStartError as Error;
        let (hint, kind) = match &error {
            Error::Issuer(_) | Error::Door(DoorError::Plain(_)) => {
                (error.hint(), FailureKind::Usage)
            }
            Error::Door(_) => (error.hint(), FailureKind::Failed),
        };
        Failure::new(error).hint(hint).kind(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_exit_code_and_the_documentation_says_which() {
        let errors = include_str!("../../../docs/errors.md");
        let table = errors.split("## Exit codes").nth(1).expect("a section about exit codes");
        let kinds = [
            (FailureKind::Failed, 1),
            (FailureKind::Usage, 2),
            (FailureKind::Refused, 3),
            (FailureKind::NotFound, 4),
            (FailureKind::Unreachable, 5),
            (FailureKind::KeyChanged, 6),
            (FailureKind::DataLost, 74),
        ];
        for (kind, code) in kinds {
            assert_eq!(kind.exit_code(), code, "{kind:?}");
            assert!(table.contains(&format!("\n| {code} |")), "{code} is not in docs/errors.md");
        }
    }
}
