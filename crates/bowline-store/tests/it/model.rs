//! The store against a plain model, under random schedules with restarts in between.

use bowline_sbp::id::SessionId;
use bowline_store::sqlite::Sqlite;
use bowline_store::{Accepted, InstanceId, NewTurn, Store, TurnSession};
use proptest::prelude::*;

use crate::fixture::*;

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
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // The how-manieth newest.
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
        1 => session.prop_map(Step::Delete),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..80)
}

/// What a session should be, said as simply as possible.
#[derive(Debug)]
struct Expected {
    id: SessionId,
    /// Texts at positions 1, 2, …
    log: Vec<String>,
    delivered: u64,
    epoch: u64,
    attached: bool,
    running: Vec<NewTurn>,
}

impl Expected {
    fn new(id: SessionId, log: Vec<String>) -> Self {
        let delivered = log.len() as u64;
        Self { id, log, delivered, epoch: 0, attached: false, running: Vec::new() }
    }

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
                let new = new_session();
                let turn = turn(TurnSession::New(new.clone()), me);
                let texts = [format!("question {turns}"), format!("answer {turns}")];
                let entries = vec![said(&texts[0]), answered(&texts[1])];
                store.accept_turn(turn.clone()).await.unwrap();
                store.finish_turn(finish(turn.id, me, entries)).await.unwrap();
                let mut made = Expected::new(new.id, Vec::new());
                made.log.extend(texts);
                expected.push(made);
            }
            Step::Accept(s) => {
                let model = &mut expected[s % some];
                let turn = turn_in(model.id, me);
                let accepted = store.accept_turn(turn.clone()).await.unwrap();
                prop_assert!(matches!(accepted, Accepted::Fresh { .. }), "{:?}", accepted);
                model.running.push(turn);
            }
            Step::Finish(s) => {
                let model = &mut expected[s % some];
                let Some(turn) = model.running.pop() else { continue };
                turns += 1;
                let texts = [format!("question {turns}"), format!("answer {turns}")];
                let entries = vec![said(&texts[0]), answered(&texts[1])];
                store.finish_turn(finish(turn.id, me, entries)).await.unwrap();
                model.log.extend(texts);
            }
            Step::Abandon(s) => {
                let model = &mut expected[s % some];
                let Some(turn) = model.running.pop() else { continue };
                store.abandon_turn(turn.id, me).await.unwrap();
            }
            Step::Attach(s) => {
                let model = &mut expected[s % some];
                let attached = store.attach(attach_to(model.id, me)).await.unwrap();
                model.epoch += 1;
                model.attached = true;
                prop_assert_eq!(attached.epoch, model.epoch);
                prop_assert_eq!(attached.session.pending_turns, model.pending().len() as u64);
            }
            Step::Detach(s) => {
                let model = &mut expected[s % some];
                let detached = store.detach(model.id, model.epoch, at()).await.unwrap();
                prop_assert_eq!(detached, model.attached);
                model.attached = false;
            }
            Step::Confirm(s, seq) => {
                let model = &mut expected[s % some];
                store.confirm(model.id, model.epoch, seq).await.unwrap();
                if seq <= model.log.len() as u64 {
                    model.delivered = model.delivered.max(seq);
                }
            }
            Step::Fork(s, step) => {
                let model = &expected[s % some];
                let step = step % (model.log.len() as u64 / 2 + 1);
                let made = store.fork(fork_of(model.id, Some(step))).await.unwrap();
                prop_assert_eq!(made.point, (2 * step, step));
                let log = model.log[..2 * step as usize].to_vec();
                expected.insert(0, Expected::new(made.session.id, log));
            }
            Step::Delete(s) => {
                let model = expected.remove(s % some);
                prop_assert!(store.delete_session(model.id).await.unwrap());
            }
            Step::Restart => {
                drop(store);
                store = Sqlite::open(folder.path()).unwrap();
                me = instance();
                let unfinished = store.take_over(me, at()).await.unwrap();
                let running: usize = expected.iter().map(|model| model.running.len()).sum();
                prop_assert_eq!(unfinished.len(), running);
                expected.iter_mut().for_each(|model| model.attached = false);
            }
        }
        for model in &expected {
            let session = store.session(model.id).await.unwrap().unwrap();
            prop_assert_eq!(session.last_seq, model.log.len() as u64);
            prop_assert_eq!(session.surface.is_some(), model.attached);
            prop_assert_eq!(pending(&store, model.id).await, model.pending());
            prop_assert_eq!(&texts(&store, model.id).await, &model.log);
        }
    }
    Ok(())
}
