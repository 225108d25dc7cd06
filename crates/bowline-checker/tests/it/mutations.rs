//! Each way to break a good history is found, and called by its name.

use bowline_checker::{Anomaly, Entry, EntryKind, Event, History, Kind, Outcome, Status, check};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::model::{name, run, schedule};

/// Changes one thing, chosen by the index; false if the history has nothing of that sort.
type Mutation = fn(&mut History, Index) -> bool;

const MUTATIONS: [(&str, Kind, Mutation); 10] = [
    ("an acknowledged turn is cut out of the log", Kind::Lost, cut_out),
    ("the log ends earlier", Kind::Lost, cut_short),
    ("a turn never comes to a surface", Kind::Lost, never_deliver),
    ("two turns change places in the log", Kind::Reordered, swap_turns),
    ("two turns change places on their way to a surface", Kind::Reordered, swap_delivered),
    ("the log has other words", Kind::Altered, alter_log),
    ("a surface gets other words", Kind::Altered, alter_delivered),
    ("a turn nobody asked for", Kind::Phantom, invent),
    ("a refused turn is there", Kind::Phantom, store_refused),
    ("a turn is run twice", Kind::Duplicate, run_twice),
];

fn choose<T>(of: Vec<T>, index: Index) -> Option<T> {
    (!of.is_empty()).then(|| index.index(of.len())).and_then(|n| of.into_iter().nth(n))
}

fn sessions(history: &History) -> Vec<String> {
    history.logs.keys().cloned().collect()
}

/// Where answered turns stand: session and index in its log.
fn acknowledged(history: &History) -> Vec<(String, usize)> {
    let mut ids = Vec::new();
    for event in &history.events {
        if let Event::Told {
            outcome: Outcome::Answered { turn_id, .. } | Outcome::Accepted { turn_id },
            ..
        } = event
        {
            ids.push(turn_id);
        }
    }
    let mut places = Vec::new();
    for (session, log) in &history.logs {
        for (at, entry) in log.entries.iter().enumerate() {
            if entry.is_reply() && ids.contains(&&entry.turn_id) {
                places.push((session.clone(), at));
            }
        }
    }
    places
}

fn log<'a>(history: &'a mut History, session: &str) -> &'a mut Vec<Entry> {
    &mut history.logs.get_mut(session).unwrap().entries
}

/// Later entries keep their words and move up, as if the turn had never been.
fn cut_out(history: &mut History, index: Index) -> bool {
    let Some((session, at)) = choose(acknowledged(history), index) else { return false };
    let log = log(history, &session);
    let gone = log[at].turn_id.clone();
    log.retain(|entry| entry.turn_id != gone);
    log.iter_mut().zip(1..).for_each(|(entry, seq)| entry.seq = seq);
    true
}

fn cut_short(history: &mut History, index: Index) -> bool {
    let Some((session, at)) = choose(acknowledged(history), index) else { return false };
    log(history, &session).truncate(at);
    true
}

fn received(history: &History) -> Vec<usize> {
    let is = |(at, event): (usize, &Event)| matches!(event, Event::Received { .. }).then_some(at);
    history.events.iter().enumerate().filter_map(is).collect()
}

fn never_deliver(history: &mut History, index: Index) -> bool {
    let Some(at) = choose(received(history), index) else { return false };
    let Event::Received { turn: lost, .. } = history.events[at].clone() else { return false };
    history.events.retain(|event| match event {
        Event::Received { turn, .. } => turn.turn_id != lost.turn_id,
        _ => true,
    });
    true
}

fn swap_turns(history: &mut History, index: Index) -> bool {
    let answered: Vec<_> = history
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Told { outcome: Outcome::Answered { turn_id, .. }, .. } => Some(turn_id.clone()),
            _ => None,
        })
        .collect();
    let Some(session) = choose(sessions(history), index) else { return false };
    let log = log(history, &session);
    let ours =
        log.iter().enumerate().filter(|(_, e)| e.is_reply() && answered.contains(&e.turn_id));
    let ours: Vec<_> = ours.map(|(at, _)| at).take(2).collect();
    let [one, two] = ours[..] else { return false };
    let (first, second) = (log[one].seq, log[two].seq);
    log.swap(one, two);
    (log[one].seq, log[two].seq) = (first, second);
    true
}

fn swap_delivered(history: &mut History, index: Index) -> bool {
    let pairs = received(history).windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>();
    let same = |(one, two): &(usize, usize)| match (&history.events[*one], &history.events[*two]) {
        (Event::Received { attachment: a, .. }, Event::Received { attachment: b, .. }) => a == b,
        _ => false,
    };
    let pairs = pairs.into_iter().filter(same).collect();
    let Some((one, two)) = choose(pairs, index) else { return false };
    history.events.swap(one, two);
    true
}

fn alter_log(history: &mut History, index: Index) -> bool {
    let Some((session, at)) = choose(acknowledged(history), index) else { return false };
    log(history, &session)[at].content.push('!');
    true
}

fn alter_delivered(history: &mut History, index: Index) -> bool {
    let Some(at) = choose(received(history), index) else { return false };
    let Event::Received { turn, .. } = &mut history.events[at] else { return false };
    turn.content.pop();
    true
}

fn add(history: &mut History, session: &str, text: &str) {
    let log = log(history, session);
    let after = log.len() as u64;
    let entry = |seq, kind, content: &str| Entry {
        seq,
        turn_id: "one more".into(),
        kind,
        content: content.into(),
        status: Status::Complete,
        tethered: false,
        tools: Vec::new(),
    };
    log.push(entry(after + 1, EntryKind::Message, text));
    log.push(entry(after + 2, EntryKind::Turn, "an answer"));
}

fn invent(history: &mut History, index: Index) -> bool {
    let session = name(index.index(crate::model::SESSIONS));
    add(history, &session, "nobody asked this");
    true
}

fn store_refused(history: &mut History, index: Index) -> bool {
    let refused = history.events.iter().filter_map(|event| match event {
        Event::Told { ask, outcome: Outcome::Refused } => Some(*ask),
        _ => None,
    });
    let Some(refused) = choose(refused.collect(), index) else { return false };
    let asked = history.events.iter().find_map(|event| match event {
        Event::Asked { ask, session, text, .. } if *ask == refused => {
            Some((session.clone(), text.clone()))
        }
        _ => None,
    });
    let (session, text) = asked.unwrap();
    add(history, &session, &text);
    true
}

fn run_twice(history: &mut History, index: Index) -> bool {
    let Some((session, at)) = choose(acknowledged(history), index) else { return false };
    let question = log(history, &session)[..at].iter().rev().find(|entry| !entry.is_reply());
    let text = question.unwrap().content.clone();
    add(history, &session, &text);
    true
}

proptest! {
    #[test]
    fn every_mutation_of_a_good_history_is_found(steps in schedule(), index in any::<Index>()) {
        let good = run(&steps);
        for (what, kind, mutate) in MUTATIONS {
            let mut bad = good.clone();
            if mutate(&mut bad, index) {
                let kinds: Vec<_> = check(&bad).iter().map(Anomaly::kind).collect();
                prop_assert!(kinds.contains(&kind), "{what}: {kinds:?}");
            }
        }
    }

    /// What was confirmed for certain never comes again.
    #[test]
    fn a_turn_that_comes_after_it_was_confirmed_is_found(steps in schedule(), index in any::<Index>()) {
        let mut history = run(&steps);
        let at = choose(received(&history), index);
        prop_assume!(at.is_some());
        let Event::Received { attachment, turn } = history.events[at.unwrap()].clone() else {
            unreachable!("chosen among those received")
        };
        let session = history.events.iter().find_map(|event| match event {
            Event::Attaching { attachment: it, session } if *it == attachment => Some(session.clone()),
            _ => None,
        });
        // Every session ends with a surface that confirmed all.
        let again = history.attaching(&session.unwrap());
        history.attached(again);
        history.received(again, turn);
        let kinds: Vec<_> = check(&history).iter().map(Anomaly::kind).collect();
        prop_assert_eq!(kinds, [Kind::Duplicate]);
    }
}
