use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::id::{AgentId, SessionId, TurnId};
use crate::lifecycle::Status;
use crate::message::{EntryKind, Message};
use crate::session::{
    Answered, Command, NewEntry, Origin, RoundEnd, Submit, TokenHash, Tokens, TurnRequest, TurnRow,
    Write,
};

fn now() -> Now {
    Now { instant: Instant::now(), at: Timestamp::UNIX_EPOCH, fresh: Uuid::nil() }
}

fn me() -> ReplicaId {
    ReplicaId(Uuid::from_u128(1))
}

fn loaded(turns: Vec<TurnRow>) -> Loaded {
    Loaded {
        owner: None,
        id: SessionId(Uuid::nil()),
        user: crate::access::OWNER,
        agent_id: AgentId::fallback(),
        head: Head::new(Status::Idle, Timestamp::UNIX_EPOCH),
        fence: 4,
        version: 9,
        turns,
        attachments: Vec::new(),
        devices: Vec::new(),
        asked: Vec::new(),
        grants: Vec::new(),
        held: None,
    }
}

fn actor() -> Actor {
    Actor::load(loaded(Vec::new()), me(), SessionLimits::default(), now())
}

fn submit(number: u128, wait: bool) -> Submit {
    let request = TurnRequest {
        model: "m".into(),
        params: Vec::new(),
        messages: vec![Message::text("user", "a question")],
        stream: false,
        checkpoint_every: 10,
        tether: true,
        origin: Origin::Surface,
        agent_id: None,
        recall: false,
        remember: false,
        caller: None,
        history: None,
        digest: None,
        author: None,
        wait_for_approval: false,
        spender: None,
    };
    let (turn, request) = (TurnId(Uuid::from_u128(number)), Arc::new(request));
    Submit { turn, request, key: None, resume: false, sender: None, wait, blobs: Vec::new() }
}

fn command(id: u64, command: Command) -> Input {
    Input::Command { id: CommandId(id), command: Box::new(command), known: None }
}

fn asks(number: u64, wait: bool) -> Input {
    command(number, Command::Submit(submit(number.into(), wait)))
}

fn ended(number: u128) -> Input {
    let message = Message::text("assistant", "yes");
    let end = RoundEnd::Answered(Box::new(Answered {
        asked: Vec::new(),
        entry: NewEntry::new(EntryKind::Turn, message),
        tokens: Tokens::default(),
        completion: "yes".into(),
        closing: None,
        routed_to: "offline".into(),
        left_out: None,
        unreported: None,
        failure: None,
    }));
    let turn = TurnId(Uuid::from_u128(number));
    Input::Fact(Fact::RoundEnded { turn, attempt: 1, round: 0, end })
}

fn commit(actor: &mut Actor, inputs: Vec<Input>) -> Arc<Commit> {
    match actor.take(inputs, Uuid::new_v4(), now) {
        Next::Commit(commit) => commit,
        Next::Effects(effects) => panic!("{effects:?}"),
    }
}

fn not_stored() -> Result<(), CommitError> {
    Err(CommitError::NotStored("busy".into()))
}

fn unknown() -> Result<(), CommitError> {
    Err(CommitError::Unknown("no answer".into()))
}

fn refused(to: u64) -> Effect {
    Effect::Reply { to: CommandId(to), reply: Reply::Refused(Refusal::NotStored) }
}

fn names(commit: &Commit) -> Vec<&'static str> {
    commit.writes.iter().map(Write::name).collect()
}

#[test]
fn g19_the_first_commit_takes_the_lease_and_the_next_ones_hold_it() {
    let mut actor = actor();
    assert_eq!(actor.lease(), None);
    let first = commit(&mut actor, vec![asks(1, false)]);
    assert_eq!((first.lease, first.version), (Lease { owner: me(), fence: 4, take: true }, 9));
    assert!(actor.is_committing());
    let After::Effects(effects) = actor.committed(Ok(())) else { panic!() };
    assert_eq!(effects.len(), 2, "the reply and the round");
    let next = commit(&mut actor, vec![ended(1)]);
    assert_eq!((next.lease, next.version), (Lease { owner: me(), fence: 5, take: false }, 10));
    assert_eq!(actor.lease(), Some((me(), 5)));
}

#[test]
fn what_writes_nothing_is_done_at_once() {
    let mut actor = actor();
    let turn = TurnId(Uuid::nil());
    let next = actor.take(vec![command(1, Command::Await { turn })], Uuid::nil(), now);
    let reply = Reply::Refused(Refusal::TurnUnknown);
    assert_eq!(next, Next::Effects(vec![Effect::Reply { to: CommandId(1), reply }]));
    assert_eq!(actor.lease(), None);
}

#[test]
fn g19_a_fenced_actor_ends_without_effects() {
    let mut actor = actor();
    commit(&mut actor, vec![asks(1, false)]);
    let fenced = CommitError::Fenced;
    assert_eq!(actor.committed(Err(fenced.clone())), After::Ended(fenced));
}

#[test]
fn g4_what_was_not_stored_did_not_happen_and_facts_are_tried_again() {
    let mut actor = actor();
    commit(&mut actor, vec![asks(1, true)]);
    actor.committed(Ok(()));
    let inputs = vec![ended(1), Input::Fact(Fact::Deadline), asks(2, false)];
    let first = commit(&mut actor, inputs);
    assert_eq!(names(&first), ["append", "spend", "end", "accept"]);
    // Refused: the command of this commit, and the one that waited for the end of the turn.
    assert_eq!(actor.committed(not_stored()), After::Refused(vec![refused(2), refused(1)]));
    assert_eq!(actor.machine().turns(), 1);
    assert!(actor.has_work() && actor.is_in_trouble());
    let again = commit(&mut actor, Vec::new());
    assert_eq!((names(&again), again.version), (vec!["append", "spend", "end"], first.version));
    assert_ne!(again.head.last_seq, 0);
}

#[test]
fn sbp_l2_13_what_loading_asks_for_is_written_first_however_often_that_fails() {
    let row = TurnRow {
        id: TurnId(Uuid::from_u128(1)),
        place: 1,
        request: submit(1, false).request.to_json(),
        found: None,
        started: true,
        attempt: 1,
        advanced: false,
        keyed: false,
        open_calls: None,
    };
    let mut actor = Actor::load(loaded(vec![row]), me(), SessionLimits::default(), now());
    for _ in 0..2 {
        assert!(actor.has_work());
        assert_eq!(names(&commit(&mut actor, vec![asks(2, false)])), ["start", "accept"]);
        assert_eq!(actor.committed(not_stored()), After::Refused(vec![refused(2)]));
    }
    assert_eq!(names(&commit(&mut actor, Vec::new())), ["start"]);
    let After::Effects(effects) = actor.committed(Ok(())) else { panic!() };
    assert!(matches!(effects[..], [Effect::StartRound { attempt: 2, .. }]), "{effects:?}");
    assert!(!actor.has_work());
}

#[test]
fn g4_a_commit_whose_fate_is_unknown_is_sent_again_as_it_was() {
    let mut actor = actor();
    let sent = commit(&mut actor, vec![asks(1, false)]);
    for _ in 0..2 {
        assert_eq!(actor.committed(unknown()), After::Again(Arc::clone(&sent)));
    }
    let After::Effects(effects) = actor.committed(Ok(())) else { panic!() };
    assert_eq!(effects.len(), 2);
}

#[test]
fn a_session_is_made_by_its_first_commit_and_only_by_that() {
    let new = NewSession {
        id: SessionId(Uuid::nil()),
        token_hash: TokenHash([0; 32]),
        listed: false,
        user: crate::access::OWNER,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: Timestamp::UNIX_EPOCH,
    };
    let mut actor = Actor::make(new.clone(), me(), SessionLimits::default());
    for _ in 0..2 {
        assert_eq!(commit(&mut actor, vec![asks(1, false)]).make, Some(new.clone()));
        assert!(matches!(actor.committed(not_stored()), After::Refused(_)));
    }
    commit(&mut actor, vec![asks(1, false)]);
    actor.committed(Ok(()));
    assert_eq!(commit(&mut actor, vec![ended(1)]).make, None);
}

#[test]
fn g4_nobody_is_told_that_nothing_was_stored_while_an_earlier_copy_may_have_been() {
    let mut actor = actor();
    let sent = commit(&mut actor, vec![asks(1, false)]);
    actor.committed(unknown());
    assert_eq!(actor.committed(not_stored()), After::Again(sent));
    assert!(matches!(actor.committed(Ok(())), After::Effects(_)));
    // The next commit has a known result again.
    commit(&mut actor, vec![asks(2, false)]);
    assert_eq!(actor.committed(not_stored()), After::Refused(vec![refused(2)]));
}

#[test]
fn g4_a_copy_that_can_never_be_stored_ends_the_actor() {
    let refused_by_store = || Err(CommitError::Refused("a row does not fit".into()));
    let mut actor = actor();
    commit(&mut actor, vec![asks(1, false)]);
    assert_eq!(actor.committed(refused_by_store()), After::Refused(vec![refused(1)]));
    commit(&mut actor, vec![asks(2, false)]);
    actor.committed(unknown());
    let ended = After::Ended(CommitError::Refused("a row does not fit".into()));
    assert_eq!(actor.committed(refused_by_store()), ended);
}
