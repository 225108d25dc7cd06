//! Keeps tool results behind their calls.
//!
//! While a client runs its tools, others may take turns, so their messages come between a call and
//! its results in the log. Models refuse such a conversation. Those turns go before the question that
//! led to the call: then the results are what the model is asked to go on from.

use std::collections::{HashMap, HashSet};

use super::{ContextEntry, Key, is_assistant, is_result};
use crate::message::Message;

/// A message of a conversation, as far as calls matter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) message: &'a Message,
    /// Its key, if it is a result.
    pub(super) result: Option<Key>,
    /// The keys of the results that its calls are answered with.
    pub(super) results: &'a [Key],
}

impl<'a> Told<'a> {
    /// A message that neither calls nor answers a call.
    pub(super) fn alone(message: &'a Message) -> Self {
        Self { message, result: None, results: &[] }
    }
}

impl<'a> From<&'a ContextEntry> for Told<'a> {
    fn from(entry: &'a ContextEntry) -> Self {
        let result = is_result(&entry.message).then_some(entry.key);
        Self { message: &entry.message, result, results: &entry.results }
    }
}

/// How often each message may be passed in the search for calls: a log that was made to need more
/// costs no more.
const PASSES: usize = 64;

/// Puts what came between a call and its results before the question that led to the call.
/// Everything else stays in order.
pub(super) fn behind_calls<'a, T: Copy>(list: Vec<T>, told: impl Fn(T) -> Told<'a>) -> Vec<T> {
    let apart = results_apart(&list, &told);
    if apart.is_empty() {
        return list;
    }
    let mut ordered: Vec<T> = Vec::with_capacity(list.len());
    let mut left = PASSES * list.len();
    for item in list {
        let answers = told(item).result.filter(|key| apart.contains(key) && left > 0);
        let answered = |call: &T| answers.is_some_and(|key| told(*call).results.contains(&key));
        if let Some(call) = answers.and_then(|_| ordered.iter().rposition(answered)) {
            let is_result = |item: &&T| told(**item).result.is_some();
            let results = ordered[call + 1..].iter().take_while(is_result).count();
            let end = call + 1 + results;
            left = left.saturating_sub(ordered.len() - call);
            if end < ordered.len() {
                let begin = begin_of_turn(&ordered[..call], &told);
                left = left.saturating_sub(ordered.len() - begin);
                ordered[begin..].rotate_left(end - begin);
            }
        }
        ordered.push(item);
    }
    ordered
}

/// The results that are not directly behind their call.
fn results_apart<'a, T: Copy>(list: &[T], told: &impl Fn(T) -> Told<'a>) -> HashSet<Key> {
    // The place of the call that a result answers.
    let mut open: HashMap<Key, usize> = HashMap::new();
    let mut apart = HashSet::new();
    // The call that the current place is behind, with nothing but results between.
    let mut behind = None;
    for (at, item) in list.iter().enumerate() {
        let Told { result, results, .. } = told(*item);
        match result.map(|key| (key, open.get(&key).copied())) {
            Some((key, Some(call))) if behind != Some(call) => {
                apart.insert(key);
            }
            Some(_) => {}
            None => {
                behind = (!results.is_empty()).then_some(at);
                open.extend(results.iter().map(|key| (*key, at)));
            }
        }
    }
    apart
}

/// Where the turn begins that goes on at the end of the list: with its question, before earlier
/// calls and their results.
fn begin_of_turn<'a, T: Copy>(list: &[T], told: &impl Fn(T) -> Told<'a>) -> usize {
    let is_call = |item: &&T| {
        let Told { result, results, .. } = told(**item);
        result.is_some() || !results.is_empty()
    };
    let calls = list.iter().rev().take_while(is_call).count();
    let before = &list[..list.len() - calls];
    let is_question = |item: &&T| {
        let told = told(**item);
        told.result.is_none() && !is_assistant(told.message)
    };
    before.len() - before.iter().rev().take_while(is_question).count()
}
