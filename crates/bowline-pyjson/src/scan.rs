//! Finds the next special byte in a string.
//!
//! Nearly all bytes of a bundle are plain text inside strings. Scanning them eight at a time is
//! what makes the content id cheap.

/// The length of the prefix that a parser may copy: up to a quote, a backslash or a control
/// character. Non-ASCII bytes are plain.
pub(super) fn readable(bytes: &[u8]) -> usize {
    run(bytes, |word| special(word) & !word)
}

/// The length of the prefix that a writer may copy: printable ASCII without quotes and
/// backslashes. DEL is not printable here, because Python escapes it.
pub(super) fn writable(bytes: &[u8]) -> usize {
    run(bytes, |word| special(word) | word | word.wrapping_add(ONES))
}

/// Sets the high bit of control characters, quotes and backslashes. The result for non-ASCII bytes
/// is unspecified. A borrow propagates upwards only, so the lowest mark is always correct.
fn special(word: u64) -> u64 {
    let below_space = word.wrapping_sub(ONES * u64::from(b' '));
    let equal = |byte: u8| (word ^ (ONES * u64::from(byte))).wrapping_sub(ONES);
    below_space | equal(b'"') | equal(b'\\')
}

/// Counts bytes until one is marked by its high bit.
#[inline(always)]
fn run(bytes: &[u8], mark: impl Fn(u64) -> u64) -> usize {
    let mark = |word: &[u8; 8]| mark(u64::from_le_bytes(*word)) & HIGH;
    // Four words per branch, which the compiler turns into vector instructions.
    let (blocks, _) = bytes.as_chunks::<32>();
    let plain =
        |block: &&[u8; 32]| block.as_chunks().0.iter().fold(0, |all, word| all | mark(word)) == 0;
    let skipped = 32 * blocks.iter().take_while(plain).count();

    for (index, word) in bytes[skipped..].as_chunks().0.iter().enumerate() {
        let marks = mark(word);
        if marks != 0 {
            return skipped + index * 8 + first(marks);
        }
    }
    let Some(last) = bytes.last_chunk() else {
        return first(mark(&padded(bytes))).min(bytes.len());
    };
    // The last word overlaps bytes that are known to be plain. Without a mark, `first` is 8.
    bytes.len() - 8 + first(mark(last))
}

/// Up to seven bytes, padded with zeros. Assembled in a register: a load after single-byte stores
/// would stall.
fn padded(bytes: &[u8]) -> [u8; 8] {
    let word = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(low), Some(high)) => {
            let shift = 8 * (bytes.len() - 4);
            u64::from(u32::from_le_bytes(*low)) | u64::from(u32::from_le_bytes(*high)) << shift
        }
        _ => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    word.to_le_bytes()
}

/// The index of the lowest mark; 8 if there is none.
fn first(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES << 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place_is_judged_alike() {
        for byte in 0..=255u8 {
            let quoted = matches!(byte, b'"' | b'\\');
            let stops_reader = byte < 0x20 || quoted;
            let stops_writer = stops_reader || byte >= 0x7f;
            for length in 0..20 {
                for place in 0..length {
                    let mut bytes = vec![b'a'; length];
                    bytes[place] = byte;
                    let expected = |stops: bool| if stops { place } else { length };
                    assert_eq!(readable(&bytes), expected(stops_reader), "{byte:#x} at {place}");
                    assert_eq!(writable(&bytes), expected(stops_writer), "{byte:#x} at {place}");
                }
            }
        }
    }

    #[test]
    fn the_first_of_several_special_bytes_is_found() {
        // 0x21 and 0x23 sit one past a special byte: a borrow would mark them falsely.
        assert_eq!(readable(b"ab\"!\"!#]"), 2);
        assert_eq!(readable(b"!\x1f !!!!!"), 1);
        assert_eq!(writable(b"~\x80\x7f\"\\abc"), 1);
        assert_eq!(readable(b""), 0);
    }
}
