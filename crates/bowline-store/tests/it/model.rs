//! Compares the store with a simple model, in random schedules with restarts.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use bowline_sbp::id::SessionId;
use bowline_store::sqlite::Sqlite;
use proptest::prelude::*;

use crate::fixture::*;
use crate::live::*;

#[derive(Debug, Clone)]
enum Step {
    First,
    Accept(usize),
    Finish(usize),
    Abandon(usize),
    Attach(usize),
    Detach(usize),
    Confirm(usize, u64),
    Fork(usize, u64),
    Delete(usize),
    /// Another actor of the same process takes over the session.
    Reload(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // An index into the sessions, newest first.
    let session = 0..4usize;
    let step = prop_oneof![
        1 => Just(Step::First),
        6 => session.clone().prop_map(Step::Accept),
        6 => session.clone().prop_map(Step::Finish),
        1 => session.clone().prop_map(Step::Abandon),
        2 => session.clone().prop_map(Step::Attach),
        1 => session.clone().prop_map(Step::Detach),
        3 => (session.clone(), 0..30u64).prop_map(|(s, seq)| Step::Confirm(s, seq)),
        2 => (session.clone(), any::<u64>()).prop_map(|(s, step)| Step::Fork(s, step)),
        1 => session.clone().prop_map(Step::Delete),
        1 => session.prop_map(Step::Reload),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..80)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Question,
    Answer,
    Note,
}

#[derive(Debug)]
struct Waiting {
    question: String,
    attempt: u32,
    /// Accepted by an earlier owner: no caller waits for its answer.
    recovered: bool,
}

/// The expected state of a session.
#[derive(Debug)]
struct Expected {
    id: SessionId,
    /// Positions 1, 2, …
    log: Vec<(String, Kind)>,
    delivered: u64,
    epoch: u64,
    attached: bool,
    /// Unfinished turns; the first one is running.
    turns: VecDeque<Waiting>,
}

impl Expected {
    fn new(id: SessionId, log: Vec<(String, Kind)>) -> Self {
        let delivered = log.len() as u64;
        Self { id, log, delivered, epoch: 0, attached: false, turns: VecDeque::new() }
    }

    fn pending(&self) -> Vec<String> {
        let missed = self.log.iter().skip(self.delivered as usize);
        missed.filter(|(_, kind)| *kind != Kind::Question).map(|(text, _)| text.clone()).collect()
    }

    fn history(&self) -> Vec<String> {
        let said = self.log.iter().filter(|(_, kind)| *kind != Kind::Note);
        said.map(|(text, _)| text.clone()).collect()
    }

    /// The position of each answer.
    fn steps(&self) -> Vec<u64> {
        let answers = (1..).zip(&self.log).filter(|(_, (_, kind))| *kind == Kind::Answer);
        answers.map(|(seq, _)| seq).collect()
    }

    /// The owner crashes. A running turn is run a second time, but not a third time: then its
    /// question stays in the log with a note. No surface is attached.
    fn lose_owner(&mut self) {
        self.attached = false;
        self.turns.iter_mut().for_each(|turn| turn.recovered = true);
        if let Some(first) = self.turns.front_mut() {
            first.attempt += 1;
        }
        if self.turns.front().is_some_and(|first| first.attempt > 2) {
            let given_up = self.turns.pop_front().expect("it is the first");
            self.log.push((given_up.question, Kind::Question));
            let text = "This turn was interrupted twice by a restart of the gateway and was given \
                        up. Send it again to have it answered.";
            self.log.push((text.into(), Kind::Note));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn g2_any_schedule_with_restarts_agrees_with_a_plain_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps))?;
    }
}

/// The sessions that have an actor.
#[derive(Default)]
struct Owners(HashMap<SessionId, Live>);

impl Owners {
    async fn of(&mut self, store: &S, id: SessionId) -> &mut Live {
        match self.0.entry(id) {
            Entry::Occupied(owned) => owned.into_mut(),
            Entry::Vacant(free) => free.insert(Live::of(store, id).await),
        }
    }
}

fn open(folder: &Path) -> S {
    Arc::new(Sqlite::open(folder).unwrap())
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path());
    let mut owners = Owners::default();
    let mut expected: Vec<Expected> = Vec::new();
    let mut turns = 0;
    for step in steps {
        if expected.len() < 3 {
            expected.push(Expected::new(made(&store).await.id, Vec::new()));
        }
        let some = expected.len();
        match step {
            Step::First => {
                turns += 1;
                let mut live = Live::making(&store, new_session()).await;
                live.feed(whole_turn(&format!("{turns}"))).await.unwrap();
                let mut made = Expected::new(live.id(), Vec::new());
                made.log.push((format!("ask {turns}"), Kind::Question));
                made.log.push((format!("{turns}"), Kind::Answer));
                expected.push(made);
            }
            Step::Accept(s) => {
                let model = &mut expected[s % some];
                turns += 1;
                let question = format!("question {turns}");
                owners.of(&store, model.id).await.submit_as(watched(&question), None).await;
                model.turns.push_back(Waiting { question, attempt: 1, recovered: false });
            }
            Step::Finish(s) => {
                let model = &mut expected[s % some];
                let Some(turn) = model.turns.pop_front() else { continue };
                turns += 1;
                let answer = format!("answer {turns}");
                owners.of(&store, model.id).await.answer(&answer).await;
                model.log.push((turn.question, Kind::Question));
                model.log.push((answer, Kind::Answer));
            }
            Step::Abandon(s) => {
                let model = &mut expected[s % some];
                let Some(turn) = model.turns.pop_front() else { continue };
                owners.of(&store, model.id).await.refuse().await;
                if turn.recovered {
                    model.log.push(("This was not answered.".into(), Kind::Note));
                }
            }
            Step::Attach(s) => {
                let model = &mut expected[s % some];
                let attached = owners.of(&store, model.id).await.attach(None).await;
                model.epoch += 1;
                model.attached = true;
                prop_assert_eq!(attached.epoch, model.epoch);
                prop_assert_eq!(attached.cursor, model.delivered);
            }
            Step::Detach(s) => {
                let model = &mut expected[s % some];
                owners.of(&store, model.id).await.leave(model.epoch).await;
                model.attached = false;
            }
            Step::Confirm(s, seq) => {
                let model = &mut expected[s % some];
                owners.of(&store, model.id).await.confirm(model.epoch, seq).await;
                if model.attached && seq <= model.log.len() as u64 {
                    model.delivered = model.delivered.max(seq);
                }
            }
            Step::Fork(s, step) => {
                let model = &expected[s % some];
                let answers = model.steps();
                let step = step % (answers.len() as u64 + 1);
                let seq = step.checked_sub(1).map_or(0, |nth| answers[nth as usize]);
                let made = store.fork(fork_of(model.id, Some(step))).await.unwrap();
                prop_assert_eq!(made.point, (seq, step));
                let log = model.log[..seq as usize].to_vec();
                expected.insert(0, Expected::new(made.session.id, log));
            }
            Step::Delete(s) => {
                let model = expected.remove(s % some);
                owners.of(&store, model.id).await.delete().await;
                owners.0.remove(&model.id);
            }
            Step::Reload(s) => {
                let model = &mut expected[s % some];
                let mut heir = Live::of(&store, model.id).await;
                heir.take_up().await;
                owners.0.insert(model.id, heir);
                model.lose_owner();
            }
            Step::Restart => {
                owners.0.clear();
                drop(store);
                store = open(folder.path());
                let mut unfinished = store.unfinished(ME).await.unwrap();
                let mut left: Vec<_> = expected
                    .iter()
                    .map(|model| (model.id, model.turns.len() as u64))
                    .filter(|(_, turns)| *turns > 0)
                    .collect();
                unfinished.sort();
                left.sort();
                prop_assert_eq!(&unfinished, &left);
                for (id, _) in left {
                    owners.of(&store, id).await.take_up().await;
                }
                expected.iter_mut().for_each(Expected::lose_owner);
            }
        }
        for model in &expected {
            let loaded = store.load(model.id).await.unwrap().unwrap();
            prop_assert_eq!(loaded.head.last_seq, model.log.len() as u64);
            prop_assert_eq!(!loaded.attachments.is_empty(), model.attached);
            let waiting: Vec<_> =
                loaded.turns.iter().map(|turn| (turn.attempt, turn.started)).collect();
            let turns = model.turns.iter().enumerate();
            let turns: Vec<_> = turns.map(|(nth, turn)| (turn.attempt, nth == 0)).collect();
            prop_assert_eq!(waiting, turns);
            prop_assert_eq!(pending(&store, model.id).await, model.pending());
            prop_assert_eq!(texts(&store, model.id).await, model.history());
        }
    }
    Ok(())
}
