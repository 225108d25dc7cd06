//! Aligns a caller's version of a conversation with the log.
//!
//! Passes, each within the gaps that the ones before left:
//!
//! 1. equal keys whose messages before them are equal, too
//! 2. equal keys
//! 3. loose keys, for answers without their Markdown
//! 4. questions that are part of one in the log, which had context put into it
//! 5. place beside a match, for messages that the caller edited
//!
//! Matches never cross. Where repeated messages leave a choice ("ok", "continue"), the caller's own
//! entries come first, and of those the later one: clients cut the beginning of a conversation, not its
//! end. A short answer is known by its question or its place, never by its words: examples have the same
//! labels.

mod equal;
mod words;

use std::ops::Range;

use self::equal::equal;
use self::words::{QuestionText, Questions, WordSet, is_short};
use super::{Key, is_assistant};
use crate::id::TurnId;
use crate::message::Message;

/// One message of either side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) message: &'a Message,
    pub(super) key: Key,
    /// The log entry was sent or answered by the same caller, so it may be an edited version.
    pub(super) own: bool,
    /// The answer with several versions that it belongs to, and the turn that made this version.
    pub(super) version: Option<(usize, TurnId)>,
}

/// How many messages of a role are compared word by word if no message has an equal key.
const COMPARED: usize = 4;

/// For each message sent, the index of the log entry that it is a version of. `asked`: what the
/// request has after these messages.
pub(super) fn align(log: &[Side<'_>], sent: &[Side<'_>], asked: &[&Message]) -> Vec<Option<usize>> {
    let mut matched = Matched::equal(log, sent);
    if matched.is_whole() {
        return matched.partner;
    }
    matched.in_gaps(log.len(), |logs, sents| {
        let loose = |side: &[Side<'_>], at: usize| {
            let key = |(n, side): (usize, &Side<'_>)| loose_key(side.message, at + n);
            side.iter().enumerate().map(key).collect::<Vec<_>>()
        };
        // Entries without a loose key never match: their numbers differ.
        equal(&loose(&log[logs], 0), &loose(&sent[sents], log.len() + sent.len()))
    });
    matched.in_gaps(log.len(), |logs, sents| contained(&log[logs], &sent[sents]));
    if matched.partner.iter().all(Option::is_none) {
        matched.alone(log, sent, asked);
    }
    matched.beside(log, sent, asked.is_empty());
    matched.partner
}

/// A loose key, or a number that no other message has.
fn loose_key(message: &Message, unique: usize) -> Result<Key, usize> {
    let loose = Key::loose(message).filter(|_| !is_assistant(message) || !is_short(message));
    loose.ok_or(unique)
}

/// How many questions of the log are looked at for each that was sent.
const LOOKED_AT: usize = 64;

/// Pairs questions that are the same but for context before or behind them, from the end.
fn contained(log: &[Side<'_>], sent: &[Side<'_>]) -> Vec<Option<usize>> {
    let questions = |side: &[Side<'_>]| {
        let all = side.iter().enumerate().filter(|(_, side)| is_question(side.message));
        all.map(|(at, side)| (at, side.own, QuestionText::of(side.message))).collect::<Vec<_>>()
    };
    let mut partner = vec![None; sent.len()];
    let known = questions(log);
    let mut end = known.len();
    for (at, _, question) in questions(sent).into_iter().rev().take_while(|_| !known.is_empty()) {
        let first = end.saturating_sub(LOOKED_AT);
        let is_same = |n: &usize| known[*n].1 && question.is_part(&known[*n].2);
        if let Some(n) = (first..end).rev().find(is_same) {
            partner[at] = Some(known[n].0);
            end = n;
        }
    }
    partner
}

struct Matched {
    partner: Vec<Option<usize>>,
}

impl Matched {
    /// Pairs equal messages. A caller has its own entries, so they come first, unless more messages
    /// have a partner among all entries.
    fn equal(log: &[Side<'_>], sent: &[Side<'_>]) -> Self {
        let all: Vec<_> = log.iter().collect();
        let own: Vec<_> = all.iter().copied().filter(|side| side.own).collect();
        let matched = Self::of_keys(&all, sent);
        if own.is_empty() || own.len() == log.len() {
            return matched;
        }
        let places: Vec<_> = (0..log.len()).filter(|at| log[*at].own).collect();
        let mut among_own = Self::of_keys(&own, sent);
        for partner in among_own.partner.iter_mut().flatten() {
            *partner = places[*partner];
        }
        among_own.single(&all, sent);
        match matched.pairs().count() > among_own.pairs().count() {
            true => matched,
            false => among_own,
        }
    }

    fn of_keys(log: &[&Side<'_>], sent: &[Side<'_>]) -> Self {
        let (known, said) = (with_before(log, 0), with_before(&sent.iter().collect::<Vec<_>>(), 1));
        let mut matched = Self { partner: equal(&known, &said) };
        matched.single(log, sent);
        matched
    }

    /// Pairs equal messages that are left, but for short answers.
    fn single(&mut self, log: &[&Side<'_>], sent: &[Side<'_>]) {
        // Short answers never match: their numbers differ.
        let key = |side: &Side<'_>, unique: usize| {
            let is_label = is_assistant(side.message) && is_short(side.message);
            if is_label { Err(unique) } else { Ok(side.key) }
        };
        self.in_gaps(log.len(), |logs, sents| {
            let known: Vec<_> = logs.map(|at| key(log[at], at)).collect();
            let sent: Vec<_> = sents.map(|at| key(&sent[at], log.len() + at)).collect();
            equal(&known, &sent)
        });
    }

    /// Pairs what is left between the matches.
    fn in_gaps(
        &mut self,
        log_len: usize,
        mut pair: impl FnMut(Range<usize>, Range<usize>) -> Vec<Option<usize>>,
    ) {
        for (logs, sents) in self.gaps(log_len) {
            let found = pair(logs.clone(), sents.clone());
            for (at, partner) in sents.zip(found) {
                self.partner[at] = partner.map(|place| logs.start + place);
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.partner.iter().all(Option::is_some)
    }

    fn pair(&mut self, log: usize, sent: usize) {
        self.partner[sent] = Some(log);
    }

    /// The messages with a match, and their partners.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.partner.iter().enumerate().filter_map(|(at, partner)| Some((at, (*partner)?)))
    }

    /// The runs without a match, as ranges of both sides; none of them is empty.
    fn gaps(&self, log_len: usize) -> Vec<(Range<usize>, Range<usize>)> {
        let mut gaps = Vec::new();
        let (mut log_at, mut sent_at) = (0, 0);
        for (sent_end, log_end) in self.pairs().chain([(self.partner.len(), log_len)]) {
            if sent_at < sent_end && log_at < log_end {
                gaps.push((log_at..log_end, sent_at..sent_end));
            }
            (log_at, sent_at) = (log_end + 1, sent_end + 1);
        }
        gaps
    }

    /// Pairs messages by their place beside a match: the caller edited them. `ends`: nothing follows
    /// the messages. An answer at their end that has no match is then the beginning of the next one,
    /// and what is before it is its question.
    fn beside(&mut self, log: &[Side<'_>], sent: &[Side<'_>], ends: bool) {
        for (logs, mut sents) in self.gaps(log.len()) {
            if ends && sents.end == sent.len() {
                let is_answer = |at: &usize| is_assistant(sent[*at].message);
                let asks = sents.clone().rev().find(|at| !is_answer(at));
                let answered = |asks: usize| (sents.start..asks).rev().find(is_answer);
                sents.end = asks.and_then(answered).map_or(sents.start, |at| at + 1);
            }
            let (mut low, mut high) = (logs.start, logs.end);
            let (mut first, mut last) = (sents.start, sents.end);
            if sents.end < sent.len() {
                while first < last {
                    let role = sent[last - 1].message.role();
                    let below = (low..high).rev().take_while(|at| log[*at].own);
                    let Some(at) = next_of_role(below, log, role) else { break };
                    last -= 1;
                    high = at;
                    self.pair(at, last);
                }
            }
            if sents.start > 0 {
                while first < last {
                    let role = sent[first].message.role();
                    let above = (low..high).take_while(|at| log[*at].own);
                    let Some(at) = next_of_role(above, log, role) else { break };
                    self.pair(at, first);
                    first += 1;
                    low = at + 1;
                }
            }
        }
    }

    /// Nothing is equal: pairs a late message with a late entry that has most of its words, answers
    /// before questions. The question before an answer has to be alike, too.
    fn alone(&mut self, log: &[Side<'_>], sent: &[Side<'_>], asked: &[&Message]) {
        let newest = asked.iter().copied().filter(|message| is_question(message)).take(COMPARED);
        let of_request = late(sent, "user").into_iter().map(|at| sent[at].message);
        let questions = Questions::new(of_request.chain(newest).collect());
        let (known_before, sent_before) = (questions_before(log), questions_before(sent));
        let own = |role| late(log, role).into_iter().filter(|place| log[*place].own);
        for at in late(sent, "assistant") {
            // A window may begin with an answer.
            let same = |place: &usize| log[*place].key == sent[at].key;
            if sent_before[at].is_none()
                && let Some(place) = late(log, "assistant").into_iter().find(same)
            {
                return self.pair(place, at);
            }
            let words = WordSet::of(sent[at].message);
            let is_version = |place: &usize| {
                let asked = match (sent_before[at], known_before[*place]) {
                    (Some(sent_at), Some(known)) => {
                        questions.is_version(sent[sent_at].message, log[known].message)
                    }
                    (sent_at, _) => sent_at.is_none(),
                };
                asked && words.is_similar(&WordSet::of(log[*place].message))
            };
            if let Some(place) = own("assistant").find(is_version) {
                return self.pair(place, at);
            }
        }
        for at in late(sent, "user") {
            let words = WordSet::of(sent[at].message);
            let is_version = |place: &usize| {
                words.is_similar(&WordSet::of(log[*place].message))
                    && questions.is_version(sent[at].message, log[*place].message)
            };
            if let Some(place) = own("user").find(is_version) {
                return self.pair(place, at);
            }
        }
    }
}

/// Each key with the one before it. The first has none, or the caller cut that off: it gets a number.
/// All versions of an answer are behind what is before the first.
fn with_before(side: &[&Side<'_>], number: usize) -> Vec<Result<(Key, Key), usize>> {
    let mut keys = Vec::with_capacity(side.len());
    // The versions that the current place is among, and the key before them.
    let mut versions: Option<(usize, Key)> = None;
    for (at, this) in side.iter().enumerate() {
        let Some(previous) = at.checked_sub(1).map(|at| side[at]) else {
            keys.push(Err(number));
            continue;
        };
        let mut before = previous.key;
        match (this.version, previous.version) {
            (Some((answer, turn)), Some((same, other))) if answer == same => {
                if let Some((_, first)) = versions.filter(|(of, _)| *of == answer && turn != other)
                {
                    before = first;
                }
            }
            (Some((answer, _)), _) => versions = Some((answer, before)),
            (None, _) => {}
        }
        keys.push(Ok((before, this.key)));
    }
    keys
}

/// The last messages of a role, the latest first.
fn late(side: &[Side<'_>], role: &str) -> Vec<usize> {
    let of_role = side.iter().enumerate().rev().filter(|(_, side)| side.message.role() == role);
    of_role.map(|(at, _)| at).take(COMPARED).collect()
}

/// For each message, the question before it.
fn questions_before(side: &[Side<'_>]) -> Vec<Option<usize>> {
    let mut question = None;
    let before = side.iter().enumerate().map(|(at, side)| {
        let before = question;
        if is_question(side.message) {
            question = Some(at);
        }
        before
    });
    before.collect()
}

fn is_question(message: &Message) -> bool {
    message.role() == "user"
}

/// The next entry of that role. Entries of tool calls are passed over: many clients leave them out.
fn next_of_role(
    places: impl Iterator<Item = usize>,
    log: &[Side<'_>],
    role: &str,
) -> Option<usize> {
    let calls = |message: &Message| {
        message.role() == "tool" || message.may_call() && message.content().is_empty()
    };
    for at in places {
        if log[at].message.role() == role {
            return Some(at);
        }
        if !calls(log[at].message) {
            return None;
        }
    }
    None
}
