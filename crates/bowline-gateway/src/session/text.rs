//! The text of a turn while it is generated, for any number of readers.
//!
//! Readers read by position, each at its own pace. Nothing is queued per reader, so a slow reader
//! costs no memory, misses nothing and blocks nobody. A new attempt is a new buffer.
//!
//! Invariant: the lock is held only to append or copy. Readers adapt and send their own copy.

use std::sync::atomic::{AtomicU64, Ordering};
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

    /// Chunks from position `from` on.
    pub(crate) fn chunks(&self, from: usize) -> Vec<Bytes> {
        self.lock().chunks.get(from..).unwrap_or_default().to_vec()
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
