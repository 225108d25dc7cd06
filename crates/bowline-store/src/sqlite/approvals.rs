//! Questions whether a tool may be called.

use bowline_sbp::approval::{Approval, State, Step};
use bowline_sbp::id::{ApprovalId, Seq, SessionId, TurnId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::{self, millis};
use crate::{Error, NewApproval, Result};

/// The most that are listed for a session.
const LISTED: u32 = 100;

/// Asks once: the same call of the same turn finds what was asked before.
pub(super) fn ask(conn: &Connection, new: &NewApproval) -> Result<Approval> {
    let key = rows::key_of(conn, new.session_id)?.ok_or(Error::NoSession)?;
    let (seq, nth) = (new.place.0 as i64, new.place.1);
    conn.prepare_cached(
        "INSERT INTO approvals (id, session, turn_id, seq, nth, tool, input, state, created_at,
                                expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8, ?9)
         ON CONFLICT (turn_id, seq, nth) DO NOTHING",
    )?
    .execute(params![
        new.id.as_bytes(),
        key,
        new.turn_id.as_bytes(),
        seq,
        nth,
        new.tool,
        new.input.to_string(),
        millis(new.at),
        millis(new.expires_at),
    ])?;
    let mut asked = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM approvals WHERE turn_id = ?1 AND seq = ?2 AND nth = ?3"
    ))?;
    let mut rows = asked.query(params![new.turn_id.as_bytes(), seq, nth])?;
    let row = rows.next()?.ok_or_else(|| rows::corrupt("an approval that is not there"))?;
    approval_of(row, new.session_id)
}

/// Moves an approval along, if that is its next step. Gives it as it then stands.
pub(super) fn step(
    conn: &Connection,
    session: SessionId,
    id: ApprovalId,
    step: Step,
    at: Timestamp,
) -> Result<Option<Approval>> {
    let Some(mut approval) = one(conn, session, id)? else { return Ok(None) };
    if let Some(state) = approval.after(step, at) {
        approval.state = state;
        conn.prepare_cached("UPDATE approvals SET state = ?2 WHERE id = ?1")?
            .execute(params![id.as_bytes(), state.as_str()])?;
    }
    Ok(Some(approval))
}

fn one(conn: &Connection, session: SessionId, id: ApprovalId) -> Result<Option<Approval>> {
    let Some(key) = rows::key_of(conn, session)? else { return Ok(None) };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM approvals WHERE id = ?1 AND session = ?2"
    ))?;
    let mut rows = statement.query(params![id.as_bytes(), key])?;
    rows.next()?.map(|row| approval_of(row, session)).transpose()
}

/// Those of a session, the newest first.
pub(super) fn list(conn: &Connection, session: SessionId) -> Result<Vec<Approval>> {
    let Some(key) = rows::key_of(conn, session)? else { return Ok(Vec::new()) };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM approvals WHERE session = ?1 ORDER BY number DESC LIMIT ?2"
    ))?;
    let mut rows = statement.query(params![key, LISTED])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(approval_of(row, session)?);
    }
    Ok(found)
}

/// Whether one of those calls was asked about and not made.
pub(super) fn waits(conn: &Connection, turn: TurnId, calls: Seq) -> Result<bool> {
    let found = conn
        .prepare_cached(
            "SELECT 1 FROM approvals WHERE turn_id = ?1 AND seq = ?2 AND state <> 'used' LIMIT 1",
        )?
        .query_row(params![turn.as_bytes(), calls as i64], |_| Ok(()))
        .optional()?;
    Ok(found.is_some())
}

pub(super) fn forget(conn: &Connection, before: Timestamp) -> Result<u64> {
    let forgotten = conn
        .prepare_cached(
            "DELETE FROM approvals WHERE expires_at < ?1
             AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.id = approvals.turn_id)",
        )?
        .execute([millis(before)])?;
    Ok(forgotten as u64)
}

const COLUMNS: &str = "id, turn_id, tool, input, state, created_at, expires_at";

fn approval_of(row: &Row<'_>, session_id: SessionId) -> Result<Approval> {
    let corrupt = || rows::corrupt("an approval that cannot be read");
    Ok(Approval {
        approval_id: ApprovalId::from_bytes(row.get(0)?),
        session_id,
        turn_id: TurnId::from_bytes(row.get(1)?),
        tool_name: row.get(2)?,
        tool_input: serde_json::from_str(row.get_ref(3)?.as_str().unwrap_or_default())
            .map_err(|_| corrupt())?,
        state: State::named(row.get_ref(4)?.as_str().unwrap_or_default()).ok_or_else(corrupt)?,
        created_at: rows::timestamp(row.get(5)?)?,
        expires_at: rows::timestamp(row.get(6)?)?,
    })
}
