//! Searches the memory of a process, and files, for what must not be there.

use std::io::Write as _;
use std::path::Path;

/// Writes the memory of a process to a file, as far as it can be read; returns how much that is.
pub(crate) fn dump(pid: u32, to: &Path) -> u64 {
    use std::os::unix::fs::FileExt as _;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut file = std::fs::File::create(to).unwrap();
    let mut written = 0;
    let writable = |line: &&str| line.split_whitespace().nth(1).unwrap().starts_with("rw");
    for line in maps.lines().filter(writable) {
        let (from, to) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut part = vec![0; (to - from) as usize];
        // Some mappings cannot be read.
        if memory.read_exact_at(&mut part, from).is_ok() {
            file.write_all(&part).unwrap();
            written += to - from;
        }
    }
    written
}

/// Whether the bytes are in one of the files below this path. By grep: memory is large, and test code
/// slow.
pub(crate) fn is_in(bytes: &[u8], path: &Path) -> bool {
    // grep reads lines: a key or a hash in which a byte is a line break is found by its longest part without one.
    let parts = bytes.split(|byte| *byte == b'\n');
    let part = parts.max_by_key(|part| part.len()).unwrap_or_default();
    assert!(part.len() >= 4, "too little to search for");
    let pattern: String = part.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let mut grep = std::process::Command::new("grep");
    let found = grep.env("LC_ALL", "C").args(["-raqP", &pattern]).arg(path).status().unwrap();
    assert!(matches!(found.code(), Some(0 | 1)), "{found}");
    found.success()
}

#[test]
fn bytes_are_found_also_if_one_of_them_is_a_line_break() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), b"\x00\xff\x01key\n\n-of-bytes\x00\n").unwrap();
    for (bytes, found) in
        [(&b"\x01key\n\n-of-bytes\x00"[..], true), (b"-of-bytes", true), (b"-of-words\n", false)]
    {
        assert_eq!(is_in(bytes, folder.path()), found, "{bytes:?}");
    }
}
