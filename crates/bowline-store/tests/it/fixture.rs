//! Test fixture: short helpers that every test uses.

use std::sync::Arc;

use bowline_sbp::access::OWNER;
use bowline_sbp::approval::Approval;
use bowline_sbp::delivery::Logged;
use bowline_sbp::id::{AgentId, ApprovalId, ExportId, SessionId, SnapshotId, TurnId};
use bowline_sbp::message::Message;
use bowline_sbp::session::HandOff;
use bowline_store::{
    EdgeKind, EntryKind, IdempotencyKey, Imported, NewEntry, NewExport, NewFork, NewImport,
    NewSession, Page, Session, Store, TokenHash,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use uuid::Uuid;

/// The store under test.
pub(crate) type S = Arc<dyn Store>;

pub(crate) fn at() -> Timestamp {
    Timestamp::from_millisecond(1_750_000_000_000).unwrap()
}

pub(crate) fn later(seconds: i64) -> Timestamp {
    at().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

pub(crate) fn new_turn() -> TurnId {
    TurnId(Uuid::now_v7())
}

pub(crate) fn snapshot_id() -> SnapshotId {
    SnapshotId(Uuid::new_v4())
}

pub(crate) fn new_session() -> NewSession {
    let id = Uuid::now_v7();
    let mut token = [0; 32];
    token[..16].copy_from_slice(Uuid::new_v4().as_bytes());
    NewSession {
        id: SessionId(id),
        token_hash: TokenHash(token),
        listed: true,
        user: bowline_sbp::access::OWNER,
        agent_id: AgentId::fallback(),
        metadata: "{}".into(),
        at: at(),
    }
}

pub(crate) async fn made(store: &S) -> Session {
    store.create_session(new_session(), None).await.unwrap().session
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

pub(crate) fn approval(
    session_id: SessionId,
    turn_id: TurnId,
    tool: &str,
    tool_input: Value,
    created_at: Timestamp,
) -> Approval {
    Approval {
        expires_at: created_at.checked_add(SignedDuration::from_secs(60)).unwrap(),
        ..Approval::new(
            ApprovalId(Uuid::now_v7()),
            session_id,
            turn_id,
            tool.into(),
            tool_input,
            created_at,
        )
    }
}

/// The undelivered turns of a surface without a name.
pub(crate) async fn pending(store: &S, id: SessionId) -> Vec<String> {
    pending_for(store, id, None).await
}

/// The undelivered turns of this device. Checks that the stored counter agrees with the log.
pub(crate) async fn pending_for(store: &S, id: SessionId, device: Option<&str>) -> Vec<String> {
    let arrival = store.arrival(id, device.map(str::to_owned)).await.unwrap().unwrap();
    let turns = shown(store, id, arrival.cursor, false).await;
    assert_eq!(arrival.pending, turns.len() as u64, "the counter agrees with the log");
    if device.is_none() {
        assert_eq!(arrival.cursor, arrival.session.delivered_seq);
        assert_eq!(arrival.pending, arrival.session.pending_turns);
    }
    turns
}

/// Everything that is delivered to a surface after a position, page by page.
pub(crate) async fn shown(
    store: &S,
    id: SessionId,
    mut after: u64,
    questions: bool,
) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let page = store.shown_after(id, after, questions).await.unwrap();
        let Some(last) = page.last() else { return texts };
        assert!(page.iter().all(|logged| logged.seq() > after), "each once");
        after = last.seq();
        texts.extend(page.into_iter().map(|logged| match logged {
            Logged::Turn(turn) => turn.content,
            Logged::Question(question) => format!("? {}", question.content),
        }));
    }
}

/// Everything in the log, as text.
pub(crate) async fn texts(store: &S, id: SessionId) -> Vec<String> {
    let log = store.history(id).await.unwrap();
    log.entries.iter().map(|entry| entry.message.content()).collect()
}

/// All sessions, newest first.
pub(crate) async fn all_sessions(store: &S) -> Vec<SessionId> {
    let all = Page { user: OWNER, before: None, limit: 1000, status: None };
    store.sessions(all).await.unwrap().iter().map(|session| session.id).collect()
}

pub(crate) fn fork_of(origin: SessionId, at_step: Option<u64>) -> NewFork {
    let NewSession { id, token_hash, .. } = new_session();
    NewFork {
        id,
        token_hash,
        origin,
        at_step,
        title: None,
        detail: "{}".into(),
        snapshot: snapshot_id(),
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
        with_memory: false,
        bundle: b"{}".into(),
        at: at(),
        expires_at: later(3600),
        spender: None,
        peer: None,
        announce: false,
    }
}

pub(crate) fn imported(entry: NewEntry) -> Imported {
    Imported { entry, turn_id: new_turn(), at: at() }
}

/// An import with `turns` turns, the first one called "1".
pub(crate) fn import_of(origin: &str, turns: u64) -> NewImport {
    let turn = |n: u64| [said(&format!("ask {n}")), answered(&n.to_string())];
    NewImport {
        session: new_session(),
        step_count: turns,
        entries: (1..=turns).flat_map(turn).map(imported).collect(),
        carried: None,
        memories: Vec::new(),
        snapshot: snapshot_id(),
        origin: origin.into(),
        export_id: None,
        consume: false,
        kind: EdgeKind::Import,
        detail: "{}".into(),
        title: None,
        key: None,
        tether: None,
    }
}

pub(crate) fn handoff() -> HandOff {
    let NewSession { id, token_hash, .. } = new_session();
    HandOff {
        id,
        export_id: ExportId(Uuid::now_v7()),
        token_hash,
        to_agent: "successor".parse().unwrap(),
        message: None,
        reason: None,
        memory: false,
        key: None,
    }
}
