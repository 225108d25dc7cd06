//! What of a data folder belongs in a backup, and how it gets back.
//!
//! Named one by one: whatever else lies in the folder is the user's, and `bowline.lock` and
//! `running.json` belong to a process. A folder may hold a gateway, a control plane, or both.
//!
//! A restore builds everything in `restore.partial` inside the data folder, moves it into place, and
//! removes `restore.partial` last. While that exists no gateway starts on the folder, and a restore
//! begins anew. So a restore that was killed leaves nothing that looks complete. It is inside and not
//! beside the folder, because that may be a mount point, or its parent somebody else's.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use bowline_gateway::identity_file::{IDENTITY_FILE, PREVIOUS_FILE};
use bowline_store::sqlite::backup as database;
use bowline_store::sqlite::{self, FILE, RESTORING};
use jiff::Timestamp;

use super::archive::{self, Archive};
use super::draft::{BackupDraft, remove, sync_folder};
use super::manifest::{FORMAT, Manifest, Member};
use super::{BackupError, Done};

/// Databases: copied by SQLite, each as it was at one instant.
const DATABASES: [&str; 3] = [FILE, "control.db", "control/control.db"];
/// Small files that are always replaced whole.
const FILES: [&str; 11] = [
    "local.key",
    "secrets.key",
    IDENTITY_FILE,
    PREVIOUS_FILE,
    "relay/identity",
    "relay/gateway-identity",
    "relay/devices.json",
    "relay/daemon.json",
    "relay/known.json",
    "relay/pins.json",
    "relay/login.json",
];
/// Present in a folder that was locked.
const LOCK: &str = "bowline.lock";

/// The bytes of all databases of a folder with their logs: about what there is to copy.
pub(crate) fn size(data: &Path) -> u64 {
    let length = |name: String| fs::metadata(data.join(name)).map_or(0, |file| file.len());
    DATABASES.iter().map(|name| length((*name).into()) + length(format!("{name}-wal"))).sum()
}

/// How much of a draft's databases is written.
pub(crate) fn copied(draft: &Path) -> u64 {
    let length = |name: &&str| fs::metadata(draft.join(name)).map_or(0, |file| file.len());
    DATABASES.iter().map(length).sum()
}

/// Copies what belongs in a backup into the draft.
pub(crate) fn collect(
    data: &Path,
    draft: &BackupDraft,
    done: &Done,
) -> Result<Manifest, BackupError> {
    if data.join(RESTORING).exists() {
        return Err(BackupError::Restoring(data.to_owned()));
    }
    let into = draft.members();
    let created_at = Timestamp::now();
    let mut members = Vec::new();
    let mut add = |name: &str| {
        let (size, sha256) = archive::measure(&into.join(name), done)?;
        members.push(Member { name: name.into(), size, sha256 });
        Ok::<_, BackupError>(())
    };
    let mut contents = None;
    for name in DATABASES.iter().filter(|name| data.join(name).is_file()) {
        let (from, to) = (data.join(name), into.join(name));
        make_parent(&to)?;
        database::copy(&from, &to).map_err(|why| BackupError::copy(&from, &to, why))?;
        if *name == FILE {
            contents = Some(database::contents(&to)?);
        }
        add(name)?;
    }
    for name in FILES {
        let from = data.join(name);
        let bytes = match fs::read(&from) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(BackupError::io("read", &from)(error)),
        };
        let to = into.join(name);
        make_parent(&to)?;
        fs::write(&to, bytes).map_err(BackupError::io("write", &to))?;
        add(name)?;
    }
    if !members.iter().any(|member| DATABASES.contains(&member.name.as_str())) {
        return Err(BackupError::NoData(data.to_owned()));
    }
    Ok(Manifest {
        format: FORMAT,
        bowline: env!("CARGO_PKG_VERSION").into(),
        created_at,
        schema_version: contents.map(|contents| contents.schema_version),
        sessions: contents.map(|contents| contents.sessions),
        members,
    })
}

/// Writes the collected members to the draft's archive; returns its size.
pub(crate) fn pack(
    draft: &BackupDraft,
    manifest: &Manifest,
    done: &Done,
) -> Result<u64, BackupError> {
    archive::write(&draft.archive(), manifest, &draft.members(), done)
}

/// Extracts a backup into an empty folder and has SQLite check each database in it.
pub(crate) fn check(archive: &mut Archive, into: &Path, done: &Done) -> Result<(), BackupError> {
    archive.extract(into, done)?;
    usable(&archive.manifest, into)?;
    for name in DATABASES.iter().filter(|name| into.join(name).is_file()) {
        let unusable = |why: database::CopyError| BackupError::Unusable(format!("{name}: {why}"));
        database::check(&into.join(name)).map_err(unusable)?;
    }
    Ok(())
}

/// Restores a backup into a folder that is missing or empty.
pub(crate) fn restore(archive: &mut Archive, data: &Path, done: &Done) -> Result<(), BackupError> {
    let failed = BackupError::io("write", data);
    let made = !data.exists();
    // Looked at before it is locked: a folder that is refused stays as it is.
    let begun = data.join(RESTORING).exists();
    refuse_unless_empty(data, begun)?;
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(&failed)?;
    let lock = sqlite::lock(data)?;
    refuse_unless_empty(data, begun)?;
    let partial = data.join(RESTORING);
    clear(data).map_err(&failed)?;
    let built = DirBuilder::new()
        .mode(0o700)
        .create(&partial)
        .and_then(|()| sync_folder(&partial))
        .map_err(&failed)
        .and_then(|()| archive.extract(&partial, done))
        .and_then(|()| usable(&archive.manifest, &partial));
    if let Err(error) = built {
        // Nothing is in place yet: leave the folder as it was found.
        let _ = remove(&partial);
        if made {
            let _ = remove(&data.join(LOCK));
            let _ = fs::remove_dir(data);
        }
        return Err(error);
    }
    put_in_place(&partial, data).map_err(&failed)?;
    drop(lock);
    Ok(())
}

/// The folder may hold only what an unfinished restore left.
fn refuse_unless_empty(data: &Path, begun: bool) -> Result<(), BackupError> {
    let listed = match fs::read_dir(data) {
        Ok(listed) => listed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BackupError::io("read", data)(error)),
    };
    let mut names: Vec<_> =
        listed.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let ours = |name: &String| {
        name == LOCK || begun && (name == RESTORING || parts().any(|part| part == name))
    };
    names.retain(|name| !ours(name) && name != "lost+found");
    // A database is the best reason to give.
    names.sort_by_key(|name| !DATABASES.contains(&name.as_str()));
    if names.is_empty() {
        return Ok(());
    }
    // A gateway that runs is a better one.
    if data.join(LOCK).exists() {
        drop(sqlite::lock(data)?);
    }
    Err(BackupError::NotEmpty { folder: data.to_owned(), found: names.swap_remove(0) })
}

/// The first parts of all members' paths.
fn parts() -> impl Iterator<Item = &'static str> {
    let first = |name: &'static str| name.split('/').next().unwrap_or(name);
    DATABASES.into_iter().chain(FILES).map(first)
}

/// Removes what an unfinished restore left.
fn clear(data: &Path) -> std::io::Result<()> {
    if !data.join(RESTORING).exists() {
        return Ok(());
    }
    for part in parts() {
        remove(&data.join(part))?;
    }
    remove(&data.join(RESTORING))
}

/// The last step makes it complete.
fn put_in_place(partial: &Path, data: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(partial)? {
        let name = entry?.file_name();
        fs::rename(partial.join(&name), data.join(&name))?;
        if data.join(&name).is_dir() {
            File::open(data.join(&name))?.sync_all()?;
        }
    }
    File::open(data)?.sync_all()?;
    fs::remove_dir(partial)?;
    File::open(data)?.sync_all()
}

/// Whether this version can use the gateway's database, and it is the one that the manifest says.
fn usable(manifest: &Manifest, folder: &Path) -> Result<(), BackupError> {
    let path = folder.join(FILE);
    if !path.is_file() {
        return Ok(());
    }
    let found = database::contents(&path)?;
    match (manifest.schema_version, manifest.sessions)
        == (Some(found.schema_version), Some(found.sessions))
    {
        true => Ok(()),
        false => Err(BackupError::Changed),
    }
}

fn make_parent(path: &Path) -> Result<(), BackupError> {
    let folder: PathBuf = path.parent().map(Path::to_owned).unwrap_or_default();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(BackupError::io("write", &folder))
}

#[cfg(test)]
mod tests {
    use bowline_store::sqlite::Sqlite;

    use super::*;

    /// A data folder, a draft of its backup, and its manifest.
    fn collected(folder: &Path) -> (BackupDraft, Manifest) {
        drop(Sqlite::open(&folder.join("data")).unwrap());
        let draft = BackupDraft::begin(&folder.join("b.tar")).unwrap();
        let manifest = collect(&folder.join("data"), &draft, &Done::default()).unwrap();
        (draft, manifest)
    }

    fn packed(draft: &BackupDraft, manifest: &Manifest) -> Archive {
        pack(draft, manifest, &Done::default()).unwrap();
        Archive::open(&draft.archive(), &Done::default()).unwrap()
    }

    #[test]
    fn g13_a_backup_of_a_newer_schema_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (draft, mut manifest) = collected(folder.path());
        let path = draft.members().join(FILE);
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.pragma_update(None, "user_version", 999).unwrap();
        drop(conn);
        let (size, sha256) = archive::measure(&path, &Done::default()).unwrap();
        manifest.members[0] = Member { name: FILE.into(), size, sha256 };
        manifest.schema_version = Some(999);
        let mut archive = packed(&draft, &manifest);
        let data = folder.path().join("restored");
        let refused = restore(&mut archive, &data, &Done::default()).unwrap_err();
        let BackupError::Unusable(why) = &refused else { panic!("{refused}") };
        assert!(why.contains("schema version 999"), "{why}");
        assert!(!data.exists());
    }

    #[test]
    fn a_folder_with_something_in_it_is_not_restored_into() {
        let folder = tempfile::tempdir().unwrap();
        let (draft, manifest) = collected(folder.path());
        let mut archive = packed(&draft, &manifest);
        let data = folder.path().join("restored");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("letter.txt"), "mine").unwrap();
        let refused = restore(&mut archive, &data, &Done::default()).unwrap_err();
        let found = "letter.txt".to_owned();
        assert_eq!(refused, BackupError::NotEmpty { folder: data.clone(), found });
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
        // A user's file is safe from a restore that is begun anew, too.
        fs::create_dir(data.join(RESTORING)).unwrap();
        assert!(restore(&mut archive, &data, &Done::default()).is_err());
        fs::remove_file(data.join("letter.txt")).unwrap();
        fs::write(data.join(FILE), "half").unwrap();
        restore(&mut archive, &data, &Done::default()).unwrap();
        assert!(!data.join(RESTORING).exists());
        assert_eq!(database::contents(&data.join(FILE)).unwrap().sessions, 0);
    }
}
