use super::*;
use crate::budget::Spender;
use crate::error::UpstreamError;
use crate::lifecycle::Change;
use crate::session::{NewSession, PlannedCall, Refusal, TokenHash, Work};

#[test]
fn sbp_l2_18_turns_run_one_at_a_time_in_the_order_they_came() {
    let mut bench = Bench::new();
    let first = bench.said(1);
    assert_eq!(first.names(), ["accept"], "accepted and started in one row");
    assert_eq!(first.starts(), [(turn(1), 1, 0)]);
    assert_eq!(bench.said(2).starts(), []);
    assert_eq!(bench.said(3).starts(), []);
    for (ends, starts) in [(1, 2), (2, 3)] {
        let step = bench.answer(ends);
        assert_eq!(step.names(), ["append", "spend", "end", "start"], "one commit for both");
        assert_eq!(step.starts(), [(turn(starts), 1, 0)]);
    }
    assert_eq!(bench.answer(3).names(), ["append", "spend", "end"]);
    assert!(bench.machine.is_idle());
}

#[test]
fn sbp_l2_18_sixty_four_turns_wait_and_the_next_one_is_refused() {
    let mut bench = Bench::new();
    for number in 1..=65 {
        assert_eq!(*bench.said(number).reply_of(), Reply::Accepted { turn: turn(number) });
    }
    assert_eq!(*bench.said(66).reply_of(), Reply::Refused(Refusal::Full(64)));
    // A retry of a waiting turn does not count against the limit.
    assert_eq!(*bench.said(65).reply_of(), Reply::Accepted { turn: turn(65) });
    bench.answer(1);
    assert_eq!(*bench.said(66).reply_of(), Reply::Accepted { turn: turn(66) });
}

#[test]
fn g1_entries_are_contiguous_and_counted() {
    let mut bench = Bench::new();
    for number in 1..=3 {
        bench.submit(number);
        let step = bench.answer(number);
        let Write::Append { entries, .. } = &step.writes[0] else { panic!("{step:?}") };
        let first = 2 * u64::try_from(number).unwrap() - 1;
        assert_eq!(entries.iter().map(|e| e.seq).collect::<Vec<_>>(), [first, first + 1]);
    }
    let head = bench.machine.head();
    assert_eq!((head.last_seq, head.step_count, head.cost_usd), (6, 3, 1.5));
    assert_eq!(head.tokens, Tokens { prompt: 6, completion: 3 });
}

#[test]
fn sbp_l2_15_a_suspended_session_takes_a_turn_only_if_it_is_resumed() {
    let mut bench = Bench::new();
    bench.command(Command::SetStatus(Change::Suspend));
    let step = bench.submit(1);
    assert_eq!((step.names(), step.reply_of()), (vec![], &Reply::Suspended));
    let step = bench.command(Command::Submit(Submit { resume: true, ..waited(1) }));
    assert_eq!(step.starts(), [(turn(1), 1, 0)]);
    assert_eq!(bench.machine.head().status, Status::Running);
}

#[test]
fn a_session_that_is_completed_refuses_those_that_wait() {
    let mut bench = Bench::new();
    bench.said(1);
    bench.said(2);
    bench.command(Command::SetStatus(Change::Complete));
    assert_eq!(*bench.said(3).reply_of(), Reply::Refused(Refusal::Ended(Status::Completed)));
    let step = bench.answer(1);
    assert_eq!(step.entries().pop().unwrap().1, TurnStatus::Failed);
    assert_eq!((step.starts(), bench.machine.turns()), (vec![], 0));
}

#[test]
fn g18_a_late_report_of_an_earlier_run_is_passed_over() {
    let mut bench = Bench::new();
    bench.said(1);
    for (number, attempt, round) in [(1, 2, 0), (1, 1, 1), (2, 1, 0)] {
        let end = answered("late");
        let step = bench.fact(Fact::RoundEnded { turn: turn(number), attempt, round, end });
        assert_eq!(step, Step::default(), "{number} {attempt} {round}");
    }
    bench.answer(1);
    assert_eq!(bench.answer(1), Step::default(), "a report that comes twice");
}

#[test]
fn g4_a_turn_that_its_caller_sees_fail_leaves_nothing() {
    let mut bench = Bench::new();
    bench.submit(1);
    let step = bench.round_ended(1, 0, refused());
    assert_eq!(step.names(), ["forget"]);
    assert_eq!(step.outcome().as_ref().unwrap_err().code, Code::Upstream);
    assert_eq!(bench.machine.head().status, Status::Idle, "as it was found");
}

#[test]
fn g2_a_turn_of_a_surface_that_fails_leaves_a_note() {
    let mut bench = Bench::new();
    bench.said(1);
    let step = bench.round_ended(1, 0, refused());
    assert_eq!(step.names(), ["append", "end"]);
    let note = (EntryKind::Note, TurnStatus::Failed, "The model failed.".to_owned());
    assert_eq!(step.entries(), [note]);
}

fn making() -> Bench {
    let new = NewSession {
        id: SessionId(Uuid::nil()),
        token_hash: TokenHash([0; 32]),
        listed: false,
        user: crate::access::OWNER,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: Timestamp::UNIX_EPOCH,
    };
    Bench::of(Machine::make(&new, SessionLimits::default()), Instant::now())
}

#[test]
fn g4_a_first_turn_that_comes_to_nothing_takes_the_session_with_it() {
    let mut bench = making();
    bench.submit(1);
    let step = bench.round_ended(1, 0, refused());
    assert_eq!(step.names(), ["forget", "delete"]);
    assert_eq!(step.effects.last(), Some(&Effect::End));
    assert_eq!(*bench.submit(2).reply_of(), Reply::Refused(Refusal::NoSession));
}

#[test]
fn a_first_turn_that_comes_to_nothing_leaves_the_session_to_others() {
    let mut bench = making();
    bench.submit(1);
    bench.submit(2);
    let step = bench.round_ended(1, 0, refused());
    assert_eq!(step.names(), ["forget", "start"]);
    assert_eq!(step.starts(), [(turn(2), 1, 0)]);
}

#[test]
fn a_waiting_turn_that_is_cancelled_ends_as_a_note_without_its_messages() {
    let mut bench = Bench::new();
    bench.said(1);
    bench.submit(2);
    bench.said(3);
    let step = bench.command(Command::Cancel { turns: vec![turn(2)], running: false });
    assert_eq!(step.names(), ["append", "end"]);
    let text = "This was cancelled before it began.".to_owned();
    assert_eq!(step.entries(), [(EntryKind::Note, TurnStatus::Cancelled, text)]);
    let told: Vec<_> = step.replies().iter().map(|(to, _)| *to).collect();
    assert_eq!(told, [2, 4], "who waited, and who cancelled");
    // The running turn and the later one are not cancelled.
    assert_eq!(bench.answer(1).starts(), [(turn(3), 1, 0)]);
}

#[test]
fn a_running_turn_that_is_cancelled_is_told_to_stop_and_reports_its_end() {
    for command in [
        Command::Cancel { turns: vec![turn(1)], running: false },
        Command::Cancel { turns: Vec::new(), running: true },
    ] {
        let mut bench = Bench::new();
        bench.said(1);
        bench.said(2);
        let step = bench.command(command);
        assert_eq!((step.names(), &step.effects[0]), (vec![], &stopped(1)));
        assert_eq!(*step.reply_of(), Reply::Cancelled { turns: vec![turn(1)] });
        assert_eq!(bench.answer(1).starts(), [(turn(2), 1, 0)]);
    }
}

fn stopped(number: u128) -> Effect {
    Effect::StopRound { turn: turn(number) }
}

#[test]
fn a_cancel_of_a_turn_that_is_over_spares_the_one_that_runs() {
    let mut bench = Bench::new();
    bench.said(1);
    bench.said(2);
    bench.answer(1);
    let step = bench.command(Command::Cancel { turns: vec![turn(1)], running: false });
    assert_eq!(*step.reply_of(), Reply::Cancelled { turns: Vec::new() });
    assert_eq!(step.effects.len(), 1);
}

#[test]
fn g16_a_stopping_owner_begins_nothing_and_tells_those_that_wait() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.submit(2);
    let step = bench.fact(Fact::Stop);
    assert_eq!(step.replies(), [(2, &Reply::Refused(Refusal::Stopping))]);
    assert_eq!(*bench.submit(3).reply_of(), Reply::Refused(Refusal::Stopping));
    let step = bench.answer(1);
    assert_eq!((step.names(), step.starts()), (vec!["append", "spend", "end"], vec![]));
    assert_eq!((bench.machine.turns(), bench.machine.is_quiet()), (1, true));
}

#[test]
fn a_deleted_session_tells_all_who_wait() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.submit(2);
    let step = bench.command(Command::Delete);
    assert_eq!(step.names(), ["delete"]);
    let gone = Reply::Refused(Refusal::NoSession);
    assert_eq!(step.replies(), [(1, &gone), (2, &gone), (3, &Reply::Done)]);
    assert_eq!(bench.answer(1), Step::default());
    assert!(bench.machine.live().gone);
}

/// A round that calls one tool.
fn one_call(work: Work) -> RoundEnd {
    let call = crate::completion::ToolCall {
        id: "c".into(),
        name: "search".into(),
        arguments: "{}".into(),
    };
    let id = Uuid::from_u128(5);
    let calls = vec![PlannedCall { id, n: 0, call, work, permission: None, again: true }];
    let (entries, tokens) = (Vec::new(), Tokens::default());
    RoundEnd::Calls { entries, calls, cost_usd: 0.0, tokens, then: None }
}

#[test]
fn g4_a_refusal_after_tools_ran_is_not_told_as_if_nothing_was_stored() {
    let refused = || {
        let said = UpstreamError { status: 400, ..UpstreamError::default() };
        let mut failure = Failure::new(Code::InvalidRequest, "too long");
        failure.upstream = Some(Box::new(said));
        RoundEnd::Refused { asked: Vec::new(), failure, note: "note".into() }
    };
    let told = |step: Step| step.outcome().as_ref().unwrap_err().http_status();
    let mut bench = Bench::new();
    bench.submit(1);
    assert_eq!(told(bench.round_ended(1, 0, refused())), 400);
    bench.submit(2);
    bench.round_ended(2, 0, one_call(Work::Known(Ok(serde_json::Value::Null))));
    let step = bench.round_ended(2, 1, refused());
    assert_eq!(step.names(), ["append", "end"]);
    assert_eq!(told(step), 502);
}

#[test]
fn a_turn_that_is_cancelled_while_its_tools_run_asks_the_model_nothing_more() {
    let mut bench = Bench::new();
    bench.said(1);
    let work = Work::Task { tool: "search".into(), input: serde_json::Value::Null };
    bench.round_ended(1, 0, one_call(work));
    let step = bench.command(Command::Cancel { turns: vec![turn(1)], running: false });
    assert_eq!(step.starts(), [(turn(1), 1, 1)]);
    let last = step.effects.iter().rposition(|effect| *effect == stopped(1)).unwrap();
    let start = step.effects.iter().position(|e| matches!(e, Effect::StartRound { .. })).unwrap();
    assert!(start < last, "the new round is told to stop: {:?}", step.effects);
}

#[test]
fn the_first_words_name_the_session_until_a_person_does() {
    let mut bench = Bench::new();
    let shown = |bench: &Bench| bench.machine.head().titles.shown().map(str::to_owned);
    bench.submit(1);
    assert_eq!(shown(&bench), None, "the turn may still be forgotten");
    bench.answer(1);
    let automatic = shown(&bench);
    assert_eq!(automatic.as_deref(), Some("a question"));
    bench.submit(2);
    let RoundEnd::Answered(mut second) = answered("yes") else { unreachable!() };
    second.asked = vec![NewEntry::message(Message::text("user", "another one"))];
    bench.round_ended(2, 0, RoundEnd::Answered(second));
    assert_eq!(bench.machine.head().last_seq, 4);
    assert_eq!(shown(&bench), automatic, "only the first message counts");
    let updated_at = bench.machine.head().updated_at;
    bench.wait(5);
    assert_eq!(*bench.command(Command::SetTitle(Some("Trip".into()))).reply_of(), Reply::Done);
    assert_eq!(shown(&bench).as_deref(), Some("Trip"));
    assert_eq!(bench.machine.head().updated_at, updated_at);
    bench.command(Command::SetTitle(None));
    assert_eq!(shown(&bench), automatic);
}

#[test]
fn every_round_is_counted_with_what_it_stores_for_whoever_sent_the_turn() {
    let spent = |step: &Step| -> Vec<(Spender, u64, u64, u64, u64)> {
        let spent = step.writes.iter().filter_map(|write| match write {
            Write::Spend { spender, spent } => Some((spender.clone(), spent)),
            _ => None,
        });
        spent.map(|(who, s)| (who, s.turns, s.model_calls, s.tokens(), s.usd_micros)).collect()
    };
    let mut bench = Bench::new();
    bench.submit(1);
    let owner = Spender::user(crate::access::OWNER);
    assert_eq!(spent(&bench.answer(1)), [(owner, 1, 1, 3, 500_000)]);
    let guest = Spender::user(crate::id::UserId(Uuid::from_u128(7)));
    let mut asked = waited(2);
    asked.request =
        Arc::new(TurnRequest { spender: Some(guest.clone()), ..(*asked.request).clone() });
    bench.command(Command::Submit(asked));
    let step = bench.round_ended(2, 0, one_call(Work::Known(Ok(serde_json::Value::Null))));
    assert_eq!(spent(&step), [(guest.clone(), 0, 1, 0, 0)]);
    // A server that did not say what it used is not for nothing.
    let RoundEnd::Answered(mut cut) = answered("ye") else { panic!() };
    cut.unreported = Some((Tokens { prompt: 40, completion: 2 }, 0.25));
    let step = bench.round_ended(2, 1, RoundEnd::Answered(cut));
    assert_eq!(spent(&step), [(guest, 1, 1, 42, 250_000)]);
    // What left no trace was not answered.
    bench.submit(3);
    assert_eq!(spent(&bench.round_ended(3, 0, refused())), []);
}
