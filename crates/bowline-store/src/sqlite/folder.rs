//! The data folder: who owns it, and that nobody else may look into it.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use crate::OpenError;

/// The database's name inside the data folder.
pub const FILE: &str = "bowline.db";
/// A restore builds the folder's contents in here. While it exists, the folder is incomplete.
pub const RESTORING: &str = "restore.partial";

/// Makes a data folder if there is none, and locks it: for a gateway whose database is elsewhere.
pub fn own(folder: &Path) -> Result<File, OpenError> {
    make_private_folder(folder).map_err(|error| OpenError::Folder {
        path: folder.display().to_string(),
        reason: error.to_string(),
    })?;
    lock(folder)
}

/// Locks a data folder, as a gateway does: released when the file is dropped, even by a crash.
pub fn lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join("bowline.lock");
    let unusable = |error: std::io::Error| OpenError::Folder {
        path: folder.display().to_string(),
        reason: error.to_string(),
    };
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            Err(OpenError::InUse { path: folder.display().to_string() })
        }
        Err(fs::TryLockError::Error(error)) => Err(unusable(error)),
    }
}

#[cfg(unix)]
pub(super) fn make_private_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(unix)]
pub(super) fn make_private_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}

#[cfg(not(unix))]
pub(super) fn make_private_folder(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(not(unix))]
pub(super) fn make_private_file(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path).map(drop)
}
