//! Loads a session for its next owner, in one transaction.

use bowline_sbp::approval::{Approval, ApprovalState};
use bowline_sbp::id::{AgentId, ApprovalId, Seq, SessionId, TurnId};
use bowline_sbp::session::{
    AskedRow, AttachmentRow, DeviceRow, GrantRow, Head, IdempotencyKey, KnownKey, Loaded,
    OpenCalls, ReplicaId, TokenHash, Tokens, TurnRow,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::federation;
use super::rows::{self, Key, corrupt, timestamp};
use crate::Result;
use crate::about::AboutApproval;

pub(super) fn load(conn: &Connection, id: SessionId) -> Result<Option<Loaded>> {
    let Some((key, session)) = rows::session(conn, id)? else { return Ok(None) };
    let (fence, version, turns_accepted, tokens, spent_usd, owner) = conn
        .prepare_cached(
            "SELECT fence, version, turns_accepted, prompt_tokens, completion_tokens, spent_usd,
                    (SELECT id FROM replicas WHERE id = owner AND NOT dead)
             FROM sessions WHERE key = ?1",
        )?
        .query_row([key], |row| {
            let number = |at| row.get::<_, i64>(at).map(|number| number as u64);
            let tokens = Tokens { prompt: number(3)?, completion: number(4)? };
            let owner = row.get::<_, Option<_>>(6)?.map(|id| ReplicaId(Uuid::from_bytes(id)));
            Ok((number(0)?, number(1)?, number(2)?, tokens, row.get(5)?, owner))
        })?;
    let handed_to = session.handed_to.map(|to| agent_of(conn, to).map(|agent| (to, agent)));
    let head = Head {
        status: session.status,
        step_count: session.step_count,
        last_seq: session.last_seq,
        delivered_seq: session.delivered_seq,
        tethered_turns: session.tethered_turns,
        cost_usd: session.cost_usd,
        spent_usd,
        tokens,
        attach_epoch: session.attach_epoch,
        turns_accepted,
        snapshot: session.snapshot,
        handed_to: handed_to.transpose()?,
        updated_at: session.updated_at,
        titles: session.titles,
    };
    Ok(Some(Loaded {
        id,
        user: session.user,
        agent_id: session.agent_id,
        head,
        fence,
        version,
        owner,
        turns: turns(conn, key)?,
        attachments: attachments(conn, key)?,
        devices: devices(conn, key)?,
        asked: asked(conn, key, id)?,
        grants: grants(conn, key)?,
        held: federation::held(conn, id)?,
    }))
}

/// The agent of the session that a handoff created. That session may have been deleted.
fn agent_of(conn: &Connection, id: SessionId) -> Result<AgentId> {
    let found = rows::session(conn, id)?;
    Ok(found.map_or_else(AgentId::fallback, |(_, session)| session.agent_id))
}

fn turns(conn: &Connection, key: Key) -> Result<Vec<TurnRow>> {
    let mut statement = conn.prepare_cached(
        "SELECT id, place, request, found, started, attempt, advanced, keyed, open_calls
         FROM turns WHERE session = ?1 ORDER BY place",
    )?;
    let mut rows = statement.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let status: Option<String> = row.get(3)?;
        let status = status.map(|text| text.parse().map_err(|_| corrupt("a status")));
        let open_calls: Option<String> = row.get(8)?;
        found.push(TurnRow {
            id: TurnId::from_bytes(row.get(0)?),
            place: row.get::<_, i64>(1)? as u64,
            request: row.get(2)?,
            found: status.transpose()?,
            started: row.get(4)?,
            attempt: row.get(5)?,
            advanced: row.get(6)?,
            keyed: row.get(7)?,
            open_calls: open_calls.as_deref().and_then(OpenCalls::from_json),
        });
    }
    Ok(found)
}

pub(super) fn attachments(conn: &Connection, key: Key) -> Result<Vec<AttachmentRow>> {
    let mut statement = conn.prepare_cached(
        "SELECT epoch, edge, joined, context, guest FROM attachments WHERE session = ?1
         ORDER BY epoch",
    )?;
    let mut rows = statement.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(AttachmentRow {
            epoch: row.get::<_, i64>(0)? as u64,
            edge: ReplicaId(Uuid::from_bytes(row.get(1)?)),
            joined: row.get(2)?,
            context: rows::context_of(row.get_ref(3)?)?,
            guest: row.get(4)?,
        });
    }
    Ok(found)
}

/// The devices of a session, most recently seen first.
pub(super) fn devices(conn: &Connection, key: Key) -> Result<Vec<DeviceRow>> {
    let mut statement = conn.prepare_cached(
        "SELECT surface_id, context, first_seen, last_seen, token_hash, token_expires_at,
                delivered_seq
         FROM surfaces WHERE session = ?1 ORDER BY last_seen DESC, surface_id",
    )?;
    let mut rows = statement.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let hash: Option<[u8; 32]> = row.get(4)?;
        let expires = row.get::<_, Option<i64>>(5)?.map(timestamp).transpose()?;
        found.push(DeviceRow {
            surface_id: row.get(0)?,
            context: rows::context_of(row.get_ref(1)?)?,
            first_seen: timestamp(row.get(2)?)?,
            last_seen: match row.get(3)? {
                0 => None,
                seen => Some(timestamp(seen)?),
            },
            token: hash.map(TokenHash).zip(expires),
            delivered_seq: row.get::<_, Option<i64>>(6)?.map(|seq| seq as Seq),
        });
    }
    Ok(found)
}

/// Open approvals, and all approvals of turns that have not ended.
fn asked(conn: &Connection, key: Key, session: SessionId) -> Result<Vec<AskedRow>> {
    let mut statement = conn.prepare_cached(
        "SELECT id, turn_id, tool, input, state, created_at, expires_at, about, decision, seq, nth,
                definition
         FROM approvals WHERE session = ?1
           AND (state = 'pending' OR turn_id IN (SELECT id FROM turns WHERE session = ?1))
         ORDER BY number",
    )?;
    let mut rows = statement.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let place = (row.get::<_, i64>(9)? as Seq, row.get(10)?);
        let definition = row.get(11)?;
        found.push(AskedRow { approval: approval_of(row, session)?, place, definition });
    }
    Ok(found)
}

/// What was allowed for good in a session.
fn grants(conn: &Connection, key: Key) -> Result<Vec<GrantRow>> {
    let mut statement = conn.prepare_cached(
        "SELECT tool, device, definition, created_at FROM grants WHERE session = ?1
         ORDER BY created_at",
    )?;
    let mut rows = statement.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(GrantRow {
            tool: row.get(0)?,
            device: row.get(1)?,
            definition: row.get(2)?,
            at: timestamp(row.get(3)?)?,
        });
    }
    Ok(found)
}

/// The most approvals that are listed for a session.
const LISTED: u32 = 100;

/// The approvals of a session, newest first.
pub(super) fn approvals(conn: &Connection, session: SessionId) -> Result<Vec<Approval>> {
    let Some(key) = rows::key_of(conn, session)? else { return Ok(Vec::new()) };
    let mut statement = conn.prepare_cached(
        "SELECT id, turn_id, tool, input, state, created_at, expires_at, about, decision
         FROM approvals WHERE session = ?1 ORDER BY number DESC LIMIT ?2",
    )?;
    let mut rows = statement.query(params![key, LISTED])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(approval_of(row, session)?);
    }
    Ok(found)
}

fn approval_of(row: &Row<'_>, session_id: SessionId) -> Result<Approval> {
    let unreadable = || corrupt("an approval that cannot be read");
    let about: AboutApproval = serde_json::from_str(row.get_ref(7)?.as_str().unwrap_or_default())
        .map_err(|_| unreadable())?;
    let decision: Option<String> = row.get(8)?;
    let decision = decision.map(|text| serde_json::from_str(&text)).transpose();
    let approval = Approval {
        state: ApprovalState::named(row.get_ref(4)?.as_str().unwrap_or_default())
            .ok_or_else(unreadable)?,
        expires_at: timestamp(row.get(6)?)?,
        decision: decision.map_err(|_| unreadable())?,
        ..Approval::new(
            ApprovalId::from_bytes(row.get(0)?),
            session_id,
            TurnId::from_bytes(row.get(1)?),
            row.get(2)?,
            serde_json::from_str(row.get_ref(3)?.as_str().unwrap_or_default())
                .map_err(|_| unreadable())?,
            timestamp(row.get(5)?)?,
        )
    };
    Ok(about.complete(approval))
}

/// What is stored for an idempotency key, and the session it belongs to (G3).
pub(super) fn known(
    conn: &Connection,
    key: &IdempotencyKey,
) -> Result<Option<(SessionId, KnownKey)>> {
    let mut statement = conn.prepare_cached(
        "SELECT k.body_hash, k.turn_id, k.result, s.id FROM keys k
         JOIN sessions s ON s.key = k.session WHERE k.scope = ?1 AND k.key = ?2",
    )?;
    let found = statement.query_row([&key.scope, &key.key], |row| {
        let known = KnownKey {
            same_body: row.get::<_, [u8; 32]>(0)? == key.body_hash,
            turn_id: row.get::<_, Option<[u8; 16]>>(1)?.map(TurnId::from_bytes),
            result: row.get(2)?,
        };
        Ok((SessionId::from_bytes(row.get(3)?), known))
    });
    Ok(found.optional()?)
}

/// Sessions with unfinished turns that no live replica owns, and the number of their turns.
pub(super) fn unfinished(conn: &Connection, me: ReplicaId) -> Result<Vec<(SessionId, u64)>> {
    let mut statement = conn.prepare_cached(
        "SELECT s.id, count(*) FROM turns t JOIN sessions s ON s.key = t.session
         WHERE s.owner IS NULL OR s.owner IS ?1 OR NOT EXISTS
             (SELECT 1 FROM replicas r WHERE r.id = s.owner AND NOT r.dead)
         GROUP BY s.key ORDER BY s.key",
    )?;
    let found = statement.query_map([me.0.as_bytes()], |row| {
        Ok((SessionId::from_bytes(row.get(0)?), row.get::<_, i64>(1)? as u64))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
