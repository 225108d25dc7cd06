//! The text of a turn while it is generated, for any number of readers.
//!
//! Readers read by position, each at its own pace. Nothing is queued per reader, so a slow reader
//! costs no memory, misses nothing and blocks nobody. A new attempt is a new buffer.
//!
//! At another replica than the one that runs the turn, a buffer is filled with copies of pieces of the
//! owner's, which say where they belong.
//!
//! Invariant: the lock is held only to append or copy. Readers adapt and send their own copy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_sbp::id::{Seq, TurnId};
use bytes::Bytes;
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct TextBuffer {
    pub(crate) turn: TurnId,
    pub(crate) attempt: u32,
    /// The log position that the turn's answer will have; zero until it is known.
    seq: AtomicU64,
    /// Whoever wrote it has lost the session: another attempt begins a text of its own.
    abandoned: AtomicBool,
    written: Mutex<Written>,
    grew: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Written {
    /// The answer's chunks as OpenAI-shaped JSON; only if the caller streams.
    chunks: Vec<Bytes>,
    text: String,
}

impl TextBuffer {
    pub(crate) fn new(turn: TurnId, attempt: u32) -> Self {
        Self {
            turn,
            attempt,
            seq: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
            written: Mutex::default(),
            grew: watch::Sender::new(()),
        }
    }

    pub(crate) fn seq(&self) -> Option<Seq> {
        Some(self.seq.load(Ordering::Acquire)).filter(|seq| *seq > 0)
    }

    /// Entries that are logged before the answer move its position.
    pub(crate) fn set_seq(&self, seq: Seq) {
        self.seq.store(seq, Ordering::Release);
    }

    /// Adds a chunk for HTTP readers and its text for surfaces.
    pub(crate) fn push(&self, chunk: Option<Bytes>, text: &str) {
        {
            let mut written = self.lock();
            written.chunks.extend(chunk);
            written.text.push_str(text);
        }
        // No race with a new subscriber: it reads the text after subscribing.
        if self.grew.receiver_count() > 0 {
            self.grew.send_replace(());
        }
    }

    /// Whether the turn was taken over before its text was complete: nothing is added any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// How many chunks and bytes of text there are.
    pub(super) fn position(&self) -> (usize, usize) {
        let written = self.lock();
        (written.chunks.len(), written.text.len())
    }

    /// Adds a copy of a piece that begins at that position; what is there already is skipped. Adds
    /// nothing and returns false if something before it is missing.
    pub(super) fn fill(
        &self,
        (chunk, byte): (usize, usize),
        chunks: Vec<Bytes>,
        text: &str,
    ) -> bool {
        {
            let mut written = self.lock();
            let (Some(known), Some(read)) =
                (written.chunks.len().checked_sub(chunk), written.text.len().checked_sub(byte))
            else {
                return false;
            };
            written.chunks.extend(chunks.into_iter().skip(known));
            written.text.push_str(text.get(read..).unwrap_or_default());
        }
        if self.grew.receiver_count() > 0 {
            self.grew.send_replace(());
        }
        true
    }

    /// Chunks from position `from` on.
    pub(crate) fn chunks(&self, from: usize) -> Vec<Bytes> {
        self.lock().chunks.get(from..).unwrap_or_default().to_vec()
    }

    /// The same up to so many bytes, and at least one.
    pub(super) fn chunks_within(&self, from: usize, mut limit: usize) -> Vec<Bytes> {
        let written = self.lock();
        let mut chunks = Vec::new();
        for chunk in written.chunks.get(from..).unwrap_or_default() {
            if !chunks.is_empty() && chunk.len() > limit {
                break;
            }
            limit = limit.saturating_sub(chunk.len());
            chunks.push(chunk.clone());
        }
        chunks
    }

    /// The text from byte `from` on, up to about so many bytes, as a copy.
    pub(super) fn text_within(&self, from: usize, limit: usize) -> String {
        let written = self.lock();
        let rest = written.text.get(from..).unwrap_or_default();
        // No limit is smaller than a character.
        rest[..rest.ceil_char_boundary(limit)].to_owned()
    }

    /// The text from byte `from` on, as a copy.
    pub(crate) fn text_from(&self, from: usize) -> String {
        self.lock().text.get(from..).unwrap_or_default().to_owned()
    }

    /// Wakes whenever there is more. Subscribe before reading.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.grew.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        // Every change leaves the data consistent, so a poisoned lock is safe to use.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn buffer() -> TextBuffer {
        TextBuffer::new(TurnId(Uuid::nil()), 1)
    }

    #[test]
    fn every_reader_reads_at_its_own_pace() {
        let buffer = buffer();
        buffer.push(Some(Bytes::from_static(b"1")), "a");
        buffer.push(Some(Bytes::from_static(b"2")), "é");
        assert_eq!(buffer.chunks(0).len(), 2);
        assert_eq!(buffer.chunks(1), [Bytes::from_static(b"2")]);
        assert!(buffer.chunks(9).is_empty());
        assert_eq!((buffer.text_from(0), buffer.text_from(1)), ("aé".into(), "é".into()));
        assert_eq!(buffer.text_from(2), "", "inside a character");
        assert_eq!(buffer.text_from(99), "");
    }

    #[tokio::test]
    async fn who_subscribes_before_looking_misses_nothing() {
        let buffer = buffer();
        let mut grew = buffer.subscribe();
        buffer.push(None, "a");
        grew.changed().await.unwrap();
        assert_eq!(buffer.text_from(0), "a");
    }

    #[test]
    fn a_copy_is_filled_in_order_and_says_what_is_missing() {
        let copy = buffer();
        let chunk = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert!(copy.fill((0, 0), vec![chunk("1")], "a"));
        assert!(!copy.fill((2, 1), vec![chunk("3")], ""), "the second chunk is missing");
        assert!(!copy.fill((1, 2), Vec::new(), "c"), "the second letter is missing");
        assert!(copy.fill((0, 0), vec![chunk("1"), chunk("2")], "aé"), "part of it is known");
        assert!(copy.fill((0, 0), vec![chunk("1")], "a"), "all of it is known");
        assert_eq!((copy.position(), &*copy.text_from(0)), ((2, 3), "aé"));
        assert_eq!(copy.chunks(0), [chunk("1"), chunk("2")]);
    }

    #[test]
    fn what_is_read_piece_by_piece_is_the_whole() {
        let text = buffer();
        text.push(Some(Bytes::from_static(b"1")), "aé");
        text.push(Some(Bytes::from_static(b"22")), "🦀");
        text.push(Some(Bytes::from_static(b"55555")), "");
        let lengths =
            |from, limit| text.chunks_within(from, limit).iter().map(Bytes::len).collect();
        let lengths: Vec<Vec<_>> = vec![lengths(0, 3), lengths(0, 2), lengths(2, 3), lengths(3, 3)];
        assert_eq!(lengths, [vec![1, 2], vec![1], vec![5], vec![]]);
        let said = [text.text_within(0, 2), text.text_within(3, 2), text.text_within(7, 2)];
        assert_eq!(said, ["aé", "🦀", ""]);
    }

    #[test]
    fn the_model_goes_on_writing_while_a_reader_works_on_what_it_read() {
        let buffer = buffer();
        buffer.push(Some(Bytes::from_static(b"1")), "# one");
        // The writer is not blocked while a reader adapts its copy.
        let (text, chunks) = (buffer.text_from(0), buffer.chunks(0));
        assert!(buffer.written.try_lock().is_ok(), "a reader holds the lock");
        buffer.push(None, " two");
        assert_eq!((&*text, chunks.len()), ("# one", 1));
    }

    #[test]
    fn a_turns_position_is_known_when_it_runs() {
        let buffer = buffer();
        assert_eq!(buffer.seq(), None);
        buffer.set_seq(4);
        assert_eq!(buffer.seq(), Some(4));
    }
}
