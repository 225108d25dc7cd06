//! What is in a backup: the first member of the file, as JSON.
//!
//! Names of members are checked when a manifest is read: a restore writes below its folder only.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::BackupError;

/// The format that this version writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;
/// More than this is no manifest of ours.
pub(super) const MOST: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Grows when an older bowline could no longer restore the file.
    pub(crate) format: u32,
    /// The version that made it.
    pub(crate) bowline: String,
    /// Just before the database was read: what was acknowledged by then is inside.
    pub(crate) created_at: Timestamp,
    /// Of the gateway's database; none if only a control plane is inside.
    pub(crate) schema_version: Option<u32>,
    pub(crate) sessions: Option<u64>,
    pub(crate) members: Vec<Member>,
}

/// One file of the data folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its path below the data folder, with `/`.
    pub(crate) name: String,
    pub(crate) size: u64,
    /// Hexadecimal.
    pub(crate) sha256: String,
}

impl Manifest {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, BackupError> {
        /// All that a later format is sure to have.
        #[derive(Deserialize)]
        struct AnyFormat {
            format: u32,
        }
        let unreadable = |_| BackupError::Changed;
        let AnyFormat { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if format > FORMAT {
            return Err(BackupError::NewerFormat { found: format, known: FORMAT });
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        match manifest.members.iter().all(|member| is_safe(&member.name)) {
            true => Ok(manifest),
            false => Err(BackupError::Changed),
        }
    }
}

/// Whether the name is a plain path below a folder, and fits into a tar header.
fn is_safe(name: &str) -> bool {
    let plain = |part: &str| {
        let letters = part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        letters && !part.is_empty() && part != "." && part != ".."
    };
    name.len() <= 100 && name.split('/').all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leaves_the_folder_is_refused() {
        for name in ["bowline.db", "relay/pins.json"] {
            assert!(is_safe(name), "{name}");
        }
        for name in ["", "/etc/x", "../x", "a/../x", "a//x", ".", "a/", "a\\x", "a\nb"] {
            assert!(!is_safe(name), "{name:?}");
        }
        assert!(!is_safe(&"x".repeat(101)));
    }

    #[test]
    fn a_newer_format_is_named_whatever_else_it_says() {
        let read = Manifest::read(br#"{"format":2,"members":"elsewhere"}"#);
        assert_eq!(read, Err(BackupError::NewerFormat { found: 2, known: FORMAT }));
        assert_eq!(Manifest::read(b"{}"), Err(BackupError::Changed));
    }
}
