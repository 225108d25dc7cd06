//! The history of entered lines: one file for each user, readable by nobody else.
//!
//! One JSON string a line, so that a message of several lines is one entry. Appended to, so that
//! several chats at once lose nothing; cut to the newest [`MOST`] when it has grown to twice that.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bowline_net::private_file;

use crate::paths;

const FILE: &str = "chat_history";
/// The number of entries that are kept.
const MOST: usize = 1000;

#[derive(Debug)]
pub(super) struct ChatHistory {
    path: PathBuf,
}

impl ChatHistory {
    /// The user's history file and its entries, oldest first. A file that cannot be read is empty.
    pub(super) fn open() -> (Self, Vec<String>) {
        Self::at(&paths::state().join(FILE))
    }

    fn at(path: &Path) -> (Self, Vec<String>) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut entries: Vec<String> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if entries.len() > 2 * MOST {
            entries.drain(..entries.len() - MOST);
            let lines: String = entries.iter().map(|entry| as_line(entry)).collect();
            // Without it the file only stays long.
            let _ = private_file::replace(path, lines.as_bytes());
        }
        (Self { path: path.to_owned() }, entries)
    }

    /// Appends an entry. Errors are ignored: a chat works without a history.
    pub(super) fn append(&self, entry: &str) {
        if let Some(folder) = self.path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path);
        let _ = file.and_then(|mut file| file.write_all(as_line(entry).as_bytes()));
    }
}

fn as_line(entry: &str) -> String {
    serde_json::Value::from(entry).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn entries_come_back_whole_and_only_the_owner_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/history");
        let (history, entries) = ChatHistory::at(&path);
        assert!(entries.is_empty());
        history.append("one");
        ChatHistory::at(&path).0.append("two\nlines \u{1F980}");
        assert_eq!(ChatHistory::at(&path).1, ["one", "two\nlines \u{1F980}"]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_long_history_is_cut_to_its_newest_entries() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let lines: String = (0..=2 * MOST).map(|n| as_line(&n.to_string())).collect();
        std::fs::write(&path, format!("not JSON\n{lines}")).unwrap();
        let (_, entries) = ChatHistory::at(&path);
        assert_eq!((entries.len(), entries.last().unwrap().as_str()), (MOST, "2000"));
        assert_eq!(ChatHistory::at(&path).1, entries);
    }
}
