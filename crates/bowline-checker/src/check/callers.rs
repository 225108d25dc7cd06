//! Compares the answers of callers with the log.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Case;
use crate::anomaly::{Alteration, Anomaly, Loss, Order, Repeat, Unasked};
use crate::history::{Ask, Entry, EntryKind, Event, Outcome, Status};

/// One request, and the outcomes of its attempts.
struct AskAttempts<'a> {
    text: &'a str,
    /// The last acknowledged position when it was first sent.
    floor: u64,
    outcomes: Vec<&'a Outcome>,
}

impl AskAttempts<'_> {
    /// An attempt without an outcome is unknown, too.
    fn was_only_refused(&self) -> bool {
        !self.outcomes.is_empty() && self.outcomes.iter().all(|o| matches!(o, Outcome::Refused))
    }
}

pub(super) fn check(case: &Case<'_>) -> Vec<Anomaly> {
    let replies = case.replies();
    let asks = asks(case, &replies);
    let mut found = positions(case);
    found.extend(asks.values().flat_map(|ask| kept(case, ask, &replies)));
    found.extend(wanted(case, &asks));
    found.extend(not_cancelled(case));
    found
}

/// Turns that ended as cancelled in a session where nobody cancels.
fn not_cancelled(case: &Case<'_>) -> Vec<Anomaly> {
    let cancels =
        |event: &Event| matches!(event, Event::Cancelling { session } if session == case.session);
    if case.history.events.iter().any(cancels) {
        return Vec::new();
    }
    let cancelled = case.log.entries.iter().filter(|entry| entry.status == Status::Cancelled);
    let phantom = |entry: &Entry| Anomaly::Phantom {
        session: case.session.to_owned(),
        turn_id: entry.turn_id.clone(),
        unasked: Unasked::NotCancelled { seq: entry.seq },
    };
    cancelled.map(phantom).collect()
}

fn asks<'a>(case: &Case<'a>, replies: &HashMap<&str, &Entry>) -> BTreeMap<Ask, AskAttempts<'a>> {
    let mut asks = BTreeMap::new();
    let mut last_told = 0;
    for event in &case.history.events {
        match event {
            Event::Asked { ask, session, text, .. } if session == case.session => {
                asks.insert(*ask, AskAttempts { text, floor: last_told, outcomes: Vec::new() });
            }
            Event::Told { ask, outcome } => {
                let Some(asked) = asks.get_mut(ask) else { continue };
                asked.outcomes.push(outcome);
                let seq = match outcome {
                    Outcome::Answered { seq, .. } => Some(*seq),
                    Outcome::Accepted { turn_id } => replies.get(turn_id.as_str()).map(|e| e.seq),
                    Outcome::Refused | Outcome::Unknown => None,
                };
                last_told = last_told.max(seq.unwrap_or(0));
            }
            _ => {}
        }
    }
    asks
}

/// Positions are 1, 2, 3, …
fn positions(case: &Case<'_>) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let mut last = 0;
    for entry in &case.log.entries {
        let (session, turn_id) = (case.session.to_owned(), entry.turn_id.clone());
        if entry.seq <= last {
            let order = Order::LogGoesBack { seq: entry.seq };
            found.push(Anomaly::Reordered { session, turn_id, order });
            continue;
        }
        if entry.seq > last + 1 {
            let loss = Loss::Hole { seq: last + 1 };
            found.push(Anomaly::Lost { session, turn_id, loss });
        }
        last = entry.seq;
    }
    found
}

/// Checks that the log matches what one request was answered.
fn kept(case: &Case<'_>, ask: &AskAttempts<'_>, replies: &HashMap<&str, &Entry>) -> Vec<Anomaly> {
    let mut found = Vec::new();
    for outcome in &ask.outcomes {
        let (turn_id, told) = match outcome {
            Outcome::Answered { seq, turn_id, content } => (turn_id, Some((*seq, content))),
            Outcome::Accepted { turn_id } => (turn_id, None),
            Outcome::Refused | Outcome::Unknown => continue,
        };
        let (session, turn_id) = (case.session.to_owned(), turn_id.clone());
        let Some(reply) = replies.get(turn_id.as_str()) else {
            found.push(Anomaly::Lost { session, turn_id, loss: Loss::NotInLog });
            continue;
        };
        if let Some((seq, content)) = told {
            if content != &reply.content {
                let (told, stored) = (content.clone(), reply.content.clone());
                found.push(Anomaly::Altered {
                    session: session.clone(),
                    turn_id: turn_id.clone(),
                    alteration: Alteration::Answer { told, stored },
                });
            }
            if seq != reply.seq {
                found.push(Anomaly::Reordered {
                    session: session.clone(),
                    turn_id: turn_id.clone(),
                    order: Order::Moved { told: seq, stored: reply.seq },
                });
            }
        }
        if reply.seq <= ask.floor {
            found.push(Anomaly::Reordered {
                session: session.clone(),
                turn_id: turn_id.clone(),
                order: Order::BeforeAnEarlierOne { after: ask.floor, stored: reply.seq },
            });
        }
        let is_own = |e: &&Entry| e.kind == EntryKind::Message && e.turn_id == turn_id;
        let mut own = case.log.entries.iter().filter(is_own);
        if let Some(question) = own.next_back().filter(|entry| entry.content != ask.text) {
            let (asked, stored) = (ask.text.to_owned(), question.content.clone());
            let alteration = Alteration::Question { asked, stored };
            found.push(Anomaly::Altered { session, turn_id, alteration });
        }
    }
    found
}

/// Checks that everything in the log was requested, and answered once.
fn wanted(case: &Case<'_>, asks: &BTreeMap<Ask, AskAttempts<'_>>) -> Vec<Anomaly> {
    let by_text: HashMap<&str, &AskAttempts<'_>> =
        asks.values().map(|ask| (ask.text, ask)).collect();
    let mut found = Vec::new();
    let mut ended = HashSet::new();
    let mut answered = HashSet::new();
    // A message that is resent after a failure is not stored again: then the message before the
    // turn is its question.
    let mut question = "";
    let mut open: Option<&Entry> = None;
    let unanswered = |entry: &Entry| Anomaly::Lost {
        session: case.session.to_owned(),
        turn_id: entry.turn_id.clone(),
        loss: Loss::Unanswered { seq: entry.seq },
    };
    for entry in &case.log.entries {
        let (session, turn_id) = (case.session.to_owned(), entry.turn_id.clone());
        if let Some(before) = open.take_if(|open| open.turn_id != entry.turn_id) {
            found.push(unanswered(before));
        }
        match entry.kind {
            EntryKind::Message => {
                question = &entry.content;
                open = Some(entry);
                continue;
            }
            EntryKind::Action => continue,
            EntryKind::Turn | EntryKind::Note => {}
        }
        open = None;
        let text = question.to_owned();
        match by_text.get(question) {
            None => {
                let unasked = Unasked::NeverAsked { text };
                found.push(Anomaly::Phantom { session, turn_id, unasked });
                continue;
            }
            Some(ask) if ask.was_only_refused() => {
                let unasked = Unasked::Refused { text };
                found.push(Anomaly::Phantom { session, turn_id, unasked });
                continue;
            }
            Some(_) => {}
        }
        if !ended.insert(&entry.turn_id) {
            let repeat = Repeat::EndedAgain { seq: entry.seq };
            found.push(Anomaly::Duplicate { session, turn_id, repeat });
        } else if entry.is_final() && !answered.insert(question) {
            let repeat = Repeat::AnsweredAgain { text };
            found.push(Anomaly::Duplicate { session, turn_id, repeat });
        }
    }
    found.extend(open.map(unanswered));
    found
}
