//! A request beside the log: which of its messages are in the log, and which are new.

use std::collections::HashSet;
use std::ops::Range;

use super::align::{Side, align};
use super::plan::Asked;
use super::view::LogView;
use super::{ContextEntry, HistoryMode, Key, SessionLog, is_assistant, is_system};
use crate::id::Seq;
use crate::message::Message;

/// A request beside the log that it is for.
pub(super) struct Request<'a> {
    /// The conversation before the turn.
    pub(super) view: LogView<'a>,
    pub(super) asked: Asked<'a>,
    /// The request's messages but for system messages, and their keys.
    pub(super) rest: Vec<&'a Message>,
    pub(super) keys: Vec<Key>,
    /// For each message of `rest`: the place of its version in the view.
    pub(super) partner: Vec<Option<usize>>,
    /// The answers with several versions of which this caller sent or received one.
    own_answers: HashSet<usize>,
}

/// What of a request is known.
pub(super) struct KnownPart {
    /// The new messages, as places in `rest`.
    pub(super) new: Range<usize>,
    /// Where the examples before them end.
    pub(super) examples: usize,
    /// Where the prompt of a caller that manages its context ends.
    pub(super) end: usize,
    pub(super) replaces: Option<Seq>,
    /// Where the view ends for this turn: before the answer that is superseded.
    pub(super) view_end: usize,
}

/// How many messages at the end of a request are in the log, and the place of their answer there.
type Repeated = (usize, Option<usize>);

impl<'a> Request<'a> {
    /// `end`: how many entries of the log are from before the turn.
    pub(super) fn new(log: &'a SessionLog, end: usize, asked: Asked<'a>) -> Self {
        let view = LogView::new(log, end);
        let rest: Vec<_> = asked.messages.iter().filter(|message| !is_system(message)).collect();
        let keys: Vec<_> = rest.iter().map(|message| Key::of(message)).collect();
        let (partner, own_answers) = (vec![None; rest.len()], HashSet::new());
        let mut request = Self { view, asked, rest, keys, partner, own_answers };
        request.align();
        if !request.view.has_versions {
            return request;
        }
        let several = (0..request.view.len()).filter_map(|n| {
            let answer = request.view.place(n).answer?;
            request.is_own(request.view.entry(n)).then_some(answer)
        });
        request.own_answers = several.collect();
        request
    }

    /// What follows the last assistant message is new, unless it was sent before; that is looked for
    /// behind the aligned part only, so that the same words again are new words.
    fn align(&mut self) {
        let Some(last) = self.rest.iter().rposition(|message| is_assistant(message)) else {
            return;
        };
        let visible: Vec<_> =
            (0..self.view.len()).filter(|n| self.view.place(*n).is_visible).collect();
        let known = visible.iter().map(|n| {
            let entry = self.view.entry(*n);
            let version = self.view.place(*n).answer.map(|answer| (answer, entry.turn));
            Side { message: &entry.message, key: entry.key, own: self.is_own(entry), version }
        });
        let sent = self.rest[..=last].iter().zip(&self.keys);
        let sent = sent.map(|(message, key)| Side { message, key: *key, own: true, version: None });
        let (known, sent): (Vec<_>, Vec<_>) = (known.collect(), sent.collect());
        let partner = align(&known, &sent, &self.rest[last + 1..]);
        for (at, partner) in partner.into_iter().enumerate() {
            self.partner[at] = partner.map(|at| visible[at]);
        }
    }

    /// Whether this caller sent or received the entry.
    pub(super) fn is_own(&self, entry: &ContextEntry) -> bool {
        entry.caller.is_some() && entry.caller == self.asked.caller
    }

    /// Whether the caller decides what the model is sent.
    pub(super) fn is_managed(&self) -> bool {
        let aligned = || {
            let mut pairs = self.rest.iter().zip(&self.partner);
            pairs.any(|(message, partner)| partner.is_some() && is_assistant(message))
        };
        match self.asked.mode {
            Some(HistoryMode::Mine) => true,
            Some(HistoryMode::Stored) => false,
            None => aligned(),
        }
    }

    pub(super) fn known(&self) -> KnownPart {
        let last = self.partner.iter().rposition(Option::is_some);
        let from = last.map_or(0, |last| last + 1);
        // Assistant messages at the end begin the answer; those before are examples.
        let is_answer = |at: &usize| is_assistant(self.rest[*at]);
        let open =
            (from..self.rest.len()).rev().find(|at| !is_answer(at)).map_or(from, |at| at + 1);
        let examples = (from..open).rev().find(is_answer).map_or(from, |at| at + 1);
        let (repeated, answer) = match last {
            Some(last) => self.repeated(examples..open, last),
            None => self.repeated_unaligned(examples..open),
        };
        let new = examples + repeated..open;
        let answer = answer.filter(|_| new.is_empty()).map(|answer| self.view.current(answer));
        // A repeated answer at the end of the request is not part of the question.
        let end = match answer {
            Some(_) if open == from && last.is_some_and(|last| is_answer(&last)) => from - 1,
            _ => self.rest.len(),
        };
        let replaces = answer.map(|answer| self.view.entry(answer).seq);
        let view_end = answer.map_or(self.view.len(), |answer| self.view.begin(answer));
        KnownPart { new, examples, end, replaces, view_end }
    }

    /// How many of these messages follow the aligned part in the log, too.
    fn repeated(&self, sent: Range<usize>, last: usize) -> Repeated {
        let partner = self.partner[last].unwrap_or_default();
        if sent.is_empty() && is_assistant(self.rest[last]) {
            return (0, Some(partner));
        }
        // Other versions of the answer that was sent do not follow it.
        let answer = self.view.place(partner).answer;
        let follows = |n: &usize| {
            let is_version = answer.is_some() && self.view.place(*n).answer == answer;
            self.counts(*n) && !is_version && self.has_seen(*n)
        };
        let later: Vec<_> = (partner + 1..self.view.len()).filter(follows).collect();
        let same = later.iter().zip(&self.keys[sent.clone()]);
        let same = same.take_while(|(n, key)| self.view.entry(**n).key == **key).count();
        let answer = later.get(same).copied().filter(|n| self.view.entry(*n).is_answer());
        match (same == sent.len() || same == later.len(), answer) {
            (true, answer) => (same, answer),
            // The caller never got the answer, and goes on.
            (false, Some(_)) if same > 0 => (same, None),
            (false, _) => (0, None),
        }
    }

    /// The same without an aligned part: only for messages that were not answered, or a caller that
    /// says that it sends all.
    fn repeated_unaligned(&self, sent: Range<usize>) -> Repeated {
        let keys = &self.keys[sent];
        let mut latest = (0..self.view.len()).rev().filter(|n| self.counts(*n));
        let latest: Vec<_> = latest.by_ref().take(keys.len() + 1).collect();
        // Whether the entries end with the messages, but for the last so many.
        let ends_with = |but: usize| {
            let entries = latest.iter().skip(but).map(|n| self.view.entry(*n).key);
            !keys.is_empty() && entries.take(keys.len()).eq(keys.iter().rev().copied())
        };
        if ends_with(0) {
            return (keys.len(), None);
        }
        let answer = latest.first().copied().filter(|n| self.view.entry(*n).is_answer());
        match answer {
            Some(n) if self.asked.mode == Some(HistoryMode::Mine) && ends_with(1) => {
                (keys.len(), Some(n))
            }
            _ => (0, None),
        }
    }

    /// Whether callers are sent the entry, and no other version of it.
    fn counts(&self, n: usize) -> bool {
        let place = self.view.place(n);
        place.is_visible && !place.superseded
    }

    /// Whether this caller sent or received the entry, or another version of it.
    fn has_seen(&self, n: usize) -> bool {
        let is_version = |answer| self.own_answers.contains(&answer);
        self.is_own(self.view.entry(n)) || self.view.place(n).answer.is_some_and(is_version)
    }
}
