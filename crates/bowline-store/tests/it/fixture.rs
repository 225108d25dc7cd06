//! Short names for what every test needs.

use bowline_sbp::id::{AgentId, ExportId, SessionId, SnapshotId, TurnId};
use bowline_sbp::message::Message;
use bowline_store::{
    Accepted, Attach, EdgeKind, EntryKind, Finish, IdempotencyKey, Imported, InstanceId, NewEntry,
    NewExport, NewFork, NewHandoff, NewImport, NewSession, NewTurn, Session, Store, TokenHash,
    TurnSession,
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
        model: Some("m".into()),
        cost_usd: 0.5,
        tethered: true,
        ..NewEntry::new(EntryKind::Turn, Message::text("assistant", text))
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
    store.finish_turn(finish(turn_id, owner, entries)).await.unwrap();
    store.session(id).await.unwrap().unwrap()
}

pub(crate) fn attach_to(id: SessionId, owner: InstanceId) -> Attach {
    Attach { session_id: id, surface: Default::default(), owner, device: None, at: at() }
}

pub(crate) async fn pending(store: &dyn Store, id: SessionId) -> Vec<String> {
    let session = store.session(id).await.unwrap().unwrap();
    let mut after = session.delivered_seq;
    let mut turns = Vec::new();
    loop {
        let page = store.tethered_after(id, after).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        turns.extend(page.into_iter().map(|turn| turn.content));
    }
    assert_eq!(session.pending_turns, turns.len() as u64, "the counter agrees with the log");
    turns
}

/// Everything in the log, as text.
pub(crate) async fn texts(store: &dyn Store, id: SessionId) -> Vec<String> {
    store.history(id).await.unwrap().iter().map(|message| message.content()).collect()
}

pub(crate) fn fork_of(origin: SessionId, at_step: Option<u64>) -> NewFork {
    let NewSession { id, token_hash, .. } = new_session();
    NewFork {
        id,
        token_hash,
        origin,
        at_step,
        detail: "{}".into(),
        snapshot: SnapshotId(Uuid::new_v4()),
        key: None,
        at: at(),
    }
}

pub(crate) fn export_of(session_id: SessionId) -> NewExport {
    NewExport {
        id: ExportId(Uuid::now_v7()),
        session_id,
        cid: [7; 32],
        label: Some("for the road".into()),
        message_count: 2,
        bundle: b"{}".into(),
        at: at(),
        expires_at: at().checked_add(jiff::SignedDuration::from_hours(1)).unwrap(),
    }
}

pub(crate) fn imported(entry: NewEntry) -> Imported {
    Imported { entry, turn_id: TurnId(Uuid::now_v7()), at: at() }
}

/// An import of so many turns, the first one called "1".
pub(crate) fn import_of(origin: &str, turns: u64) -> NewImport {
    let turn = |n: u64| [said(&format!("ask {n}")), answered(&n.to_string())];
    NewImport {
        session: new_session(),
        step_count: turns,
        entries: (1..=turns).flat_map(turn).map(imported).collect(),
        carried: None,
        memories: Vec::new(),
        snapshot: SnapshotId(Uuid::new_v4()),
        origin: origin.into(),
        export_id: None,
        consume: false,
        kind: EdgeKind::Import,
        detail: "{}".into(),
        key: None,
    }
}

pub(crate) fn handoff_of(source: &Session) -> NewHandoff {
    let NewSession { id, token_hash, .. } = new_session();
    NewHandoff {
        id,
        token_hash,
        to_agent: "successor".parse().unwrap(),
        source: source.id,
        last_seq: source.last_seq,
        export: export_of(source.id),
        bridge: vec![said("go on")],
        bridge_turn: TurnId(Uuid::now_v7()),
        detail: "{}".into(),
        snapshot: SnapshotId(Uuid::new_v4()),
        key: None,
    }
}
