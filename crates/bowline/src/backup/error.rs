//! Why a backup was not made, read or restored.

use std::io;
use std::path::{Path, PathBuf};

use bowline_store::OpenError;
use bowline_store::sqlite::backup::CopyError;

/// Each sentence stands alone; [`hint`](Self::hint) says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BackupError {
    #[error("there is no database in {}", .0.display())]
    NoData(PathBuf),
    #[error("there is no file {}", .0.display())]
    NoFile(PathBuf),
    #[error("there is no folder {}", .0.display())]
    NoFolder(PathBuf),
    #[error("a restore to {} did not finish, so it is incomplete", .0.display())]
    Restoring(PathBuf),
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    #[error("{} is being written by another bowline", .0.display())]
    Busy(PathBuf),
    #[error("there is not enough room on the disk of {}", .0.display())]
    Full(PathBuf),
    #[error("cannot {what} {}: {why}", path.display())]
    Io { what: &'static str, path: PathBuf, why: String },
    #[error("cannot back up {}: {why}", path.display())]
    Database { path: PathBuf, why: CopyError },
    #[error("this is not a backup of bowline")]
    NotABackup,
    #[error("the backup is cut off: it has {found} of {expected} bytes")]
    CutOff { found: u64, expected: u64 },
    #[error("the backup was changed after it was made: its checksums do not match")]
    Changed,
    #[error("the backup has format {found}, and this bowline knows up to {known}")]
    NewerFormat { found: u32, known: u32 },
    #[error("the backup cannot be used: {0}")]
    Unusable(String),
    #[error("{} is not empty: it has {found} in it", folder.display())]
    NotEmpty { folder: PathBuf, found: String },
    #[error("another bowline is using {}", .0.display())]
    InUse(PathBuf),
}

impl BackupError {
    pub(super) fn io<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Self + 'a {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full(path.to_owned())
            }
            _ => Self::Io { what, path: path.to_owned(), why: error.to_string() },
        }
    }

    pub(super) fn copy(from: &Path, to: &Path, why: CopyError) -> Self {
        match why {
            CopyError::Full => Self::Full(to.to_owned()),
            why => Self::Database { path: from.to_owned(), why },
        }
    }

    /// What the user can do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NoData(_) => {
                "name the data folder with --data; `bowline config show` says where \
                                it is"
                    .into()
            }
            Self::NoFile(_) => "name a file that `bowline backup create` has made".into(),
            Self::NoFolder(_) => "make it first, or choose another place".into(),
            Self::Restoring(_) => "run `bowline backup restore` with that folder again".into(),
            Self::Exists(_) => "choose another name, or replace it with --force".into(),
            Self::Busy(_) => "wait until the other one is done, or choose another name".into(),
            Self::Full(_) => {
                "make room there or choose another disk; making a backup takes twice the size of \
                 the data for a while, restoring it once"
                    .into()
            }
            Self::Io { path, .. } => format!("check that {} exists and is yours", path.display()),
            Self::Database { .. } => {
                "run `bowline doctor`; if the file is damaged, restore an earlier backup".into()
            }
            Self::NotABackup => "name a file that `bowline backup create` has made".into(),
            Self::CutOff { .. } | Self::Changed => {
                "copy it again from where it was made, or use another backup".into()
            }
            Self::NewerFormat { .. } => "a newer bowline made it; use that version".into(),
            Self::Unusable(_) => "use another backup, or the version that made this one".into(),
            Self::NotEmpty { .. } => {
                "name a new or empty folder with --data, or move the old one away".into()
            }
            Self::InUse(_) => "stop it, and name a new or empty folder with --data".into(),
        }
    }
}

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse { path } => Self::InUse(path.into()),
            OpenError::Folder { path, reason } => {
                Self::Io { what: "use", path: path.into(), why: reason }
            }
            other => Self::Unusable(other.to_string()),
        }
    }
}
