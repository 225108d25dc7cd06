//! Sessions with a history, written to the store before the gateway starts.

use std::path::Path;

use anyhow::{Result, bail};
use bowline_gateway::auth::hash_token;
use bowline_sbp::id::{AgentId, SessionId, TurnId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::message::{EntryKind, Message};
use bowline_sbp::session::{Commit, Lease, Loaded, NewEntry, NewSession, Placed, ReplicaId, Write};
use bowline_store::sqlite::Sqlite;
use bowline_store::{Leases, Sessions};
use jiff::Timestamp;
use uuid::Uuid;

use crate::surfaces::Door;

/// The answer of every seeded turn.
pub(crate) const WORDS: &str = "Here is what I found while you were away: the fox is quick, the \
    dog is lazy, the lake is calm, and the report that you asked for is ready for your review.";

/// Entries per transaction.
const BATCH: usize = 2000;

/// Creates sessions with that many turns each, all of them pending.
pub(crate) async fn sessions(folder: &Path, turns: &[usize]) -> Result<Vec<Door>> {
    let store = Sqlite::open(folder)?;
    let mut doors = Vec::new();
    for count in turns {
        let token = format!("bench-token-{}", Uuid::new_v4());
        let id = SessionId(Uuid::now_v7());
        let new = NewSession {
            id,
            token_hash: hash_token(&token),
            listed: true,
            user: bowline_sbp::access::OWNER,
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

/// Appends turns to a session's log, as its owner would.
async fn fill(store: &Sqlite, id: SessionId, turns: usize) -> Result<()> {
    let Some(Loaded { mut head, fence, version, .. }) = store.load(id).await? else {
        bail!("the session that was just created is missing");
    };
    let owner = ReplicaId(Uuid::new_v4());
    store.register(owner).await?;
    let (turn_id, at) = (TurnId(Uuid::now_v7()), Timestamp::now());
    let question = NewEntry::message(Message::text("user", "And what else?"));
    let answer = NewEntry {
        model: Some("bench".into()),
        tethered: true,
        ..NewEntry::new(EntryKind::Turn, Message::text("assistant", WORDS))
    };
    let place = |entry: NewEntry| {
        head.last_seq += 1;
        head.step_count += u64::from(entry.kind == EntryKind::Turn);
        head.tethered_turns += u64::from(entry.tethered);
        Placed {
            seq: head.last_seq,
            turn_id,
            step: head.step_count,
            tether_no: entry.tethered.then_some(head.tethered_turns),
            at,
            entry,
        }
    };
    let entries = std::iter::repeat_n([question, answer], turns).flatten().map(place).collect();
    head.status = Status::Running;
    let commit = Commit {
        id: Uuid::new_v4(),
        session: id,
        lease: Lease { owner, fence, take: true },
        version,
        make: None,
        head,
        writes: vec![Write::Append { entries, advances: None }],
    };
    store.commit(commit.into()).await?;
    store.retire(owner).await?;
    Ok(())
}
