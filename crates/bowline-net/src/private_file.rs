//! Files that only their owner may read: keys, an identity's seed, exported conversations.
//!
//! Apart, so that all such files have the same guarantees: mode 0600, written atomically, and
//! flushed to disk before the call returns. A file of the user's own choice that is there already keeps
//! its mode ([`replace_as_is`]): whoever may read it was decided by its owner.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Why a private file was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("others can read {} (mode {mode:o})", path.display())]
    Loose { path: PathBuf, mode: u32 },
    #[error("{} is larger than such a file can be", path.display())]
    TooLarge { path: PathBuf },
    #[error("cannot {what} {}: {why}", path.display())]
    Io { what: &'static str, path: PathBuf, why: String },
}

impl FileError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Loose { path, .. } => format!("run `chmod 600 {}`", path.display()),
            Self::TooLarge { path } => format!("check the contents of {}", path.display()),
            Self::Io { path, .. } => {
                format!("check that {} is yours and its disk has room", path.display())
            }
        }
    }

    fn io<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Self + 'a {
        move |error| Self::Io { what, path: path.to_owned(), why: error.to_string() }
    }
}

/// The whole file; none if there is none. Refuses a file that others can read: its secret may be
/// compromised (SBRP-DAEMON-01).
pub fn read(path: &Path, most: u64) -> Result<Option<Zeroizing<Vec<u8>>>, FileError> {
    let failed = FileError::io("read", path);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let about = file.metadata().map_err(&failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = about.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(FileError::Loose { path: path.to_owned(), mode });
        }
    }
    if about.len() > most {
        return Err(FileError::TooLarge { path: path.to_owned() });
    }
    // Allocated in full: a buffer that grows leaves copies of the secret in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(about.len() as usize + 1));
    file.take(most).read_to_end(&mut bytes).map_err(&failed)?;
    Ok(Some(bytes))
}

/// Creates the file unless it exists; returns whether it did. Of several concurrent calls one
/// succeeds.
pub fn create(path: &Path, bytes: &[u8]) -> Result<bool, FileError> {
    create_by(path, bytes, |from, to| std::fs::hard_link(from, to))
}

fn create_by(
    path: &Path,
    bytes: &[u8],
    link: impl Fn(&Path, &Path) -> io::Result<()>,
) -> Result<bool, FileError> {
    let failed = FileError::io("write", path);
    let draft = Draft::write(path, bytes)?;
    // A hard link, because a rename would replace a file that another process has just created.
    let made = match link(&draft.0, path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        // A file system without hard links (FAT, some network and phone storage): use a lock file.
        Err(_) => {
            let _turn = lock(&beside(path, ".lock"))?;
            let there = path.try_exists().map_err(&failed)?;
            if !there {
                std::fs::rename(&draft.0, path).map_err(&failed)?;
            }
            !there
        }
    };
    sync_folder(path).map_err(failed)?;
    Ok(made)
}

/// Replaces the file atomically; of a symbolic link, its target.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let failed = FileError::io("write", path);
    let draft = Draft::write(path, bytes)?;
    std::fs::rename(&draft.0, path).map_err(&failed)?;
    sync_folder(path).map_err(failed)
}

/// As [`replace`], for a file that the user named: one that exists keeps its mode, and a new one is
/// private. The owner's group is kept where the system allows it.
pub fn replace_as_is(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let failed = FileError::io("write", path);
    let draft = Draft::write(path, bytes)?;
    keep_mode(path, &draft.0).map_err(&failed)?;
    std::fs::rename(&draft.0, path).map_err(&failed)?;
    sync_folder(path).map_err(failed)
}

/// Gives a new file the mode of the one that it is about to replace, if there is one.
pub fn keep_mode(replaced: &Path, new: &Path) -> io::Result<()> {
    let there = match std::fs::metadata(replaced) {
        Ok(there) if there.is_file() => there,
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        // Before the mode: rights of a group are for the group that had them. Nobody but root may give a
        // file to a group that they are not in; then the group gets no rights.
        let same_group = std::fs::metadata(new)?.gid() == there.gid()
            || std::os::unix::fs::chown(new, None, Some(there.gid())).is_ok();
        let mut mode = there.permissions();
        if !same_group {
            use std::os::unix::fs::PermissionsExt as _;
            mode.set_mode(mode.mode() & !0o070);
        }
        std::fs::set_permissions(new, mode)
    }
    #[cfg(not(unix))]
    std::fs::set_permissions(new, there.permissions())
}

/// Waits for an exclusive lock on the file, released when dropped.
pub fn lock(path: &Path) -> Result<File, FileError> {
    let failed = FileError::io("lock", path);
    make_folder(path)?;
    let file = private(OpenOptions::new().create(true).truncate(false).write(true)).open(path);
    let file = file.map_err(&failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

/// A temporary file beside the target, written and flushed. Removed when dropped.
struct Draft(PathBuf);

impl Draft {
    fn write(path: &Path, bytes: &[u8]) -> Result<Self, FileError> {
        let failed = FileError::io("write", path);
        make_folder(path)?;
        let random = getrandom::u64().map_err(|error| failed(io::Error::other(error)))?;
        let draft = Self(beside(path, &format!(".{random:016x}.new")));
        let mut options = OpenOptions::new();
        let mut file =
            private(options.create_new(true).write(true)).open(&draft.0).map_err(&failed)?;
        file.write_all(bytes).map_err(&failed)?;
        file.sync_all().map_err(failed)?;
        Ok(draft)
    }
}

/// The path with a suffix added to its file name.
fn beside(path: &Path, added: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(added);
    path.with_file_name(name)
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename it no longer exists.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn make_folder(path: &Path) -> Result<(), FileError> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(FileError::io("make the folder", folder))
}

/// Flushes the folder: only then is a new file name durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_private_file_is_its_owners_alone_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/secret");
        assert_eq!(read(&path, 10).unwrap(), None);
        assert_eq!(create(&path, b"one"), Ok(true));
        assert_eq!(create(&path, b"two"), Ok(false), "what is there stays");
        assert_eq!(read(&path, 10).unwrap().unwrap().as_slice(), b"one");
        replace(&path, b"three").unwrap();
        assert_eq!(read(&path, 10).unwrap().unwrap().as_slice(), b"three");
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, b"four").unwrap();
        assert_eq!(read(&path, 10).unwrap().unwrap().as_slice(), b"four");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        replace(&path, b"three").unwrap();
        assert_eq!(read(&path, 4), Err(FileError::TooLarge { path }));
    }

    #[test]
    fn a_file_of_the_users_choice_keeps_its_mode_and_a_new_one_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("export.json");
        replace_as_is(&path, b"one").unwrap();
        assert_eq!(mode(&path), 0o600);
        for kept in [0o644, 0o640, 0o600, 0o604] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(kept)).unwrap();
            replace_as_is(&path, b"two").unwrap();
            assert_eq!((mode(&path), std::fs::read(&path).unwrap()), (kept, b"two".to_vec()));
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace_as_is(&link, b"three").unwrap();
        assert_eq!((mode(&path), std::fs::read(&path).unwrap()), (0o604, b"three".to_vec()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
        // A secret of the program's own is private whatever it was before.
        replace(&path, b"secret").unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn of_many_that_make_a_file_at_once_one_does() {
        one_of_many(|from, to| std::fs::hard_link(from, to));
    }

    #[test]
    fn a_file_system_without_links_does_as_well() {
        one_of_many(|_, _| Err(io::ErrorKind::PermissionDenied.into()));
    }

    fn one_of_many(link: impl Fn(&Path, &Path) -> io::Result<()> + Sync) {
        let (folder, link) = (tempfile::tempdir().unwrap(), &link);
        let path = folder.path().join("secret");
        let made: usize = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..8u8)
                .map(|n| {
                    scope.spawn({
                        let path = &path;
                        move || create_by(path, &[n; 32], link).unwrap()
                    })
                })
                .collect();
            tries.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
        });
        assert_eq!(made, 1);
        let bytes = read(&path, 100).unwrap().unwrap();
        assert!(bytes.len() == 32 && bytes.iter().all(|byte| *byte == bytes[0]));
    }
}
