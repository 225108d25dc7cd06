//! The tar format, as far as a backup needs it: plain files, written in one way only.
//!
//! There is no parser. A reader knows from the manifest what each header must be, writes it anew and
//! compares. So nothing in a file that somebody else wrote is interpreted, except for the size of the
//! first member.

/// Everything in a tar file is in blocks of this size.
pub(super) const BLOCK: usize = 512;
/// The end of an archive: two blocks of zeros.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// The size field holds 11 octal digits; larger sizes are written in binary, as GNU tar does.
const OCTAL_SIZES: u64 = 1 << 33;

/// The header of a file that only its owner may read. Names have at most 100 bytes.
pub(super) fn header(name: &str, size: u64, seconds: i64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(100)]);
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    match size {
        ..OCTAL_SIZES => put(124, format!("{size:011o}\0").as_bytes()),
        _ => {
            put(124, &[0x80]);
            put(128, &size.to_be_bytes());
        }
    }
    put(136, format!("{:011o}\0", seconds.clamp(0, (1 << 33) - 1)).as_bytes());
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// The size in the header of a small file with this name.
pub(super) fn small_size(block: &[u8; BLOCK], name: &str) -> Option<u64> {
    let named = block.strip_prefix(name.as_bytes()).is_some_and(|rest| rest[0] == 0);
    let digits = std::str::from_utf8(&block[124..135]).ok()?;
    named.then(|| u64::from_str_radix(digits, 8).ok()).flatten()
}

/// How many zeros follow a file of this size.
pub(super) fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_systems_tar_reads_what_is_written() {
        let mut bytes = header("folder/name", 5, 1_700_000_000).to_vec();
        bytes.extend(b"hello");
        bytes.extend(vec![0; padding(5)]);
        bytes.extend(END);
        let mut tar = Command::new("tar")
            .args(["tvf", "-", "--utc", "--numeric-owner"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        let listed = String::from_utf8(output.stdout).unwrap();
        let words: Vec<_> = listed.split_whitespace().collect();
        assert_eq!(words, ["-rw-------", "0/0", "5", "2023-11-14", "22:13", "folder/name"]);
    }

    #[test]
    fn sizes_from_8_gib_are_binary() {
        let small = header("a", OCTAL_SIZES - 1, 0);
        assert_eq!(&small[124..136], b"77777777777\0");
        assert_eq!(small_size(&small, "a"), Some(OCTAL_SIZES - 1));
        let large = header("a", OCTAL_SIZES, 0);
        assert_eq!(&large[124..136], &[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(small_size(&large, "a"), None);
        assert_eq!(small_size(&small, "b"), None);
    }

    #[test]
    fn files_fill_whole_blocks() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
    }
}
