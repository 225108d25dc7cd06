//! Loads a session for its next owner, in one transaction.

use bowline_sbp::approval::{Approval, ApprovalState};
use bowline_sbp::id::{AgentId, ApprovalId, SessionId, TurnId};
use bowline_sbp::session::{
    AskedRow, AttachmentRow, DeviceRow, GrantRow, Head, Loaded, OpenCalls, ReplicaId, TokenHash,
    Tokens, TurnRow,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Attempt;
use super::federation;
use super::pool::Connection;
use super::rows::{
    self, column, context_of, corrupt, id, number, some_hash, some_number, some_time, some_told,
    time, told, uuid,
};
use crate::about::AboutApproval;

pub(super) async fn load(c: &Connection, session_id: SessionId) -> Attempt<Option<Loaded>> {
    let Some(session) = rows::session(c, session_id).await? else { return Ok(None) };
    let row = c
        .query_one(
            "SELECT s.fence, s.version, s.turns_accepted, s.prompt_tokens, s.completion_tokens,
                    s.spent_usd, r.id AS owner
             FROM sessions s LEFT JOIN replicas r ON r.id = s.owner AND NOT r.dead
             WHERE s.id = $1",
            &[&uuid(session_id.as_bytes())],
        )
        .await?;
    let handed_to = match session.handed_to {
        None => None,
        Some(to) => Some((to, agent_of(c, to).await?)),
    };
    let tokens = Tokens {
        prompt: number(&row, "prompt_tokens")?,
        completion: number(&row, "completion_tokens")?,
    };
    let head = Head {
        status: session.status,
        step_count: session.step_count,
        last_seq: session.last_seq,
        delivered_seq: session.delivered_seq,
        tethered_turns: session.tethered_turns,
        cost_usd: session.cost_usd,
        spent_usd: column(&row, "spent_usd")?,
        tokens,
        attach_epoch: session.attach_epoch,
        turns_accepted: number(&row, "turns_accepted")?,
        snapshot: session.snapshot,
        handed_to,
        updated_at: session.updated_at,
        titles: session.titles,
    };
    Ok(Some(Loaded {
        id: session_id,
        user: session.user,
        agent_id: session.agent_id,
        head,
        fence: number(&row, "fence")?,
        version: number(&row, "version")?,
        owner: column::<Option<Uuid>>(&row, "owner")?.map(ReplicaId),
        turns: turns(c, session_id).await?,
        attachments: attachments(c, session_id).await?,
        devices: devices(c, session_id).await?,
        asked: asked(c, session_id).await?,
        grants: grants(c, session_id).await?,
        held: federation::held(c, session_id).await?,
    }))
}

/// The agent of the session that a handoff created. That session may have been deleted.
async fn agent_of(c: &Connection, id: SessionId) -> Attempt<AgentId> {
    let found = rows::session(c, id).await?;
    Ok(found.map_or_else(AgentId::fallback, |session| session.agent_id))
}

async fn turns(c: &Connection, session: SessionId) -> Attempt<Vec<TurnRow>> {
    let sql = "SELECT id, place, request, found, started, attempt, advanced, keyed, open_calls
               FROM turns WHERE session = $1 ORDER BY place";
    let turn = |row: &Row| {
        let found: Option<&str> = column(row, "found")?;
        let found = found.map(|text| text.parse().map_err(|_| corrupt("a status")));
        let open_calls = some_told(row, "open_calls")?;
        Ok(TurnRow {
            id: TurnId::from_bytes(id(row, "id")?),
            place: number(row, "place")?,
            request: told(row, "request")?,
            found: found.transpose()?,
            started: column(row, "started")?,
            attempt: number(row, "attempt")? as u32,
            advanced: column(row, "advanced")?,
            keyed: column(row, "keyed")?,
            open_calls: open_calls.as_deref().and_then(OpenCalls::from_json),
        })
    };
    c.query(sql, &[&uuid(session.as_bytes())]).await?.iter().map(turn).collect()
}

pub(super) async fn attachments(c: &Connection, session: SessionId) -> Attempt<Vec<AttachmentRow>> {
    let sql = "SELECT epoch, edge, joined, context, guest FROM attachments WHERE session = $1
               ORDER BY epoch";
    let attachment = |row: &Row| {
        Ok(AttachmentRow {
            epoch: number(row, "epoch")?,
            edge: ReplicaId(column(row, "edge")?),
            joined: column(row, "joined")?,
            context: context_of(row)?,
            guest: column(row, "guest")?,
        })
    };
    c.query(sql, &[&uuid(session.as_bytes())]).await?.iter().map(attachment).collect()
}

/// The devices of a session, most recently seen first.
pub(super) async fn devices(c: &Connection, session: SessionId) -> Attempt<Vec<DeviceRow>> {
    let sql = "SELECT surface_id, context, first_seen, last_seen, token_hash, token_expires_at,
                      delivered_seq
               FROM surfaces WHERE session = $1 ORDER BY last_seen DESC, surface_id";
    let device = |row: &Row| {
        let token = some_hash(row, "token_hash")?.map(TokenHash);
        Ok(DeviceRow {
            surface_id: told(row, "surface_id")?,
            context: context_of(row)?,
            first_seen: time(row, "first_seen")?,
            last_seen: match column(row, "last_seen")? {
                0 => None,
                seen => Some(rows::timestamp(seen)?),
            },
            token: token.zip(some_time(row, "token_expires_at")?),
            delivered_seq: some_number(row, "delivered_seq")?,
        })
    };
    c.query(sql, &[&uuid(session.as_bytes())]).await?.iter().map(device).collect()
}

/// Open approvals, and all approvals of turns that have not ended.
async fn asked(c: &Connection, session: SessionId) -> Attempt<Vec<AskedRow>> {
    let sql =
        "SELECT id, turn_id, tool, input, state, created_at, expires_at, about, decision, seq,
                      nth, definition
               FROM approvals WHERE session = $1
                 AND (state = 'pending' OR turn_id IN (SELECT id FROM turns WHERE session = $1))
               ORDER BY number";
    let asked = |row: &Row| {
        Ok(AskedRow {
            approval: approval_of(row, session)?,
            place: (number(row, "seq")?, number(row, "nth")? as u32),
            definition: told(row, "definition")?,
        })
    };
    c.query(sql, &[&uuid(session.as_bytes())]).await?.iter().map(asked).collect()
}

/// What was allowed for good in a session.
async fn grants(c: &Connection, session: SessionId) -> Attempt<Vec<GrantRow>> {
    let sql = "SELECT tool, device, definition, created_at FROM grants WHERE session = $1
               ORDER BY created_at, tool, device";
    let grant = |row: &Row| {
        Ok(GrantRow {
            tool: told(row, "tool")?,
            device: told(row, "device")?,
            definition: told(row, "definition")?,
            at: time(row, "created_at")?,
        })
    };
    c.query(sql, &[&uuid(session.as_bytes())]).await?.iter().map(grant).collect()
}

/// The most approvals that are listed for a session.
const LISTED: i64 = 100;

/// The approvals of a session, newest first.
pub(super) async fn approvals(c: &Connection, session: SessionId) -> Attempt<Vec<Approval>> {
    let sql = "SELECT id, turn_id, tool, input, state, created_at, expires_at, about, decision
               FROM approvals WHERE session = $1 ORDER BY number DESC LIMIT $2";
    let found = c.query(sql, &[&uuid(session.as_bytes()), &LISTED]).await?;
    found.iter().map(|row| approval_of(row, session)).collect()
}

fn approval_of(row: &Row, session_id: SessionId) -> Attempt<Approval> {
    let unreadable = |_| corrupt("an approval that cannot be read");
    let about: AboutApproval = serde_json::from_str(column(row, "about")?).map_err(unreadable)?;
    let decision = some_told(row, "decision")?;
    let decision = decision.map(|text| serde_json::from_str(&text)).transpose();
    let approval = Approval {
        tool_name: told(row, "tool")?,
        tool_input: serde_json::from_str(column(row, "input")?).map_err(unreadable)?,
        state: ApprovalState::named(column(row, "state")?)
            .ok_or_else(|| corrupt("an approval that cannot be read"))?,
        expires_at: time(row, "expires_at")?,
        decision: decision.map_err(unreadable)?,
        ..Approval::new(
            ApprovalId::from_bytes(id(row, "id")?),
            session_id,
            TurnId::from_bytes(id(row, "turn_id")?),
            String::new(),
            serde_json::Value::Null,
            time(row, "created_at")?,
        )
    };
    Ok(about.complete(approval))
}
