use super::*;
use crate::id::{ExportId, Seq, SnapshotId};
use crate::session::{HandOff, Packed, Refusal, TokenHash};

fn hand_off(number: u128) -> Command {
    Command::HandOff(HandOff {
        id: SessionId(Uuid::from_u128(number)),
        export_id: ExportId(Uuid::nil()),
        token_hash: TokenHash([0; 32]),
        to_agent: AgentId::fallback(),
        message: None,
        reason: None,
        memory: false,
        key: None,
    })
}

fn packed(number: u128, last_seq: Seq) -> Fact {
    let packed = Packed {
        cid: [0; 32],
        with_memory: false,
        message_count: 0,
        expires_at: Timestamp::UNIX_EPOCH,
        bridge: Vec::new(),
        bridge_turn: turn(0),
        snapshot: SnapshotId(Uuid::nil()),
        detail: "{}".into(),
    };
    let id = SessionId(Uuid::from_u128(number));
    Fact::Packed { id, last_seq, packed: Ok(Box::new(packed)) }
}

/// The position at which a bundle is to be made.
fn packs_at(step: &Step) -> Option<Seq> {
    let pack = |effect: &Effect| match effect {
        Effect::Pack { last_seq, .. } => Some(*last_seq),
        _ => None,
    };
    step.effects.iter().find_map(pack)
}

fn handed_off(number: u128) -> Reply {
    let id = SessionId(Uuid::from_u128(number));
    Reply::HandedOff { id, export_id: ExportId(Uuid::nil()) }
}

#[test]
fn g8_a_handoff_waits_for_the_turns_before_it_and_ends_those_behind_it() {
    let mut bench = Bench::new();
    bench.said(1);
    assert_eq!(bench.command(hand_off(9)), Step::default());
    bench.said(2);
    let step = bench.answer(1);
    assert_eq!((packs_at(&step), step.starts()), (Some(2), vec![]));
    let step = bench.fact(packed(9, 2));
    assert_eq!(step.names(), ["hand_off", "append", "end"]);
    let entries = step.entries();
    assert_eq!(entries[0].0, EntryKind::Message, "what was asked is kept");
    let (kind, status, text) = &entries[1];
    assert_eq!((*kind, *status), (EntryKind::Note, TurnStatus::Failed));
    assert!(text.contains("handed over"), "{text}");
    assert_eq!(step.replies(), [(2, &handed_off(9))]);
    let successor = SessionId(Uuid::from_u128(9));
    assert_eq!(*bench.said(3).reply_of(), Reply::Refused(Refusal::HandedOver(successor)));
}

#[test]
fn g8_a_handoff_that_fails_changes_nothing() {
    let mut bench = Bench::new();
    bench.command(hand_off(9));
    bench.said(1);
    let failure = Failure::new(Code::Internal, "the bundle cannot be made");
    let packed = Err(failure.clone());
    let id = SessionId(Uuid::from_u128(9));
    let step = bench.fact(Fact::Packed { id, last_seq: 0, packed });
    assert_eq!(step.replies(), [(1, &Reply::Refused(Refusal::Failed(failure)))]);
    assert_eq!(step.starts(), [(turn(1), 1, 0)]);
}

#[test]
fn g8_one_handoff_waits_at_most_and_the_same_again_is_the_same() {
    let mut bench = Bench::new();
    bench.said(1);
    bench.command(hand_off(9));
    assert_eq!(*bench.command(hand_off(8)).reply_of(), Reply::Refused(Refusal::HandoffWaits));
    assert_eq!(bench.command(hand_off(9)), Step::default());
    bench.answer(1);
    assert_eq!(bench.fact(packed(9, 2)).replies(), [(2, &handed_off(9)), (4, &handed_off(9))]);
    assert_eq!(bench.fact(packed(9, 2)), Step::default());
    let again = bench.command(hand_off(9));
    assert_eq!(*again.reply_of(), handed_off(9), "its reply was lost");
    let successor = SessionId(Uuid::from_u128(9));
    let refused = Reply::Refused(Refusal::HandedOver(successor));
    assert_eq!(*bench.command(hand_off(8)).reply_of(), refused);
}

#[test]
fn g8_what_is_written_while_the_bundle_is_made_is_not_in_it() {
    let mut bench = Bench::new();
    bench.said(1);
    bench.command(hand_off(9));
    bench.said(2);
    bench.answer(1);
    let step = bench.command(Command::Cancel { turns: vec![turn(2)], running: false });
    assert_eq!(step.names(), ["append", "end"]);
    let step = bench.fact(packed(9, 2));
    let Write::HandOff(handed) = &step.writes[0] else { panic!("{step:?}") };
    assert_eq!(handed.point, (2, 1));
    assert_eq!(bench.machine.head().last_seq, 3);
}

#[test]
fn g8_a_bundle_that_an_earlier_owner_had_made_is_passed_over() {
    let mut bench = Bench::new();
    bench.said(1);
    bench.command(hand_off(9));
    bench.answer(1);
    assert_eq!(bench.fact(packed(9, 0)), Step::default(), "of an earlier position");
    assert_eq!(bench.fact(packed(8, 2)), Step::default(), "of another handoff");
    assert_eq!(bench.fact(packed(9, 2)).names(), ["hand_off"]);
}
