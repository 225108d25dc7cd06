//! Sessions with a past, written before the gateway starts.

use std::path::Path;

use anyhow::Result;
use bowline_gateway::auth::hash_token;
use bowline_sbp::id::{AgentId, SessionId, SnapshotId, TurnId};
use bowline_sbp::message::Message;
use bowline_store::sqlite::Sqlite;
use bowline_store::{
    EntryKind, Finish, InstanceId, NewEntry, NewSession, NewTurn, Store, TurnSession,
};
use jiff::Timestamp;
use uuid::Uuid;

use super::surfaces::Door;

/// What an agent says in each of these turns.
pub(super) const WORDS: &str = "Here is what I found while you were away: the fox is quick, the \
    dog is lazy, the lake is calm, and the report that you asked for is ready for your review.";

/// Entries per transaction.
const BATCH: usize = 2000;

/// Sessions with that many turns each, all of them pending.
pub(super) async fn sessions(folder: &Path, turns: &[usize]) -> Result<Vec<Door>> {
    let store = Sqlite::open(folder)?;
    let mut doors = Vec::new();
    for count in turns {
        let token = format!("bench-token-{}", Uuid::new_v4());
        let id = SessionId(Uuid::now_v7());
        let new = NewSession {
            id,
            token_hash: hash_token(&token),
            listed: true,
            agent_id: AgentId::fallback(),
            metadata: "{}".into(),
            at: Timestamp::now(),
        };
        store.create_session(new, None).await?;
        let mut left = *count;
        while left > 0 {
            let now = left.min(BATCH);
            fill(&store, id, now).await?;
            left -= now;
        }
        doors.push(Door { id: id.to_string(), token });
    }
    Ok(doors)
}

async fn fill(store: &Sqlite, id: SessionId, turns: usize) -> Result<()> {
    let owner = InstanceId(Uuid::new_v4());
    let turn = NewTurn {
        id: TurnId(Uuid::now_v7()),
        session: TurnSession::Existing { id, resume: true },
        request: "{}".into(),
        key: None,
        owner,
        started: true,
        at: Timestamp::now(),
    };
    let turn_id = turn.id;
    store.accept_turn(turn).await?;
    let question = NewEntry::message(Message::text("user", "And what else?"));
    let answer = NewEntry {
        model: Some("bench".into()),
        tethered: true,
        ..NewEntry::new(EntryKind::Turn, Message::text("assistant", WORDS))
    };
    let entries = std::iter::repeat_n([question, answer], turns).flatten().collect();
    store
        .finish_turn(Finish {
            turn_id,
            owner,
            entries,
            checkpoint: SnapshotId(Uuid::now_v7()),
            checkpoint_every: 1,
            result: None,
            at: Timestamp::now(),
        })
        .await?;
    Ok(())
}
