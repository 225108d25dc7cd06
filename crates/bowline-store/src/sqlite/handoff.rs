//! A handoff: a fork for another agent, and an export that is created as used (G8). Written in the
//! commit that closes the source session for further turns.

use bowline_sbp::session::{HandedOff, NewEntry};
use rusqlite::Connection;

use super::rows::Key;
use super::{exports, roaming, rows, titles};
use crate::failpoint;
use crate::{Edge, EdgeKind, Error, NewExport, NewSession, Result, SnapshotKind};

pub(super) fn write(conn: &Connection, source: Key, handed: &HandedOff) -> Result<()> {
    let HandedOff { handoff, packed, point, at } = handed;
    let session = rows::with_key(conn, source)?;
    let new = NewSession {
        id: handoff.id,
        token_hash: handoff.token_hash,
        listed: false,
        user: session.user,
        agent_id: handoff.to_agent.clone(),
        metadata: session.metadata,
        at: *at,
    };
    let (key, mut log) = roaming::branch(conn, source, *point, &new)?;
    titles::write(conn, key, &session.titles)?;
    let untethered = |entry: &NewEntry| NewEntry { tethered: false, ..entry.clone() };
    let bridge = packed.bridge.iter().map(untethered).collect();
    log.append(conn, packed.bridge_turn, bridge, *at)?;
    log.take_snapshot((SnapshotKind::Checkpoint, packed.snapshot), *at);
    log.close(conn, *at)?;
    failpoint::pass("log");
    exports::insert(
        conn,
        &NewExport {
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
        },
    )?;
    failpoint::pass("export");
    if !exports::use_up(conn, handoff.export_id, new.id, *at)? {
        return Err(Error::Consumed);
    }
    failpoint::pass("used-up");
    let edge = Edge {
        kind: EdgeKind::Handoff,
        origin: session.id.to_string(),
        session: new.id.to_string(),
        export_id: Some(handoff.export_id),
        detail: packed.detail.clone(),
        at: *at,
    };
    roaming::derived(conn, key, *point, &edge, handoff.key.as_ref())?;
    Ok(())
}
