//! A pool of write buffers, one pool per thread. A connection holds no buffer while its queue is
//! empty, and a busy connection needs a new one every few microseconds: allocating it each time,
//! with its page faults, would cost more than filling and writing it.

use std::cell::RefCell;

/// The most buffers that each thread keeps.
const MOST: usize = 16;
/// Smaller buffers are freed: they are not worth keeping.
const SMALLEST: usize = 2 << 10;
/// Larger buffers are freed: they were allocated for a burst that is over.
const LARGEST: usize = 256 << 10;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with a capacity of at least `room` bytes.
pub(crate) fn take(room: usize) -> Vec<u8> {
    let kept = KEPT.with_borrow_mut(Vec::pop);
    let mut buffer = kept.unwrap_or_default();
    buffer.reserve(room.max(512));
    buffer
}

/// Returns a buffer to the pool, and leaves an empty one without capacity in its place.
pub(crate) fn give(buffer: &mut Vec<u8>) {
    let mut buffer = std::mem::take(buffer);
    if (SMALLEST..=LARGEST).contains(&buffer.capacity()) {
        buffer.clear();
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < MOST {
                kept.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_and_not_without_end() {
        for _ in 0..2 * MOST {
            let mut buffer = Vec::with_capacity(4 << 10);
            buffer.push(7);
            give(&mut buffer);
            assert_eq!(buffer.capacity(), 0);
        }
        assert_eq!(KEPT.with_borrow(Vec::len), MOST);
        let again = take(1);
        assert!(again.is_empty() && again.capacity() >= 4 << 10);
        give(&mut Vec::with_capacity(LARGEST + 1));
        give(&mut Vec::with_capacity(SMALLEST - 1));
        assert_eq!(KEPT.with_borrow(Vec::len), MOST - 1, "neither was kept");
    }
}
