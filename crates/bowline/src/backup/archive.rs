//! The backup file: a tar archive whose last member is the checksum of everything before it.
//!
//! Layout: `manifest.json`, the members in the manifest's order, `SHA256`, the end of the archive.
//! The file is a function of the manifest and the members, so each byte of it is checked: the head of
//! the file by the checksum, the end because it can have one form only.
//!
//! A checksum finds damage. It does not prove who made the file.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::manifest::{MOST, Manifest};
use super::tar::{self, BLOCK};
use super::{BackupError, Done};

const MANIFEST: &str = "manifest.json";
const CHECKSUM: &str = "SHA256";
/// The checksum's header and block, and the end of the archive.
const TAIL: u64 = 2 * BLOCK as u64 + tar::END.len() as u64;
/// How much is read and written at once.
const PIECE: usize = 1 << 18;

/// Writes the archive with the members that lie below `from`; returns its size. Durable on return.
pub(super) fn write(
    to: &Path,
    manifest: &Manifest,
    from: &Path,
    done: &Done,
) -> Result<u64, BackupError> {
    let failed = BackupError::io("write", to);
    let mut file = private_new().open(to).map_err(&failed)?;
    let mut sink = Hashing { to: &mut file, hash: Sha256::new() };
    sink.write_all(&head(manifest)).map_err(&failed)?;
    let seconds = manifest.created_at.as_second();
    for member in &manifest.members {
        sink.write_all(&tar::header(&member.name, member.size, seconds)).map_err(&failed)?;
        let path = from.join(&member.name);
        let mut source = File::open(&path).map_err(BackupError::io("read", &path))?;
        let copied = pour(&mut source, &mut sink, member.size, done);
        if hex(&copied.map_err(&failed)?) != member.sha256 {
            return Err(failed(io::Error::other("a temporary file was changed meanwhile")));
        }
        sink.write_all(&vec![0; tar::padding(member.size)]).map_err(&failed)?;
    }
    let checksum = sink.hash.finalize().into();
    file.write_all(&tail(&checksum, seconds)).map_err(&failed)?;
    file.sync_all().map_err(&failed)?;
    Ok(file.metadata().map_err(&failed)?.len())
}

/// The size and SHA-256 of a file.
pub(super) fn measure(path: &Path, done: &Done) -> Result<(u64, String), BackupError> {
    let failed = BackupError::io("read", path);
    let mut file = File::open(path).map_err(&failed)?;
    let size = file.metadata().map_err(&failed)?.len();
    let hash = pour(&mut file, &mut io::sink(), size, done).map_err(&failed)?;
    Ok((size, hex(&hash)))
}

/// A backup file whose every byte was checked.
#[derive(Debug)]
pub(crate) struct Archive {
    file: File,
    pub(crate) manifest: Manifest,
    pub(crate) size: u64,
}

impl Archive {
    /// Opens a backup and checks all of it.
    pub(crate) fn open(path: &Path, done: &Done) -> Result<Self, BackupError> {
        let failed = BackupError::io("read", path);
        let mut file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BackupError::NoFile(path.to_owned()),
            _ => failed(error),
        })?;
        let size = file.metadata().map_err(&failed)?.len();
        let manifest = read_manifest(&mut file)?;
        let expected = expected_size(&manifest);
        if size < expected {
            return Err(BackupError::CutOff { found: size, expected });
        }
        if size > expected {
            return Err(BackupError::Changed);
        }
        file.rewind().map_err(&failed)?;
        let checksum = pour(&mut file, &mut io::sink(), size - TAIL, done).map_err(&failed)?;
        let mut end = Vec::new();
        file.read_to_end(&mut end).map_err(&failed)?;
        match end == tail(&checksum, manifest.created_at.as_second()) {
            true => Ok(Self { file, manifest, size }),
            false => Err(BackupError::Changed),
        }
    }

    /// Writes all members below a folder, each checked and durable.
    pub(crate) fn extract(&mut self, into: &Path, done: &Done) -> Result<(), BackupError> {
        let unread = |_| BackupError::Changed;
        let start = head(&self.manifest).len() as u64;
        self.file.seek(SeekFrom::Start(start)).map_err(unread)?;
        for member in &self.manifest.members {
            self.file.seek_relative(BLOCK as i64).map_err(unread)?;
            let path = into.join(&member.name);
            let failed = BackupError::io("write", &path);
            let folder = path.parent().unwrap_or(into);
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(&failed)?;
            let mut to = private_new().open(&path).map_err(&failed)?;
            let hash = pour(&mut self.file, &mut to, member.size, done).map_err(&failed)?;
            if hex(&hash) != member.sha256 {
                return Err(BackupError::Changed);
            }
            to.sync_all().map_err(&failed)?;
            self.file.seek_relative(tar::padding(member.size) as i64).map_err(unread)?;
        }
        Ok(())
    }
}

/// The manifest, checked only as far as needed to read on.
fn read_manifest(file: &mut File) -> Result<Manifest, BackupError> {
    let not_ours = |_| BackupError::NotABackup;
    let mut block = [0; BLOCK];
    file.read_exact(&mut block).map_err(not_ours)?;
    let size = tar::small_size(&block, MANIFEST).filter(|size| *size <= MOST);
    let mut bytes = vec![0; size.ok_or(BackupError::NotABackup)? as usize];
    // The file ends inside the manifest: how long it should be is not known.
    file.read_exact(&mut bytes).map_err(|_| BackupError::Changed)?;
    let manifest = Manifest::read(&bytes)?;
    match head(&manifest)[..BLOCK] == block {
        true => Ok(manifest),
        false => Err(BackupError::Changed),
    }
}

/// The manifest as the first member.
fn head(manifest: &Manifest) -> Vec<u8> {
    let json = serde_json::to_vec_pretty(manifest).expect("a manifest is plain data");
    let size = json.len() as u64;
    let mut bytes = tar::header(MANIFEST, size, manifest.created_at.as_second()).to_vec();
    bytes.extend(json);
    bytes.resize(bytes.len() + tar::padding(size), 0);
    bytes
}

fn tail(checksum: &[u8; 32], seconds: i64) -> Vec<u8> {
    let line = format!("{}\n", hex(checksum));
    let mut bytes = tar::header(CHECKSUM, line.len() as u64, seconds).to_vec();
    bytes.extend(line.as_bytes());
    bytes.resize(2 * BLOCK, 0);
    bytes.extend(tar::END);
    bytes
}

fn expected_size(manifest: &Manifest) -> u64 {
    let member =
        |size: u64| (BLOCK as u64).saturating_add(size).saturating_add(tar::padding(size) as u64);
    let members = manifest.members.iter().map(|m| member(m.size));
    members.fold(head(manifest).len() as u64 + TAIL, u64::saturating_add)
}

/// Copies exactly `size` bytes; returns their SHA-256.
fn pour(
    from: &mut impl Read,
    to: &mut impl Write,
    mut size: u64,
    done: &Done,
) -> io::Result<[u8; 32]> {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE]);
    while size > 0 {
        let length = size.min(PIECE as u64) as usize;
        from.read_exact(&mut piece[..length])?;
        hash.update(&piece[..length]);
        to.write_all(&piece[..length])?;
        size -= length as u64;
        done.add(length);
    }
    Ok(hash.finalize().into())
}

/// Hashes what it writes.
struct Hashing<'a> {
    to: &'a mut File,
    hash: Sha256,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn private_new() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::manifest::{FORMAT, Member};
    use super::*;

    /// A folder with two members, and the archive of them.
    fn written() -> (tempfile::TempDir, Manifest) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("relay")).unwrap();
        std::fs::write(folder.path().join("bowline.db"), [7; 1300]).unwrap();
        std::fs::write(folder.path().join("relay/identity"), "seed").unwrap();
        let member = |name: &str| {
            let (size, sha256) = measure(&folder.path().join(name), &Done::default()).unwrap();
            Member { name: name.into(), size, sha256 }
        };
        let manifest = Manifest {
            format: FORMAT,
            bowline: "0.1.0".into(),
            created_at: "2026-11-16T16:20:07.25Z".parse().unwrap(),
            schema_version: Some(5),
            sessions: Some(3),
            members: vec![member("bowline.db"), member("relay/identity")],
        };
        write(&folder.path().join("b.tar"), &manifest, folder.path(), &Done::default()).unwrap();
        (folder, manifest)
    }

    fn open(path: &Path) -> Result<Archive, BackupError> {
        Archive::open(path, &Done::default())
    }

    #[test]
    fn what_was_written_is_read_and_the_systems_tar_lists_it() {
        let (folder, manifest) = written();
        let path = folder.path().join("b.tar");
        let mut archive = open(&path).unwrap();
        assert_eq!(archive.manifest, manifest);
        let into = folder.path().join("out");
        archive.extract(&into, &Done::default()).unwrap();
        assert_eq!(std::fs::read(into.join("bowline.db")).unwrap(), [7; 1300]);
        assert_eq!(std::fs::read(into.join("relay/identity")).unwrap(), b"seed");
        let listed = Command::new("tar").arg("tf").arg(&path).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert_eq!(listed, "manifest.json\nbowline.db\nrelay/identity\nSHA256\n");
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (folder, _) = written();
        let path = folder.path().join("b.tar");
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            std::fs::write(&path, changed).unwrap();
            assert!(open(&path).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_file_that_is_cut_off_or_longer_is_refused() {
        let (folder, _) = written();
        let path = folder.path().join("b.tar");
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(open(&path).is_err(), "{length} bytes");
        }
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let expected = bytes.len() as u64;
        assert_eq!(open(&path).unwrap_err(), BackupError::CutOff { found: expected - 1, expected });
        std::fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
        assert_eq!(open(&path).unwrap_err(), BackupError::Changed);
    }

    #[test]
    fn another_file_is_no_backup() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for bytes in [&b""[..], b"hello", &[0; 4096]] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(open(&path).unwrap_err(), BackupError::NotABackup);
        }
    }
}
