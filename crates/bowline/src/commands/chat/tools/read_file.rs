//! The tool `read_file`: reads text files and lists folders under one shared folder. Symbolic links
//! cannot lead outside.

use std::path::{Path, PathBuf};

use bowline_client::surface::ToolOutcome;
use serde_json::{Value, json};

use super::required;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 512 << 10;
/// The most entries of a folder that are listed.
const MOST_NAMES: usize = 1000;

pub(super) async fn read(folder: &Path, input: &Value) -> ToolOutcome {
    let (folder, path) = (folder.to_owned(), required(input, "path")?.to_owned());
    let read = tokio::task::spawn_blocking(move || read_now(&folder, &path)).await;
    read.unwrap_or_else(|_| Err("the file could not be read".into()))
}

fn read_now(folder: &Path, path: &str) -> ToolOutcome {
    let file = within(folder, path)?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    if about.is_dir() {
        return list(&file);
    }
    if !about.is_file() {
        return Err("not a regular file or folder".into());
    }
    if about.len() > LARGEST {
        return Err(format!("the file has {} bytes; at most {LARGEST} are read", about.len()));
    }
    let text = std::fs::read(&file).map_err(|error| error.to_string())?;
    let text = String::from_utf8(text).map_err(|_| "the file is not text".to_owned())?;
    Ok(json!({ "text": text }))
}

/// The canonical path of a file, if it is inside the folder. Symbolic links are resolved before the
/// check.
fn within(folder: &Path, path: &str) -> Result<PathBuf, String> {
    let file = folder.join(path).canonicalize().map_err(|_| "there is no such file".to_owned())?;
    match file.starts_with(folder) {
        true => Ok(file),
        // The same error as for a missing file: must not reveal what exists outside.
        false => Err("there is no such file".into()),
    }
}

fn list(folder: &Path) -> ToolOutcome {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut names: Vec<_> = entries
        .flatten()
        .map(|entry| {
            let mark = if entry.path().is_dir() { "/" } else { "" };
            format!("{}{mark}", entry.file_name().to_string_lossy())
        })
        .take(MOST_NAMES)
        .collect();
    names.sort();
    Ok(json!({ "files": names }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_under_the_folder_is_read() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let shared = outside.path().join("shared");
        std::fs::create_dir_all(shared.join("sub")).unwrap();
        std::fs::write(shared.join("sub/a.txt"), "hello").unwrap();
        std::fs::write(shared.join("raw"), [0xff, 0xfe]).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(outside.path(), shared.join("link")).unwrap();
        let shared = shared.canonicalize().unwrap();
        let read = |path: &str| read_now(&shared, path);
        assert_eq!(read("sub/a.txt"), Ok(json!({ "text": "hello" })));
        assert_eq!(read("sub"), Ok(json!({ "files": ["a.txt"] })));
        let secret = outside.path().join("secret");
        for path in
            ["../secret", "link/secret", secret.to_str().unwrap(), "sub/../../secret", "nope"]
        {
            assert_eq!(read(path), Err("there is no such file".into()), "{path}");
        }
        assert_eq!(read("raw"), Err("the file is not text".into()));
    }
}
