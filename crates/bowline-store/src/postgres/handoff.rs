//! A handoff: a fork for another agent, and an export that is created as used (G8). Written in the
//! commit that closes the source session for further turns.

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{HandedOff, NewEntry};

use super::error::Attempt;
use super::pool::Connection;
use super::{exports, keys, roaming, rows};
use crate::failpoint::pass_as;
use crate::log_end::LogEnd;
use crate::{Edge, EdgeKind, Error, NewExport, NewSession, SnapshotKind};

/// The caller has written the row of the source in this transaction, and with that locked it.
pub(super) async fn write(tx: &Connection, source: SessionId, handed: &HandedOff) -> Attempt<()> {
    let HandedOff { handoff, packed, point, at } = handed;
    let session = rows::existing(tx, source).await?;
    let new = NewSession {
        id: handoff.id,
        token_hash: handoff.token_hash,
        listed: false,
        user: session.user,
        agent_id: handoff.to_agent.clone(),
        metadata: session.metadata.clone(),
        at: *at,
    };
    if let Some(key) = &handoff.key
        && keys::claim(tx, key, new.id, *at).await?.is_some()
    {
        return Err(Error::KeyReused.into());
    }
    let mut end = LogEnd { last_seq: point.0, step_count: point.1, ..LogEnd::default() };
    let untethered = |entry: &NewEntry| NewEntry { tethered: false, ..entry.clone() };
    let bridge: Vec<_> = packed
        .bridge
        .iter()
        .map(|entry| end.append(packed.bridge_turn, untethered(entry), *at))
        .collect();
    end.take_snapshot((SnapshotKind::Checkpoint, packed.snapshot), *at);
    roaming::branch(tx, &session, *point, &new, (&end, &bridge), &session.titles).await?;
    pass_as("handoff", "log");
    let export = NewExport {
        id: handoff.export_id,
        session_id: session.id,
        cid: packed.cid,
        label: None,
        message_count: packed.message_count,
        with_memory: packed.with_memory,
        // Never imported, so no bundle is kept.
        bundle: Vec::new(),
        at: *at,
        expires_at: packed.expires_at,
        spender: None,
        peer: None,
        announce: false,
    };
    exports::insert(tx, &export).await?;
    pass_as("handoff", "export");
    if !exports::use_up(tx, handoff.export_id, new.id, *at).await? {
        return Err(Error::Consumed.into());
    }
    pass_as("handoff", "used-up");
    let edge = Edge {
        kind: EdgeKind::Handoff,
        origin: session.id.to_string(),
        session: new.id.to_string(),
        export_id: Some(handoff.export_id),
        detail: packed.detail.clone(),
        at: *at,
    };
    roaming::derived(tx, &new, *point, &edge, handoff.key.as_ref()).await?;
    pass_as("handoff", "key");
    Ok(())
}
