//! The store against a plain model, under random schedules with restarts in between.

use std::collections::BTreeMap;

use bowline_sbp::id::SessionId;
use bowline_store::sqlite::Sqlite;
use bowline_store::{Accepted, InstanceId, NewTurn, Store};
use proptest::prelude::*;

use crate::fixture::*;

#[derive(Debug, Clone)]
enum Step {
    Accept(usize),
    Finish(usize),
    Abandon(usize),
    Attach(usize),
    Detach(usize),
    Confirm(usize, u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = 0..3usize;
    let step = prop_oneof![
        4 => session.clone().prop_map(Step::Accept),
        4 => session.clone().prop_map(Step::Finish),
        1 => session.clone().prop_map(Step::Abandon),
        2 => session.clone().prop_map(Step::Attach),
        1 => session.clone().prop_map(Step::Detach),
        3 => (session, 0..30u64).prop_map(|(s, seq)| Step::Confirm(s, seq)),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What a session should be, said as simply as possible.
#[derive(Debug, Default)]
struct Expected {
    /// Texts at positions 1, 2, …
    log: Vec<String>,
    delivered: u64,
    epoch: u64,
    attached: bool,
    running: Vec<NewTurn>,
}

impl Expected {
    fn pending(&self) -> Vec<String> {
        let answers = self.log.iter().enumerate().filter(|(at, _)| at % 2 == 1);
        answers.filter(|(at, _)| *at as u64 + 1 > self.delivered).map(|(_, t)| t.clone()).collect()
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

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(folder.path()).unwrap();
    let mut me: InstanceId = instance();
    let mut ids: Vec<SessionId> = Vec::new();
    let mut expected: BTreeMap<usize, Expected> = BTreeMap::new();
    for n in 0..3 {
        ids.push(made(&store).await.id);
        expected.insert(n, Expected::default());
    }
    for step in steps {
        match step {
            Step::Accept(s) => {
                let turn = turn_in(ids[s], me);
                let accepted = store.accept_turn(turn.clone()).await.unwrap();
                prop_assert!(matches!(accepted, Accepted::Fresh { .. }), "{:?}", accepted);
                expected.get_mut(&s).unwrap().running.push(turn);
            }
            Step::Finish(s) => {
                let model = expected.get_mut(&s).unwrap();
                let Some(turn) = model.running.pop() else { continue };
                let text = format!("answer {}", model.log.len());
                let entries = vec![said("q"), answered(&text)];
                store.finish_turn(finish(turn.id, me, entries)).await.unwrap();
                model.log.extend(["q".to_owned(), text]);
            }
            Step::Abandon(s) => {
                let model = expected.get_mut(&s).unwrap();
                let Some(turn) = model.running.pop() else { continue };
                store.abandon_turn(turn.id, me).await.unwrap();
            }
            Step::Attach(s) => {
                let model = expected.get_mut(&s).unwrap();
                let attached = store.attach(attach_to(ids[s], me)).await.unwrap();
                model.epoch += 1;
                model.attached = true;
                prop_assert_eq!(attached.epoch, model.epoch);
                prop_assert_eq!(attached.session.pending_turns, model.pending().len() as u64);
            }
            Step::Detach(s) => {
                let model = expected.get_mut(&s).unwrap();
                let detached = store.detach(ids[s], model.epoch, at()).await.unwrap();
                prop_assert_eq!(detached, model.attached);
                model.attached = false;
            }
            Step::Confirm(s, seq) => {
                let model = expected.get_mut(&s).unwrap();
                store.confirm(ids[s], model.epoch, seq).await.unwrap();
                if seq <= model.log.len() as u64 {
                    model.delivered = model.delivered.max(seq);
                }
            }
            Step::Restart => {
                drop(store);
                store = Sqlite::open(folder.path()).unwrap();
                me = instance();
                let unfinished = store.take_over(me, at()).await.unwrap();
                let running: usize = expected.values().map(|model| model.running.len()).sum();
                prop_assert_eq!(unfinished.len(), running);
                expected.values_mut().for_each(|model| model.attached = false);
            }
        }
        for (n, model) in &expected {
            let session = store.session(ids[*n]).await.unwrap().unwrap();
            prop_assert_eq!(session.last_seq, model.log.len() as u64);
            prop_assert_eq!(session.surface.is_some(), model.attached);
            prop_assert_eq!(pending(&store, ids[*n]).await, model.pending());
        }
    }
    Ok(())
}
