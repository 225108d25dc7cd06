//! Where the entries of a log are stored: its own, and those that it shares with its bases.
//!
//! Apart from the backends, which read the rows: a fork of a fork is walked in the same way in each.
//!
//! Invariants
//! - A base is shared beyond its own base: every log of a chain adds at least one entry, so a chain
//!   of bases is never longer than the log.

use bowline_sbp::id::{AgentId, Seq};

use crate::{Entry, Error, Result};

/// The log entries that a session stores itself. `K` names the session or trunk in the database.
pub(crate) struct OwnLog<K> {
    pub(crate) key: K,
    /// The log that it is based on, and the last shared position.
    pub(crate) base: Option<(K, Seq)>,
    pub(crate) agent: String,
}

/// A contiguous range of entries of one log.
pub(crate) struct LogRange<K> {
    pub(crate) key: K,
    pub(crate) after: Seq,
    pub(crate) to: Seq,
    /// The agent of these turns, if not the session's own agent: the session's before a handoff.
    agent: Option<AgentId>,
}

impl<K> LogRange<K> {
    /// Names the agent in entries of this range that do not name one.
    pub(crate) fn name_agent(&self, entries: &mut [Entry]) {
        let Some(agent) = &self.agent else { return };
        for entry in entries {
            entry.agent_id.get_or_insert_with(|| agent.clone());
        }
    }
}

/// The ranges that hold the entries after `after` and up to `to`, oldest first. `read` reads the log
/// that another one is based on.
pub(crate) fn ranges<K: Copy>(
    last: OwnLog<K>,
    after: Seq,
    mut to: Seq,
    mut read: impl FnMut(K) -> Result<OwnLog<K>>,
) -> Result<Vec<LogRange<K>>> {
    let mut found = Vec::with_capacity(1);
    let reader = last.agent.clone();
    let mut log = last;
    loop {
        let begins = log.base.map_or(0, |(_, seq)| seq).max(after);
        if begins < to {
            let agent = (log.agent != reader).then(|| log.agent.parse()).transpose();
            let agent = agent.map_err(|_| Error::Corrupt("an agent id".into()))?;
            found.push(LogRange { key: log.key, after: begins, to, agent });
        }
        match log.base {
            Some((key, seq)) if seq > after => {
                to = to.min(seq);
                log = read(key)?;
            }
            _ => break,
        }
    }
    found.reverse();
    Ok(found)
}

/// The range that holds this position; `ranges` are oldest first.
pub(crate) fn holding<K: Copy>(ranges: &[LogRange<K>], seq: Seq) -> Result<K> {
    let nth = ranges.partition_point(|range| range.to < seq);
    let range = ranges.get(nth).ok_or_else(|| Error::Corrupt("a log with a gap".into()))?;
    Ok(range.key)
}

/// A binary search for the turn of a step: steps only grow along a log.
#[derive(Debug)]
pub(crate) struct StepSearch {
    step: u64,
    low: Seq,
    high: Seq,
    last_seq: Seq,
}

impl StepSearch {
    pub(crate) fn new(step: u64, last_seq: Seq) -> Self {
        Self { step, low: 1, high: last_seq + 1, last_seq }
    }

    /// The next position to look at, until there is none.
    pub(crate) fn next(&self) -> Option<Seq> {
        (self.low < self.high).then(|| self.low + (self.high - self.low) / 2)
    }

    /// The entry at [`StepSearch::next`] has that step.
    pub(crate) fn saw(&mut self, at: Seq, step: u64) {
        if step < self.step {
            self.low = at + 1;
        } else {
            self.high = at;
        }
    }

    /// The position at which the turn of the step has to be, if the log holds it.
    pub(crate) fn candidate(&self) -> Option<Seq> {
        (self.low <= self.last_seq).then_some(self.low)
    }

    /// The end of the log after that step. An imported log need not hold the turns of the session's
    /// first steps: after those the fork's log is still empty.
    pub(crate) fn end(&self, candidate_is_its_turn: bool) -> Seq {
        if candidate_is_its_turn { self.low } else { self.low - 1 }
    }
}
