//! The prompt of a request: the caller's own version of the conversation, or the stored one.

use std::collections::HashSet;

use super::request::{KnownPart, Request};
use super::results::{Told, behind_calls};
use super::{Key, is_assistant, is_result, is_system};
use crate::id::TurnId;
use crate::message::Message;

impl<'a> Request<'a> {
    /// The caller's messages, with the entries that it never saw in their place.
    pub(super) fn as_sent(&self, known: &KnownPart, prompt: &mut Vec<&'a Message>) {
        let (opening, messages) = self.opening();
        prompt.extend(opening);
        let mut unseen = self.unseen(known).into_iter().peekable();
        // The place in `rest`.
        let mut at = 0;
        for message in messages {
            if at >= known.end && !is_system(message) {
                continue;
            }
            // Before a system message as before the message that follows it.
            while let Some((_, message)) = unseen.next_if(|(place, _)| *place <= at) {
                prompt.push(message);
            }
            prompt.push(message);
            at += usize::from(!is_system(message));
        }
        prompt.extend(unseen.map(|(_, message)| message));
    }

    /// The request's messages: the system messages that open it, and the others.
    fn opening(&self) -> (&'a [Message], &'a [Message]) {
        let messages = self.asked.messages;
        messages.split_at(messages.iter().take_while(|message| is_system(message)).count())
    }

    /// The entries that the caller never saw, each with the place in `rest` before which it belongs.
    fn unseen(&self, known: &KnownPart) -> Vec<(usize, &'a Message)> {
        let view = &self.view;
        let mut sent_at = vec![None; view.len()];
        let mut sent_answers = HashSet::new();
        for (at, partner) in self.partner.iter().enumerate() {
            if let Some(n) = *partner {
                sent_at[n] = Some(at);
                sent_answers.extend(view.place(n).answer);
            }
        }
        let Some(first) = sent_at.iter().position(Option::is_some) else { return Vec::new() };
        let last = self.partner.iter().rposition(Option::is_some).unwrap_or_default();
        // The caller left out what it saw before its first message: older entries are left out, too.
        let left_out = |n: &usize| view.place(*n).is_visible && self.is_own(view.entry(*n));
        let cut = (0..first).rev().find(left_out);
        let places = self.places_for_turns();
        let mut unseen = Vec::new();
        let mut before = last + 1;
        let mut shown: Option<TurnId> = None;
        // From the end, so that the place of the next aligned entry is known.
        for n in (0..view.len()).rev() {
            let (entry, place) = (view.entry(n), view.place(n));
            if let Some(at) = sent_at[n] {
                before = at;
                shown = Some(entry.turn);
                continue;
            }
            if place.is_visible && cut.is_some_and(|cut| n <= cut) {
                break;
            }
            // The caller's version of an answer is the one that counts.
            let is_sent = place.answer.is_some_and(|answer| sent_answers.contains(&answer));
            // Tool calls of the gateway belong to the answer after them.
            let belongs = match entry.message.is_hidden() {
                true => shown == Some(entry.turn),
                false => !self.is_own(entry) && !place.superseded && !is_sent,
            };
            if belongs && n < known.view_end {
                shown = Some(entry.turn);
                unseen.push((places[before], &entry.message));
            } else if place.is_visible {
                shown = None;
            }
        }
        unseen.reverse();
        unseen
    }

    /// For each place in `rest`, and its end, where an unseen turn goes that belongs there: not
    /// between a call and its results, nor behind results that the model goes on from, but before
    /// the question that led to the call.
    fn places_for_turns(&self) -> Vec<usize> {
        let mut begin = 0;
        let mut is_new = true;
        let mut places = Vec::with_capacity(self.rest.len() + 1);
        for (at, message) in self.rest.iter().enumerate() {
            places.push(if is_result(message) { begin } else { at });
            let answers = is_assistant(message) && Key::of_results(message).is_empty();
            if is_new && !answers {
                begin = at;
            }
            is_new = answers;
        }
        let goes_on = self.rest.last().is_some_and(|message| is_result(message));
        places.push(if goes_on { begin } else { self.rest.len() });
        places
    }

    /// The stored conversation, with the caller's examples before it and its new messages after.
    pub(super) fn as_stored(&self, known: &KnownPart, prompt: &mut Vec<&'a Message>) {
        let (opening, messages) = self.opening();
        prompt.extend(opening);
        let aligned = self.partner.iter().any(Option::is_some);
        let examples = if aligned { 0 } else { known.examples };
        // After the new messages comes the beginning of the answer, if the caller wrote one.
        let end = if known.end == self.rest.len() { known.end } else { known.new.end };
        let stored = self.view.conversation(known.view_end);
        let mut after: Vec<_> = Vec::new();
        // The stored conversation is in order: only results that are new have to find their call.
        let brings_results = self.rest[known.new.clone()].iter().any(|message| is_result(message));
        let before_new = match brings_results {
            true => {
                after.extend(stored.map(Told::from));
                Vec::new()
            }
            false => stored.map(|entry| &entry.message).collect(),
        };
        // The place in `rest`.
        let mut at = 0;
        for message in messages {
            if is_system(message) {
                // With the new message that follows it, or with the instruction.
                match at >= known.new.start && !known.new.is_empty() {
                    true => after.push(Told::alone(message)),
                    false => prompt.push(message),
                }
                continue;
            }
            if at < examples {
                prompt.push(message);
            } else if (known.new.start..end).contains(&at) {
                after.push(Told {
                    result: is_result(message).then_some(self.keys[at]),
                    ..Told::alone(message)
                });
            }
            at += 1;
        }
        prompt.extend(before_new);
        prompt.extend(behind_calls(after, |told| told).into_iter().map(|told| told.message));
    }
}
