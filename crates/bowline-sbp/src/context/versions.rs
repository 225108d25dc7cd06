//! Which answers supersede which.
//!
//! A turn that regenerates an answer names it ([`ContextEntry::replaces`]). All answers to one
//! question are versions of one answer, and the newest one counts, however many there are and
//! whichever of them each names.
//!
//! Invariants
//! - A partial answer does not supersede a complete one.
//! - A turn without an answer (it failed after its tool calls) supersedes nothing, and its calls are
//!   left out.
//! - With a superseded call of the caller's own tools go their results and what was answered to
//!   them.

use std::collections::HashMap;
use std::ops::Range;

use super::{CallerTag, ContextEntry, is_result};

/// The answers of a log that have several versions.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// For each answer: its versions as ranges of entries, oldest first.
    answers: Vec<Vec<Range<usize>>>,
    /// The answer whose first version begins at this entry.
    begins: HashMap<usize, usize>,
    /// For each entry, whether it is left out where it is in the log.
    left_out: Vec<bool>,
    superseded: Vec<bool>,
}

impl Versions {
    pub(super) fn of(entries: &[ContextEntry]) -> Self {
        let mut versions = Self::default();
        if entries.iter().all(|entry| entry.replaces.is_none()) {
            return versions;
        }
        versions.left_out = vec![false; entries.len()];
        versions.superseded = vec![false; entries.len()];
        let of_answer = versions.gather(entries);
        versions.supersede(entries, &of_answer);
        versions
    }

    /// The answer that begins with this entry, and where its first version ends.
    pub(super) fn begins_at(&self, at: usize) -> Option<(usize, usize)> {
        let answer = *self.begins.get(&at)?;
        Some((answer, self.answers[answer][0].end))
    }

    /// The entries of all versions of an answer, oldest first.
    pub(super) fn entries_of(&self, answer: usize) -> impl Iterator<Item = usize> {
        self.answers[answer].iter().cloned().flatten()
    }

    pub(super) fn is_left_out(&self, at: usize) -> bool {
        self.left_out.get(at).copied().unwrap_or_default()
    }

    pub(super) fn is_superseded(&self, at: usize) -> bool {
        self.superseded.get(at).copied().unwrap_or_default()
    }

    /// Finds the versions. Returns, for the entry of each version's answer, which answer it is.
    fn gather(&mut self, entries: &[ContextEntry]) -> HashMap<usize, usize> {
        let mut of_answer: HashMap<usize, usize> = HashMap::new();
        let mut done = 0;
        for (at, entry) in entries.iter().enumerate() {
            let Some(replaced) = entry.replaces.filter(|_| at >= done) else { continue };
            let of_turn = entries[at..].iter().take_while(|next| next.turn == entry.turn);
            let version = at..at + of_turn.count();
            done = version.end;
            let answered: Vec<_> = version.clone().filter(|n| entries[*n].is_answer()).collect();
            if answered.is_empty() {
                for n in version {
                    self.left_out[n] |= entries[n].message.is_hidden();
                }
                continue;
            }
            let Ok(first) = entries[..at].binary_search_by_key(&replaced, |entry| entry.seq) else {
                continue;
            };
            if !entries[first].is_answer() {
                continue;
            }
            let answer = *of_answer.entry(first).or_insert_with(|| {
                let begin = begin(entries, first);
                self.begins.insert(begin, self.answers.len());
                self.answers.push(std::iter::once(begin..first + 1).collect());
                self.answers.len() - 1
            });
            of_answer.extend(answered.into_iter().map(|n| (n, answer)));
            self.left_out[version.clone()].fill(true);
            self.answers[answer].push(version);
        }
        of_answer
    }

    /// Marks all versions but the one that counts, and what followed from them.
    fn supersede(&mut self, entries: &[ContextEntry], of_answer: &HashMap<usize, usize>) {
        let next = next_of_caller(entries);
        for versions in &self.answers {
            // The last entry of a version is its answer.
            let is_complete = |version: &Range<usize>| !entries[version.end - 1].is_partial;
            let counts = versions.iter().rposition(is_complete).unwrap_or(versions.len() - 1);
            let others = versions.iter().enumerate().filter(|(n, _)| *n != counts);
            for (_, version) in others {
                self.superseded[version.clone()].fill(true);
                for at in followed(entries, &next, version.end - 1) {
                    self.superseded[at] = true;
                    // The other versions of a following answer, too.
                    let others = of_answer.get(&at).map(|answer| &self.answers[*answer]);
                    for other in others.into_iter().flatten() {
                        self.superseded[other.clone()].fill(true);
                    }
                }
            }
        }
    }
}

/// Where an answer begins: with the tool calls of the gateway before it.
fn begin(entries: &[ContextEntry], answer: usize) -> usize {
    let turn = entries[answer].turn;
    let is_action = |entry: &&ContextEntry| entry.turn == turn && entry.message.is_hidden();
    answer - entries[..answer].iter().rev().take_while(is_action).count()
}

/// For each entry, the next one of the same caller.
fn next_of_caller(entries: &[ContextEntry]) -> Vec<Option<usize>> {
    let mut latest: HashMap<Option<CallerTag>, usize> = HashMap::new();
    let mut next = vec![None; entries.len()];
    for (at, entry) in entries.iter().enumerate().rev() {
        next[at] = latest.insert(entry.caller, at);
    }
    next
}

/// The entries that follow from a call of the caller's own tools: results, and the answer to them,
/// which may call again.
fn followed(entries: &[ContextEntry], next: &[Option<usize>], answer: usize) -> Vec<usize> {
    let mut followed = Vec::new();
    let mut calls = !entries[answer].results.is_empty();
    let mut turn = None;
    let mut at = next[answer];
    while let Some(entry) = at.filter(|_| calls).map(|at| &entries[at]) {
        if is_result(&entry.message) && !entry.message.is_hidden() {
            turn = Some(entry.turn);
        } else if turn != Some(entry.turn) || !(entry.message.is_hidden() || entry.is_answer()) {
            break;
        }
        if entry.is_answer() {
            calls = !entry.results.is_empty();
            turn = None;
        }
        followed.extend(at);
        at = at.and_then(|at| next[at]);
    }
    followed
}
