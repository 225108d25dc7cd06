use super::*;
use crate::session::Refusal;

const MOVE: Uuid = Uuid::from_u128(100);
const OTHER: Uuid = Uuid::from_u128(200);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn hold(by: Uuid, second: i64) -> Command {
    Command::Hold { by, until: at(second) }
}

fn held(second: i64) -> Reply {
    Reply::Refused(Refusal::Held(at(second)))
}

#[test]
fn sbp_l6_05_a_session_that_is_held_accepts_nothing_until_the_hold_ends() {
    let mut bench = Bench::new();
    assert_eq!(*bench.command(hold(MOVE, 10)).reply_of(), Reply::Done);
    let step = bench.said(1);
    assert_eq!((step.reply_of(), step.writes.is_empty()), (&held(10), true));
    bench.wait(10);
    assert_eq!(*bench.said(1).reply_of(), Reply::Accepted { turn: turn(1) });
}

#[test]
fn sbp_l6_05_what_was_accepted_before_a_hold_runs_and_is_answered() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.said(2);
    bench.command(hold(MOVE, 10));
    // The same again is the turn that was accepted.
    assert_eq!(*bench.said(2).reply_of(), Reply::Accepted { turn: turn(2) });
    assert!(matches!(bench.answer(1).reply_of(), Reply::Ended { .. }));
    bench.answer(2);
    assert_eq!(*bench.said(3).reply_of(), held(10));
}

#[test]
fn sbp_l6_05_a_hold_is_ended_and_taken_over_only_by_whose_it_is() {
    let mut bench = Bench::new();
    bench.command(hold(MOVE, 10));
    bench.command(hold(OTHER, 100));
    bench.command(Command::EndHold { by: OTHER });
    assert_eq!(*bench.said(1).reply_of(), held(10));
    bench.command(hold(MOVE, 20));
    assert_eq!(*bench.said(1).reply_of(), held(20), "renewed");
    bench.command(Command::EndHold { by: MOVE });
    assert_eq!(*bench.said(1).reply_of(), Reply::Accepted { turn: turn(1) });
    bench.answer(1);
    bench.command(hold(MOVE, 10));
    bench.wait(10);
    bench.command(hold(OTHER, 30));
    assert_eq!(*bench.said(2).reply_of(), held(30), "the first one is over");
}

#[test]
fn sbp_l6_05_the_next_owner_of_a_reserved_session_holds_it() {
    let rows = Loaded { held: Some((MOVE, at(10))), ..loaded() };
    let (mut bench, _) = Bench::loading(rows);
    assert_eq!(*bench.said(1).reply_of(), held(10));
}
