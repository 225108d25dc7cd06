//! Commits of an earlier process, under its own lease, before it crashed.

use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::{
    Commit, Head, Lease, NewEntry, NewSession, Placed, ReplicaId, TurnRow, Write,
};
use bowline_store::sqlite::Sqlite;
use bowline_store::{Leases, Sessions};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// Commits as a process that has crashed afterwards.
pub(crate) async fn by_a_dead_process(
    store: &Sqlite,
    session: SessionId,
    make: Option<NewSession>,
    change: impl FnOnce(&mut Head) -> Vec<Write>,
) {
    let owner = ReplicaId(Uuid::new_v4());
    store.register(owner).await.unwrap();
    let loaded = store.load(session).await.unwrap();
    let (fence, version) = loaded.as_ref().map_or((0, 0), |loaded| (loaded.fence, loaded.version));
    let mut head =
        loaded.map_or_else(|| Head::new(Status::Running, Timestamp::now()), |loaded| loaded.head);
    let writes = change(&mut head);
    let commit = Commit {
        id: Uuid::new_v4(),
        session,
        lease: Lease { owner, fence, take: true },
        version,
        make,
        head,
        writes,
    };
    store.commit(commit.into()).await.unwrap();
    store.retire(owner).await.unwrap();
}

/// A turn that it had started for the `attempt`th time.
pub(crate) fn begun(id: TurnId, request: &Value, attempt: u32) -> Write {
    let turn = TurnRow {
        id,
        place: 1,
        request: request.to_string(),
        found: None,
        started: true,
        attempt,
        advanced: false,
        keyed: false,
        open_calls: None,
    };
    Write::Accept { turn, key: None, blobs: Vec::new() }
}

/// Entries that it appended for a turn that has not ended.
pub(crate) fn appended(head: &mut Head, turn_id: TurnId, entries: Vec<NewEntry>) -> Write {
    let place = |entry| {
        head.last_seq += 1;
        let (seq, step, at) = (head.last_seq, head.step_count, Timestamp::now());
        Placed { seq, turn_id, step, tether_no: None, at, entry }
    };
    let entries = entries.into_iter().map(place).collect();
    Write::Append { entries, advances: Some(turn_id) }
}
