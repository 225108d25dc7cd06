use super::*;
use crate::approval::{Approval, ApprovalState};
use crate::completion::ToolCall;
use crate::id::ApprovalId;
use crate::session::{AskedRow, AttachmentRow, PlannedCall, Replanned, ReplicaId, Work};
use crate::surface::SurfaceContext;

#[test]
fn sbp_l2_13_turns_are_taken_up_in_their_order_and_a_started_one_begins_again() {
    let waiting = TurnRow { started: false, ..row(2, Origin::Surface) };
    let rows = Loaded { turns: vec![row(1, Origin::Surface), waiting], ..loaded() };
    let (mut bench, step) = Bench::loading(rows);
    assert_eq!(step.writes, [Write::Start { turn: turn(1), attempt: 2 }]);
    assert_eq!(step.starts(), [(turn(1), 2, 0)]);
    assert_eq!(bench.answer(1), Step::default(), "the first attempt's report");
    let end = answered("yes");
    let step = bench.fact(Fact::RoundEnded { turn: turn(1), attempt: 2, round: 0, end });
    assert_eq!(step.starts(), [(turn(2), 1, 0)], "one that never began is in its first attempt");
}

#[test]
fn sbp_l2_13_a_third_attempt_ends_as_interrupted() {
    let started = TurnRow { attempt: 2, ..row(1, Origin::Http) };
    let rows = Loaded { turns: vec![started, row(2, Origin::Http)], ..loaded() };
    let (_, step) = Bench::loading(rows);
    assert_eq!(step.names(), ["append", "end", "start"]);
    let entries = step.entries();
    assert_eq!(entries[0].0, EntryKind::Message, "what was asked is kept");
    let (kind, status, text) = &entries[1];
    assert_eq!((*kind, *status), (EntryKind::Note, TurnStatus::Interrupted));
    assert!(text.contains("interrupted twice"), "{text}");
    assert_eq!(step.starts(), [(turn(2), 2, 0)]);
}

#[test]
fn sbp_l2_13_what_is_on_record_is_looked_at_before_the_model_is_asked_again() {
    let advanced = TurnRow { advanced: true, ..row(1, Origin::Http) };
    let (mut bench, step) = Bench::loading(Loaded { turns: vec![advanced], ..loaded() });
    assert_eq!(step.effects, [Effect::Replan { turn: turn(1), attempt: 2 }]);
    let plan = || Ok(Replanned { seq: 2, calls: Vec::new(), rounds: 1, spent_usd: 0.5 });
    let late = Fact::Replanned { turn: turn(1), attempt: 1, plan: plan() };
    assert_eq!(bench.fact(late), Step::default());
    let step = bench.fact(Fact::Replanned { turn: turn(1), attempt: 2, plan: plan() });
    assert_eq!(step.starts(), [(turn(1), 2, 1)]);
}

#[test]
fn g2_a_recovered_turn_that_fails_leaves_a_note_because_its_caller_is_gone() {
    let waiting = TurnRow { started: false, ..row(1, Origin::Http) };
    let (mut bench, _) = Bench::loading(Loaded { turns: vec![waiting], ..loaded() });
    let step = bench.round_ended(1, 0, refused());
    assert_eq!(step.names(), ["append", "end"]);
    let advanced = TurnRow { advanced: true, ..row(1, Origin::Http) };
    let (mut bench, _) = Bench::loading(Loaded { turns: vec![advanced], ..loaded() });
    let plan = Err(Failure::new(Code::Internal, "the log cannot be read"));
    let step = bench.fact(Fact::Replanned { turn: turn(1), attempt: 2, plan });
    assert_eq!(step.names(), ["append", "end"]);
}

#[test]
fn g2_a_turn_that_cannot_be_read_any_more_ends_with_a_note() {
    let unreadable = TurnRow { request: "{".into(), keyed: true, ..row(1, Origin::Http) };
    let rows = Loaded { turns: vec![unreadable, row(2, Origin::Http)], ..loaded() };
    let (_, step) = Bench::loading(rows);
    assert_eq!(step.names(), ["append", "end", "start"]);
    assert_eq!(step.entries()[0].1, TurnStatus::Failed);
}

#[test]
fn whoever_was_attached_has_lost_its_owner() {
    for (guest, status) in [(false, Status::Suspended), (true, Status::Running)] {
        let attachment = AttachmentRow {
            epoch: 4,
            edge: ReplicaId(Uuid::nil()),
            joined: guest,
            guest,
            context: SurfaceContext::default(),
        };
        let head = Head { attach_epoch: 4, ..Head::new(Status::Running, Timestamp::UNIX_EPOCH) };
        let attachments = vec![attachment];
        let (bench, step) = Bench::loading(Loaded { attachments, head, ..loaded() });
        assert_eq!(step.writes, [Write::Detach { epoch: 4 }]);
        assert_eq!(bench.machine.head().status, status, "a guest suspends nothing");
    }
}

fn asked(state: ApprovalState) -> AskedRow {
    let approval = Approval {
        state,
        expires_at: Timestamp::UNIX_EPOCH + Duration::from_secs(60),
        ..Approval::new(
            ApprovalId(Uuid::nil()),
            SessionId(Uuid::nil()),
            turn(1),
            "camera".into(),
            serde_json::Value::Null,
            Timestamp::UNIX_EPOCH,
        )
    };
    AskedRow { approval, place: (2, 0), definition: String::new() }
}

#[test]
fn sbp_l2_13_restarts_do_not_count_while_a_person_is_asked() {
    for (state, goes_on) in [
        (ApprovalState::Pending, true),
        (ApprovalState::Approved, true),
        (ApprovalState::Denied, false),
        (ApprovalState::Expired, false),
        (ApprovalState::Used, false),
    ] {
        let started = TurnRow { attempt: 5, advanced: true, ..row(1, Origin::Surface) };
        let rows = Loaded { turns: vec![started], asked: vec![asked(state)], ..loaded() };
        let (mut bench, _) = Bench::loading(rows);
        let plan = Ok(Replanned { seq: 2, calls: Vec::new(), rounds: 1, spent_usd: 0.0 });
        let step = bench.fact(Fact::Replanned { turn: turn(1), attempt: 6, plan });
        assert_eq!(bench.machine.turns() == 1, goes_on, "{state:?}: {step:?}");
    }
}

#[test]
fn g9_the_calls_of_a_turn_that_is_given_up_have_an_end() {
    let advanced = TurnRow { attempt: 2, advanced: true, ..row(1, Origin::Http) };
    let rows = Loaded { turns: vec![advanced, row(2, Origin::Http)], ..loaded() };
    let (mut bench, step) = Bench::loading(rows);
    assert_eq!(step.effects, [Effect::Replan { turn: turn(1), attempt: 3 }]);
    let call = ToolCall { id: "c".into(), name: "surface_camera".into(), arguments: "{}".into() };
    let planned = PlannedCall {
        id: Uuid::nil(),
        n: 0,
        call,
        work: Work::Known(Ok(serde_json::Value::Null)),
        permission: None,
        again: true,
    };
    let plan = Ok(Replanned { seq: 2, calls: vec![planned], rounds: 1, spent_usd: 0.0 });
    let step = bench.fact(Fact::Replanned { turn: turn(1), attempt: 3, plan });
    assert_eq!(step.names(), ["append", "append", "end", "start"]);
    let entries = step.entries();
    assert_eq!(entries[0].0, EntryKind::Action);
    assert!(entries[0].2.contains("interrupted"), "{entries:?}");
    assert_eq!((entries[1].0, entries[1].1), (EntryKind::Note, TurnStatus::Interrupted));
    assert_eq!(step.starts(), [(turn(2), 2, 0)]);
}

#[test]
fn sbp_l1_11_what_a_turn_without_an_answer_asked_is_known_as_its_callers() {
    let caller = Some(crate::context::CallerTag(7));
    let request = TurnRequest { caller, ..(*submit(1, Origin::Http).request).clone() };
    let started = TurnRow { attempt: 2, request: request.to_json(), ..row(1, Origin::Http) };
    let (_, step) = Bench::loading(Loaded { turns: vec![started], ..loaded() });
    let Write::Append { entries, .. } = &step.writes[0] else { panic!("{:?}", step.writes) };
    assert_eq!(entries[0].entry.kind, EntryKind::Message);
    assert_eq!(entries[0].entry.caller, caller);
}
