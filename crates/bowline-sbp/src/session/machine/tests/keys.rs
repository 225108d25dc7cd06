use super::*;
use crate::session::{IdempotencyKey, Refusal};

fn keyed(number: u128, body: u8) -> Submit {
    let key = IdempotencyKey { scope: "s".into(), key: "k".into(), body_hash: [body; 32] };
    Submit { key: Some(key), ..waited(number) }
}

fn known(same_body: bool, number: u128, result: Option<String>) -> Option<KnownKey> {
    Some(KnownKey { same_body, turn_id: Some(turn(number)), result })
}

/// The result stored under the turn's idempotency key.
fn result(step: &Step) -> Option<String> {
    let end = |write: &Write| match write {
        Write::End { result, .. } => Some(result.clone()),
        _ => None,
    };
    step.writes.iter().find_map(end).flatten()
}

#[test]
fn g3_the_same_request_under_a_key_joins_the_turn_that_runs() {
    let mut bench = Bench::new();
    bench.command(Command::Submit(keyed(1, 0)));
    let step = bench.command_known(Command::Submit(keyed(2, 0)), known(true, 1, None));
    assert_eq!(step, Step::default());
    let step = bench.answer(1);
    let replies = step.replies();
    assert_eq!(replies.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(replies[0].1, replies[1].1, "the same answer to both");
}

#[test]
fn g3_another_request_under_a_key_is_refused() {
    let refused = Reply::Refused(Refusal::KeyReused);
    let mut bench = Bench::new();
    bench.command(Command::Submit(keyed(1, 0)));
    let other = || Command::Submit(keyed(2, 9));
    assert_eq!(*bench.command_known(other(), known(false, 1, None)).reply_of(), refused);
    bench.answer(1);
    assert_eq!(*bench.command_known(other(), known(false, 1, None)).reply_of(), refused);
    // A recovered turn has no key in memory: the store compared the bodies.
    let rows = Loaded { turns: vec![row(1, Origin::Http)], ..loaded() };
    let (mut bench, _) = Bench::loading(rows);
    let other = Command::Submit(keyed(1, 9));
    assert_eq!(*bench.command_known(other, known(false, 1, None)).reply_of(), refused);
}

#[test]
fn g3_a_request_whose_turn_has_ended_gets_the_same_answer_again() {
    let mut bench = Bench::new();
    bench.command(Command::Submit(keyed(1, 0)));
    let step = bench.answer(1);
    let first = step.reply_of().clone();
    let kept = result(&step);
    assert!(kept.is_some());
    // From the same owner, before and after the store was read, and from the next owner.
    let again = || Command::Submit(keyed(2, 0));
    assert_eq!(*bench.command_known(again(), known(true, 1, None)).reply_of(), first);
    assert_eq!(*bench.command_known(again(), known(true, 1, kept.clone())).reply_of(), first);
    assert_eq!(*Bench::new().command_known(again(), known(true, 1, kept)).reply_of(), first);
}

#[test]
fn g3_a_failure_frees_the_key_and_a_retry_runs_anew() {
    let mut bench = Bench::new();
    bench.command(Command::Submit(keyed(1, 0)));
    assert_eq!(bench.round_ended(1, 0, refused()).names(), ["forget"]);
    // A retry before the failure gets the failure, too; a retry after it runs the turn again.
    let step = bench.command_known(Command::Submit(keyed(2, 0)), known(true, 1, None));
    assert!(step.outcome().is_err());
    let step = bench.command(Command::Submit(keyed(2, 0)));
    assert_eq!(step.starts(), [(turn(2), 1, 0)]);
    let RoundEnd::Answered(mut partial) = answered("half") else { unreachable!() };
    partial.entry.status = TurnStatus::Failed;
    partial.failure = Some(Failure::new(Code::Upstream, "the model failed"));
    let step = bench.round_ended(2, 0, RoundEnd::Answered(partial));
    assert_eq!((step.names(), result(&step)), (vec!["append", "spend", "end"], None));
    assert!(step.outcome().is_err());
}

#[test]
fn g3_the_same_turn_again_is_the_same_turn() {
    let mut bench = Bench::new();
    bench.said(1);
    assert_eq!(bench.said(1).names(), [""; 0]);
    bench.answer(1);
    let again = bench.said(1);
    assert_eq!((again.names(), again.reply_of()), (vec![], &Reply::Accepted { turn: turn(1) }));
}

#[test]
fn a_turn_that_nobody_knows_any_more_is_not_run_again() {
    let unknown = Reply::Refused(Refusal::TurnUnknown);
    let mut bench = Bench::new();
    let step = bench.command_known(Command::Submit(waited(1)), known(true, 1, None));
    assert_eq!((step.names(), step.reply_of()), (vec![], &unknown));
    assert_eq!(*bench.command(Command::Await { turn: turn(1) }).reply_of(), unknown);
}

#[test]
fn whoever_awaits_a_turn_hears_how_it_ended() {
    let mut bench = Bench::new();
    bench.said(1);
    assert_eq!(bench.command(Command::Await { turn: turn(1) }), Step::default());
    let step = bench.answer(1);
    let ended = step.reply_of().clone();
    assert_eq!(*bench.command(Command::Await { turn: turn(1) }).reply_of(), ended);
}
