//! Short names for what every test needs.

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{AgentId, SessionId, SnapshotId, TurnId};
use bowline_sbp::message::Message;
use bowline_store::{
    Accepted, Attach, EntryKind, Finish, IdempotencyKey, InstanceId, NewEntry, NewSession, NewTurn,
    Session, Store, TokenHash, TurnSession,
};
use jiff::Timestamp;
use uuid::Uuid;

pub(crate) fn at() -> Timestamp {
    Timestamp::from_millisecond(1_750_000_000_000).unwrap()
}

pub(crate) fn instance() -> InstanceId {
    InstanceId(Uuid::new_v4())
}

pub(crate) fn new_session() -> NewSession {
    let id = Uuid::now_v7();
    let mut token = [0; 32];
    token[..16].copy_from_slice(Uuid::new_v4().as_bytes());
    NewSession {
        id: SessionId(id),
        token_hash: TokenHash(token),
        listed: true,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: at(),
    }
}

pub(crate) async fn made(store: &dyn Store) -> Session {
    store.create_session(new_session(), None).await.unwrap().session
}

pub(crate) fn turn_in(id: SessionId, owner: InstanceId) -> NewTurn {
    turn(TurnSession::Existing { id, resume: true }, owner)
}

pub(crate) fn turn(session: TurnSession, owner: InstanceId) -> NewTurn {
    NewTurn {
        id: TurnId(Uuid::now_v7()),
        session,
        request: r#"{"messages":[]}"#.into(),
        key: None,
        owner,
        started: true,
        at: at(),
    }
}

pub(crate) fn key(scope: &str, key: &str, body: u8) -> IdempotencyKey {
    IdempotencyKey { scope: scope.into(), key: key.into(), body_hash: [body; 32] }
}

pub(crate) fn said(text: &str) -> NewEntry {
    NewEntry::message(Message::text("user", text))
}

pub(crate) fn answered(text: &str) -> NewEntry {
    NewEntry {
        kind: EntryKind::Turn,
        message: Message::text("assistant", text),
        model: Some("m".into()),
        cost_usd: 0.5,
        status: TurnStatus::Complete,
        tethered: true,
    }
}

pub(crate) fn finish(turn: TurnId, owner: InstanceId, entries: Vec<NewEntry>) -> Finish {
    Finish {
        turn_id: turn,
        owner,
        entries,
        checkpoint: SnapshotId(Uuid::new_v4()),
        checkpoint_every: 1,
        result: None,
        at: at(),
    }
}

/// One whole turn: a question and its answer.
pub(crate) async fn take_turn(
    store: &dyn Store,
    id: SessionId,
    owner: InstanceId,
    text: &str,
) -> Session {
    let turn = turn_in(id, owner);
    let turn_id = turn.id;
    assert!(matches!(store.accept_turn(turn).await.unwrap(), Accepted::Fresh { .. }));
    let entries = vec![said(&format!("ask {text}")), answered(text)];
    store.finish_turn(finish(turn_id, owner, entries)).await.unwrap()
}

pub(crate) fn attach_to(id: SessionId, owner: InstanceId) -> Attach {
    Attach { session_id: id, surface: Default::default(), owner, at: at() }
}

pub(crate) async fn pending(store: &dyn Store, id: SessionId) -> Vec<String> {
    let session = store.session(id).await.unwrap().unwrap();
    let mut after = session.delivered_seq;
    let mut turns = Vec::new();
    loop {
        let page = store.tethered_after(id, after).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        turns.extend(page.iter().map(|entry| entry.message.content()));
    }
    assert_eq!(session.pending_turns, turns.len() as u64, "the counter agrees with the log");
    turns
}
