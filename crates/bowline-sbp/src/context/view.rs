//! The stored conversation as models see it: the current instruction first, then the entries, each
//! answer in the place of its first version, and tool results behind their calls.

use super::results::{Told, behind_calls};
use super::versions::Versions;
use super::{ContextEntry, SessionLog};
use crate::message::Message;

/// Whether an entry holds an instruction: system messages of callers do, and those that open the
/// log. Others (notes of a handoff) are part of the conversation.
fn is_instruction(entry: &ContextEntry, at: usize, opening: usize) -> bool {
    entry.is_system() && (at < opening || entry.caller.is_some())
}

/// The conversation before a turn, without the instruction. Superseded entries are in it, before
/// those that supersede them: a caller may still send them.
#[derive(Debug)]
pub(super) struct LogView<'a> {
    log: &'a SessionLog,
    places: Vec<Place>,
    /// The places in the log of the system messages that stand for the instruction, unless the log
    /// has a newer one.
    instruction: Vec<usize>,
    /// Some answer has several versions.
    pub(super) has_versions: bool,
}

/// An entry of the conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Its index in the log.
    at: usize,
    /// The answer that it belongs to, if that has several versions.
    pub(super) answer: Option<usize>,
    pub(super) superseded: bool,
    /// Whether callers can have seen it.
    pub(super) is_visible: bool,
}

impl<'a> LogView<'a> {
    /// The view of the log entries before `end`.
    pub(super) fn new(log: &'a SessionLog, end: usize) -> Self {
        let entries = &log.entries[..end];
        let (places, instruction) = (Vec::with_capacity(end), Vec::new());
        let mut view = Self { log, places, instruction, has_versions: false };
        let opening = log.entries.iter().take_while(|entry| entry.is_system()).count();
        // Most logs have one version of each answer. They are read once: a pass over a long log takes
        // longer than the rest of a turn's plan.
        let mut calls = false;
        for (at, entry) in entries.iter().enumerate() {
            if entry.replaces.is_some() {
                view.has_versions = true;
                break;
            }
            calls |= !entry.results.is_empty();
            view.add(at, opening, None, false);
        }
        if view.has_versions {
            view.places.clear();
            view.instruction.clear();
            calls = view.add_versions(&Versions::of(entries), end, opening);
        }
        if calls {
            view.places = behind_calls(view.places, |place: Place| match place.superseded {
                true => Told::alone(&entries[place.at].message),
                false => Told::from(&entries[place.at]),
            });
        }
        view
    }

    /// The entries of a log whose answers may have several versions. Returns whether some call tools.
    fn add_versions(&mut self, versions: &Versions, end: usize, opening: usize) -> bool {
        let mut calls = false;
        let mut add = |at: usize, answer: Option<usize>| {
            calls |= !self.log.entries[at].results.is_empty();
            self.add(at, opening, answer, versions.is_superseded(at));
        };
        let mut at = 0;
        while at < end {
            if let Some((answer, first_end)) = versions.begins_at(at) {
                versions.entries_of(answer).for_each(|at| add(at, Some(answer)));
                at = first_end;
            } else {
                if !versions.is_left_out(at) {
                    add(at, None);
                }
                at += 1;
            }
        }
        calls
    }

    fn add(&mut self, at: usize, opening: usize, answer: Option<usize>, superseded: bool) {
        let entry = &self.log.entries[at];
        let is_system = entry.is_system();
        if is_system && is_instruction(entry, at, opening) {
            self.instruction.push(at);
            return;
        }
        let is_visible = !is_system && !entry.message.is_hidden();
        self.places.push(Place { at, answer, superseded, is_visible });
    }

    /// The messages that stand for the instruction: the current one, or the log's system messages.
    pub(super) fn instruction(&self) -> Vec<&'a Message> {
        match &self.log.instruction {
            Some(messages) => messages.iter().collect(),
            None => self.instruction.iter().map(|at| &self.log.entries[*at].message).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn place(&self, n: usize) -> Place {
        self.places[n]
    }

    pub(super) fn entry(&self, n: usize) -> &'a ContextEntry {
        &self.log.entries[self.places[n].at]
    }

    /// The version of an answer that counts.
    pub(super) fn current(&self, n: usize) -> usize {
        let Some(answer) = self.places[n].answer else { return n };
        let is_current = |n: &usize| {
            let place = self.places[*n];
            place.answer == Some(answer) && !place.superseded && self.entry(*n).is_answer()
        };
        (0..self.len()).rev().find(is_current).unwrap_or(n)
    }

    /// Where an answer begins: with its first version, and the gateway's tool calls before it.
    pub(super) fn begin(&self, n: usize) -> usize {
        if let Some(answer) = self.places[n].answer {
            let first = self.places.iter().position(|place| place.answer == Some(answer));
            return first.unwrap_or(n);
        }
        let turn = self.entry(n).turn;
        let is_action = |n: &usize| {
            let entry = self.entry(*n);
            entry.turn == turn && entry.message.is_hidden()
        };
        n - (0..n).rev().take_while(is_action).count()
    }

    /// The entries before place `end` that count.
    pub(super) fn conversation(&self, end: usize) -> impl Iterator<Item = &'a ContextEntry> {
        let entries = &self.log.entries;
        let count = self.places[..end].iter().filter(|place| !place.superseded);
        count.map(|place| &entries[place.at])
    }
}
