//! What models see of a log, cached for the next turn.
//!
//! A model is sent the whole history with every turn. Reading it from disk each time would make
//! turns slower the longer a session is. So the actor of a session in use caches it, as long as the
//! caches of all actors stay within a memory budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_sbp::context::{ContextEntry, SessionLog};
use bowline_sbp::id::Seq;
use bowline_sbp::message::{EntryKind, Message};
use bowline_sbp::session::Placed;

/// Memory per entry besides its text, in bytes.
const OVERHEAD: usize = 128;

/// A log up to a position, and its size, which is kept so that no turn has to add it up again.
#[derive(Debug)]
pub(crate) struct History {
    seq: Seq,
    log: SessionLog,
    bytes: usize,
}

impl History {
    pub(crate) fn new(seq: Seq, log: SessionLog) -> Self {
        let entries = log.entries.iter().map(|entry| size(&entry.message));
        let instruction = log.instruction.iter().flatten().map(size);
        let bytes = entries.chain(instruction).sum();
        Self { seq, log, bytes }
    }

    /// The log position of the last entry in it.
    pub(super) fn seq(&self) -> Seq {
        self.seq
    }

    pub(crate) fn log(&self) -> &SessionLog {
        &self.log
    }

    /// Adds a committed entry. Notes are not sent to models; messages of tool calls that the
    /// gateway ran are marked as hidden, because callers never saw them.
    fn add(&mut self, placed: &Placed) {
        let entry = &placed.entry;
        self.seq = placed.seq;
        if let Some(instruction) = &entry.instruction {
            self.bytes -= self.log.instruction.iter().flatten().map(size).sum::<usize>();
            self.bytes += instruction.iter().map(size).sum::<usize>();
            self.log.instruction = Some(instruction.clone());
        }
        let message = match entry.kind {
            EntryKind::Note => return,
            EntryKind::Action => entry.message.clone().hidden(),
            EntryKind::Message | EntryKind::Turn => entry.message.clone(),
        };
        self.bytes += size(&message);
        let known =
            ContextEntry::new(placed.seq, placed.turn_id, entry.caller, entry.replaces, message);
        self.log.entries.push(known.with_status(entry.status));
    }
}

fn size(message: &Message) -> usize {
    message.as_json().len() + OVERHEAD
}

/// An actor's cached history, and its share of the memory budget.
#[derive(Debug)]
pub(super) struct Kept {
    history: Option<History>,
    counted: usize,
    budget: Arc<Budget>,
}

/// The memory budget for the histories of all actors.
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

    /// Takes the history out, if it ends at `seq`; [`Kept::put`] puts it back.
    pub(super) fn take(&mut self, seq: Seq) -> Option<History> {
        self.history.take().filter(|history| history.seq == seq)
    }

    pub(super) fn put(&mut self, history: History) {
        self.history = Some(history);
        self.count();
    }

    /// Adds committed entries, oldest first.
    pub(super) fn grow<'a>(&mut self, entries: impl Iterator<Item = &'a Placed>) {
        for placed in entries {
            match &mut self.history {
                Some(history) if history.seq() + 1 == placed.seq => history.add(placed),
                _ => self.history = None,
            }
        }
        self.count();
    }

    /// Updates the budget. Over budget, the history is dropped, and read from disk when needed.
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
