//! The check: compares each session's log with the callers, the surfaces and the devices; then the imports,
//! and the owners that wrote.

mod callers;
mod owners;
mod surfaces;
#[cfg(test)]
mod tests;
mod tokens;
mod tools;

use std::collections::{BTreeSet, HashMap};

use crate::anomaly::Anomaly;
use crate::history::{Attachment, Entry, Event, History, Log};

/// All anomalies of a history; empty if all guarantees hold.
pub fn check(history: &History) -> Vec<Anomaly> {
    let empty = Log::default();
    let mut found = Vec::new();
    for session in sessions(history) {
        let log = history.logs.get(session).unwrap_or(&empty);
        let case = Case { history, session, log };
        found.extend(callers::check(&case));
        found.extend(surfaces::check(&case));
        found.extend(tools::check(&case));
    }
    found.extend(tokens::check(history));
    found.extend(owners::check(history));
    found
}

/// One session: its events and its log.
struct Case<'a> {
    history: &'a History,
    session: &'a str,
    log: &'a Log,
}

impl<'a> Case<'a> {
    /// The ends of turns, by turn.
    fn replies(&self) -> HashMap<&'a str, &'a Entry> {
        let replies = self.log.entries.iter().filter(|entry| entry.is_reply());
        replies.map(|entry| (entry.turn_id.as_str(), entry)).collect()
    }

    /// The attachments of this session.
    fn attachments(&self) -> BTreeSet<Attachment> {
        let of_session = |event: &Event| match event {
            Event::Attaching { attachment, session } if session == self.session => {
                Some(*attachment)
            }
            _ => None,
        };
        self.history.events.iter().filter_map(of_session).collect()
    }
}

/// All sessions of the history: one without a final log counts as empty.
fn sessions(history: &History) -> BTreeSet<&str> {
    let named = history.events.iter().filter_map(|event| match event {
        Event::Asked { session, .. }
        | Event::Attaching { session, .. }
        | Event::Calling { session, .. }
        | Event::Ran { session, .. } => Some(session.as_str()),
        _ => None,
    });
    named.chain(history.logs.keys().map(String::as_str)).collect()
}
