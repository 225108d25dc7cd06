//! One success per token: compares what imports were told with the sessions that came from their tokens.

use std::collections::{BTreeMap, BTreeSet};

use crate::anomaly::{Alteration, Anomaly, Misuse};
use crate::history::{Event, History, Import, Token};

/// What the imports of one token were told.
#[derive(Default)]
struct Told<'a> {
    made: BTreeSet<&'a str>,
    refused: bool,
}

pub(super) fn check(history: &History) -> Vec<Anomaly> {
    let mut told: BTreeMap<Token, Told<'_>> = BTreeMap::new();
    let mut origins: BTreeMap<Token, &str> = BTreeMap::new();
    for event in &history.events {
        match event {
            Event::Exported { token, session } => {
                origins.insert(*token, session);
            }
            Event::Imported { token, outcome } => {
                let told = told.entry(*token).or_default();
                match outcome {
                    Import::Made { session } => drop(told.made.insert(session)),
                    Import::Refused => told.refused = true,
                    Import::Unknown => {}
                }
            }
            _ => {}
        }
    }
    let none = BTreeMap::new();
    let mut found = Vec::new();
    for (token, told) in told {
        let session = origins.get(&token).copied().unwrap_or_default();
        let there = history.imports.get(&token).unwrap_or(&none);
        let misused = |misuse| Anomaly::Misused { session: session.to_owned(), token, misuse };
        let all: BTreeSet<&str> =
            there.keys().map(String::as_str).chain(told.made.iter().copied()).collect();
        if all.len() > 1 {
            let sessions = all.iter().map(|&session| session.to_owned()).collect();
            found.push(misused(Misuse::UsedAgain { sessions }));
        }
        for made in told.made.iter().filter(|made| !there.contains_key(**made)) {
            found.push(misused(Misuse::Gone { told: (*made).to_owned() }));
        }
        if told.refused && all.is_empty() {
            found.push(misused(Misuse::UsedByNobody));
        }
        found.extend(there.iter().filter_map(|(made, contents)| {
            let alteration = altered(history, session, contents)?;
            let (session, turn_id) = (made.clone(), String::new());
            Some(Anomaly::Altered { session, turn_id, alteration })
        }));
    }
    found
}

/// An imported session begins with the log that was exported.
fn altered(history: &History, origin: &str, contents: &[String]) -> Option<Alteration> {
    let exported = &history.logs.get(origin)?.entries;
    let differs = |(at, exported): (usize, &crate::history::Entry)| {
        let imported = contents.get(at);
        (imported != Some(&exported.content)).then(|| Alteration::Imported {
            at,
            exported: exported.content.clone(),
            imported: imported.cloned(),
        })
    };
    exported.iter().enumerate().find_map(differs)
}
