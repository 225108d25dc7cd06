//! The folder `FILE.partial`, in which a backup is made before it gets its name.
//!
//! Its lock tells a backup that is being made from one that was killed: the next backup of the same
//! name removes what the killed one left.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bowline_net::private_file;

use super::BackupError;

/// What a folder of a backup in the making has in it.
const OURS: [&str; 3] = ["members", "archive", "lock"];

/// A backup in the making. Removed when dropped.
#[derive(Debug)]
pub(crate) struct BackupDraft {
    folder: PathBuf,
    _lock: File,
}

impl BackupDraft {
    pub(crate) fn begin(target: &Path) -> Result<Self, BackupError> {
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            return Err(BackupError::NoFolder(parent.to_owned()));
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let folder = target.with_file_name(name);
        let failed = BackupError::io("write", &folder);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            Err(_) if !is_left_over(&folder).map_err(&failed)? => {
                return Err(BackupError::Exists(folder.clone()));
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        let lock = options.create(true).write(true).truncate(false).mode(0o600);
        let lock = lock.open(folder.join("lock")).map_err(&failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BackupError::Busy(target.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let draft = Self { folder: folder.clone(), _lock: lock };
        for left in [draft.members(), draft.archive()] {
            remove(&left).map_err(&failed)?;
        }
        DirBuilder::new().mode(0o700).create(draft.members()).map_err(&failed)?;
        Ok(draft)
    }

    /// Where the members are collected.
    pub(crate) fn members(&self) -> PathBuf {
        self.folder.join("members")
    }

    /// Where the archive is written.
    pub(crate) fn archive(&self) -> PathBuf {
        self.folder.join("archive")
    }

    /// Gives the archive its name, in one step. An existing file is replaced only if `force`, and its
    /// mode is kept.
    pub(crate) fn publish(self, target: &Path, force: bool) -> Result<(), BackupError> {
        let failed = BackupError::io("write", target);
        let archive = self.archive();
        let linked = match force {
            // Whoever may read the old one was decided by its owner.
            true => private_file::keep_mode(target, &archive)
                .and_then(|()| fs::rename(&archive, target)),
            // A rename would replace a file that has appeared meanwhile.
            false => match fs::hard_link(&archive, target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(BackupError::Exists(target.to_owned()));
                }
                // Not every file system has hard links.
                Err(_) => fs::rename(&archive, target),
                linked => linked,
            },
        };
        linked.map_err(&failed)?;
        sync_folder(target).map_err(failed)
    }
}

impl Drop for BackupDraft {
    fn drop(&mut self) {
        for ours in OURS {
            let _ = remove(&self.folder.join(ours));
        }
        // Fails if anything else is in it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Whether the folder is what a backup that was killed has left: our own folder, with nothing in it
/// that is not ours.
fn is_left_over(folder: &Path) -> io::Result<bool> {
    let there = fs::symlink_metadata(folder)?;
    if !there.is_dir() || there.uid() != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    for entry in fs::read_dir(folder)? {
        if !OURS.iter().any(|ours| entry.as_ref().is_ok_and(|entry| entry.file_name() == *ours)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes a file or folder; it need not exist.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Flushes the folder that holds the path: only then is a new name durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_somebodys_own_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (target, partial) = (folder.path().join("b.tar"), folder.path().join("b.tar.partial"));
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("mine.txt"), "precious").unwrap();
        let refused = BackupDraft::begin(&target).unwrap_err();
        assert_eq!(refused, BackupError::Exists(partial.clone()));
        assert_eq!(fs::read_to_string(partial.join("mine.txt")).unwrap(), "precious");
        fs::remove_dir_all(&partial).unwrap();
        std::os::unix::fs::symlink(folder.path(), &partial).unwrap();
        assert_eq!(BackupDraft::begin(&target).unwrap_err(), BackupError::Exists(partial));
    }

    #[test]
    fn what_a_killed_backup_left_is_removed_and_one_under_way_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("b.tar");
        let draft = BackupDraft::begin(&target).unwrap();
        fs::write(draft.members().join("half"), "x").unwrap();
        assert_eq!(BackupDraft::begin(&target).unwrap_err(), BackupError::Busy(target.clone()));
        assert!(draft.members().join("half").exists());
        // Without its destructor, as a kill does it; the lock goes with the process.
        let BackupDraft { _lock: lock, .. } = &draft;
        lock.unlock().unwrap();
        let next = BackupDraft::begin(&target).unwrap();
        assert!(!next.members().join("half").exists());
        drop(next);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("b.tar");
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        for (force, kept) in [(false, "old"), (true, "new")] {
            let draft = BackupDraft::begin(&target).unwrap();
            fs::write(draft.archive(), "new").unwrap();
            assert_eq!(draft.publish(&target, force).is_ok(), force);
            assert_eq!(fs::read_to_string(&target).unwrap(), kept);
            assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o640, "it keeps its mode");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }
}
