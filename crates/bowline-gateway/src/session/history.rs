//! A conversation, kept ready for the next turn.
//!
//! A model wants the whole history with every turn. Reading it anew each time would make a turn in a
//! long session cost what all turns before it cost together. So the actor of a session that is in use
//! keeps it, as long as all actors together stay within a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_sbp::id::Seq;
use bowline_sbp::message::{EntryKind, Message};
use bowline_sbp::session::Placed;

/// What a message takes beside its text.
const OVERHEAD: usize = 64;

/// The messages of a log up to a position, and how much memory they take: counting them anew would
/// cost what all messages together cost.
#[derive(Debug, Clone)]
pub(crate) struct History {
    seq: Seq,
    /// Shared with a model while it is asked, and not copied when it is not.
    messages: Arc<Vec<Message>>,
    bytes: usize,
}

impl History {
    pub(crate) fn new(seq: Seq, messages: Vec<Message>) -> Self {
        let bytes = messages.iter().map(size).sum();
        Self { seq, messages: Arc::new(messages), bytes }
    }

    /// The position it reaches to.
    pub(super) fn seq(&self) -> Seq {
        self.seq
    }

    pub(crate) fn messages(&self) -> &Arc<Vec<Message>> {
        &self.messages
    }

    pub(crate) fn push(&mut self, message: Message) {
        self.bytes += size(&message);
        Arc::make_mut(&mut self.messages).push(message);
    }

    /// Takes the newest messages away again.
    pub(crate) fn drop_last(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let messages = Arc::make_mut(&mut self.messages);
        let kept = messages.len().saturating_sub(count);
        self.bytes -= messages.drain(kept..).map(|message| size(&message)).sum::<usize>();
    }

    /// An entry that was written. Notes are not for models, and what the gateway did by itself was
    /// never seen by callers.
    fn add(&mut self, placed: &Placed) {
        self.seq = placed.seq;
        match placed.entry.kind {
            EntryKind::Note => {}
            EntryKind::Action => self.push(placed.entry.message.clone().hidden()),
            EntryKind::Message | EntryKind::Turn => self.push(placed.entry.message.clone()),
        }
    }
}

fn size(message: &Message) -> usize {
    message.as_json().len() + OVERHEAD
}

/// The history that an actor keeps, and its share of the memory for all of them.
#[derive(Debug)]
pub(super) struct Kept {
    history: Option<History>,
    counted: usize,
    budget: Arc<Budget>,
}

/// Memory for the histories of all actors.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    most: usize,
}

impl Budget {
    pub(super) fn new(most: usize) -> Self {
        Self { used: AtomicUsize::new(0), most }
    }
}

impl Kept {
    pub(super) fn new(budget: Arc<Budget>, history: Option<History>) -> Self {
        Self { history, counted: 0, budget }
    }

    /// Gives away the history up to that position, if it is here. Whoever has it alone can add to
    /// it without a copy of everything; [`Kept::put`] has it back.
    pub(super) fn take(&mut self, seq: Seq) -> Option<History> {
        self.history.take().filter(|history| history.seq == seq)
    }

    pub(super) fn put(&mut self, history: History) {
        self.history = Some(history);
        self.count();
    }

    /// Entries that were written, oldest first.
    pub(super) fn grow<'a>(&mut self, entries: impl Iterator<Item = &'a Placed>) {
        for placed in entries {
            match &mut self.history {
                Some(history) if history.seq() + 1 == placed.seq => history.add(placed),
                _ => self.history = None,
            }
        }
        self.count();
    }

    /// Beyond the bound it is let go, and read from disk again when it is needed.
    fn count(&mut self) {
        let bytes = self.history.as_ref().map_or(0, |history| history.bytes);
        self.budget.used.fetch_sub(self.counted, Ordering::Relaxed);
        let used = self.budget.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.counted = bytes;
        if used > self.budget.most && self.history.take().is_some() {
            self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
            self.counted = 0;
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.counted, Ordering::Relaxed);
    }
}
