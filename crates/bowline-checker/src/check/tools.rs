//! Compares the calls of tools in the log, and those of hosts, with what devices were asked and answered.

use std::collections::{BTreeMap, HashMap};

use super::Case;
use crate::anomaly::{Alteration, Anomaly, Repeat, Unasked};
use crate::history::{EntryKind, Event, HostCall, ToolResult, ToolStep};

pub(super) fn check(case: &Case<'_>) -> Vec<Anomaly> {
    let devices = Devices::of(case);
    let mut found = in_log(case, &devices);
    found.extend(of_hosts(case, &devices));
    found.extend(devices.misled(case));
    found
}

/// What the devices of a session were asked, and what they answered.
#[derive(Default)]
struct Devices<'a> {
    ran: BTreeMap<&'a str, usize>,
    said: HashMap<&'a str, &'a str>,
}

impl<'a> Devices<'a> {
    fn of(case: &Case<'a>) -> Self {
        let mut devices = Self::default();
        for event in &case.history.events {
            match event {
                Event::Ran { session, input } if session == case.session => {
                    *devices.ran.entry(input).or_default() += 1;
                }
                Event::Returning { session, input, said } if session == case.session => {
                    devices.said.insert(input, said);
                }
                _ => {}
            }
        }
        devices
    }

    /// A result is what its device said, or an error.
    fn altered(&self, input: &str, result: &ToolResult) -> Option<Alteration> {
        let ToolResult::Said(told) = result else { return None };
        let said = self.said.get(input).copied();
        (said != Some(told)).then(|| Alteration::Result {
            input: input.to_owned(),
            said: said.map(str::to_owned),
            told: told.clone(),
        })
    }

    /// Devices that ran what nobody called, or more often than it was called: a turn that failed may be run
    /// anew, with the same call.
    fn misled(&self, case: &Case<'a>) -> Vec<Anomaly> {
        let steps = case.log.entries.iter().flat_map(|entry| &entry.tools);
        let mut called: Vec<&str> = steps
            .filter_map(|step| match step {
                ToolStep::Called { input, .. } => Some(input.as_str()),
                ToolStep::Ended { .. } => None,
            })
            .collect();
        called.extend(case.history.events.iter().filter_map(|event| match event {
            Event::Calling { session, input, .. } if session == case.session => {
                Some(input.as_str())
            }
            _ => None,
        }));
        let (session, turn_id) = (case.session.to_owned(), String::new());
        let mut found = Vec::new();
        for (input, times) in &self.ran {
            let (session, turn_id) = (session.clone(), turn_id.clone());
            let called = called.iter().filter(|called| *called == input).count();
            let input = (*input).to_owned();
            if called == 0 {
                let unasked = Unasked::NotCalled { input };
                found.push(Anomaly::Phantom { session, turn_id, unasked });
            } else if *times > called {
                let repeat = Repeat::RanAgain { input, times: *times, called };
                found.push(Anomaly::Duplicate { session, turn_id, repeat });
            }
        }
        found
    }
}

/// A call of the log that has not ended.
struct Open<'a> {
    turn_id: &'a str,
    id: &'a str,
    input: &'a str,
}

/// Each call of a turn ends once, before the turn does.
fn in_log(case: &Case<'_>, devices: &Devices<'_>) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let mut open: Vec<Open<'_>> = Vec::new();
    let unended = |call: &Open<'_>| Anomaly::Unended {
        session: case.session.to_owned(),
        turn_id: Some(call.turn_id.to_owned()),
        input: call.input.to_owned(),
    };
    for entry in &case.log.entries {
        let turn_id = entry.turn_id.as_str();
        for step in &entry.tools {
            match step {
                ToolStep::Called { id, input } => open.push(Open { turn_id, id, input }),
                ToolStep::Ended { id, result } => {
                    let its = |call: &Open<'_>| call.turn_id == turn_id && call.id == id;
                    let (session, turn_id) = (case.session.to_owned(), turn_id.to_owned());
                    let Some(at) = open.iter().position(its) else {
                        let repeat = Repeat::CallEndedAgain { seq: entry.seq };
                        found.push(Anomaly::Duplicate { session, turn_id, repeat });
                        continue;
                    };
                    let call = open.remove(at);
                    let altered = devices.altered(call.input, result);
                    found.extend(altered.map(|alteration| {
                        let session = session.clone();
                        Anomaly::Altered { session, turn_id, alteration }
                    }));
                }
            }
        }
        if entry.kind != EntryKind::Action && entry.is_reply() {
            let left = open.extract_if(.., |call| call.turn_id == turn_id);
            found.extend(left.map(|call| unended(&call)));
        }
    }
    found.extend(open.iter().map(unended));
    found
}

/// Each call of a host ends, with what its device said if it ends with a result.
fn of_hosts(case: &Case<'_>, devices: &Devices<'_>) -> Vec<Anomaly> {
    let mut open: BTreeMap<HostCall, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for event in &case.history.events {
        match event {
            Event::Calling { call, session, input } if session == case.session => {
                open.insert(*call, input);
            }
            Event::CallEnded { call, result } => {
                let Some(input) = open.remove(call) else { continue };
                let altered = result.as_ref().and_then(|result| devices.altered(input, result));
                found.extend(altered.map(|alteration| Anomaly::Altered {
                    session: case.session.to_owned(),
                    turn_id: String::new(),
                    alteration,
                }));
            }
            _ => {}
        }
    }
    found.extend(open.values().map(|input| Anomaly::Unended {
        session: case.session.to_owned(),
        turn_id: None,
        input: (*input).to_owned(),
    }));
    found
}
