//! Accepting, finishing, abandoning and taking over turns.

use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::lifecycle::{Change, Status};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Key, kind_number, millis, place};
use super::sessions;
use crate::{
    Accepted, EntryKind, Error, Finish, InstanceId, NewTurn, Result, Session, TurnSession,
    Unfinished,
};

pub(super) fn accept(conn: &Connection, turn: &NewTurn) -> Result<Accepted> {
    if let Some(known) =
        turn.key.as_ref().map(|key| sessions::known_key(conn, key)).transpose()?.flatten()
    {
        let session = rows::sessions(conn, "WHERE key = ?1", [known.session])?.pop();
        let (_, session) = session.ok_or(Error::NoSession)?;
        // The key made a session and nothing else: as a turn it is another request.
        let turn_id = TurnId::from_bytes(known.turn_id.ok_or(Error::KeyReused)?);
        return Ok(Accepted::Known { turn_id, session, result: known.result });
    }
    let (key, session, found) = match &turn.session {
        TurnSession::New(new) => {
            let status = Status::Idle.after(Change::TurnTaken)?;
            (sessions::insert(conn, new, status)?, Session::made(new, status), None)
        }
        TurnSession::Existing { id, resume } => {
            let (key, mut session) = rows::existing(conn, *id)?;
            let found = session.status;
            if !found.is_open() {
                return Err(Error::Ended(found));
            }
            if found == Status::Suspended && !resume {
                return Ok(Accepted::Suspended { session });
            }
            if *resume {
                session.status = session.status.after(Change::Resumed)?;
            }
            session.status = session.status.after(Change::TurnTaken)?;
            if session.status != found {
                sessions::set_status(conn, key, session.status, turn.at)?;
            }
            (key, session, Some(found.as_str()))
        }
    };
    conn.prepare_cached(
        "INSERT INTO turns
         (id, session, found, request, owner, started, attempt, keyed, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?8)",
    )?
    .execute(params![
        turn.id.as_bytes(),
        key,
        found,
        turn.request,
        turn.owner.0.as_bytes(),
        turn.started,
        turn.key.is_some(),
        millis(turn.at),
    ])?;
    if let Some(name) = &turn.key {
        sessions::remember_key(conn, name, key, Some(turn.id.as_bytes()), turn.at)?;
    }
    Ok(Accepted::Fresh { session })
}

pub(super) fn start(conn: &Connection, turn: TurnId, owner: InstanceId) -> Result<()> {
    let changed = conn
        .prepare_cached("UPDATE turns SET started = 1 WHERE id = ?1 AND owner = ?2")?
        .execute(params![turn.as_bytes(), owner.0.as_bytes()])?;
    if changed == 1 { Ok(()) } else { Err(Error::Superseded) }
}

/// A turn that is still this instance's.
struct Owned {
    session: Key,
    /// The session's status before the turn; none if the turn made it.
    found: Option<String>,
    keyed: bool,
}

fn owned(conn: &Connection, turn: TurnId, owner: InstanceId) -> Result<Owned> {
    conn.prepare_cached("SELECT session, found, keyed FROM turns WHERE id = ?1 AND owner = ?2")?
        .query_row(params![turn.as_bytes(), owner.0.as_bytes()], |row| {
            Ok(Owned { session: row.get(0)?, found: row.get(1)?, keyed: row.get(2)? })
        })
        .optional()?
        .ok_or(Error::Superseded)
}

pub(super) fn finish(conn: &Connection, finish: &Finish) -> Result<Session> {
    let Owned { session: key, keyed, .. } = owned(conn, finish.turn_id, finish.owner)?;
    let mut found = rows::sessions(conn, "WHERE key = ?1", [key])?;
    let (_, mut session) = found.pop().ok_or(Error::NoSession)?;
    let mut tether_last: i64 = conn
        .prepare_cached("SELECT tether_last FROM sessions WHERE key = ?1")?
        .query_row([key], |row| row.get(0))?;
    let at = millis(finish.at);

    let mut insert = conn.prepare_cached(
        "INSERT INTO entries
         (place, kind, turn_id, message, model, cost_usd, status, step, tether_no, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for entry in &finish.entries {
        session.last_seq += 1;
        session.cost_usd += entry.cost_usd;
        if entry.kind == EntryKind::Turn {
            session.step_count += 1;
        }
        let tether_no = entry.tethered.then(|| {
            tether_last += 1;
            session.pending_turns += 1;
            tether_last
        });
        insert.execute(params![
            place(key, session.last_seq),
            kind_number(entry.kind),
            finish.turn_id.as_bytes(),
            entry.message.as_json(),
            entry.model,
            entry.cost_usd,
            entry.status.as_str(),
            session.step_count as i64,
            tether_no,
            at,
        ])?;
    }
    if session.step_count.is_multiple_of(u64::from(finish.checkpoint_every.max(1))) {
        session.snapshot =
            Some(crate::Snapshot { id: finish.checkpoint, seq: session.last_seq, at: finish.at });
    }
    session.updated_at = finish.at;
    conn.prepare_cached(
        "UPDATE sessions SET step_count = ?2, updated_at = ?3, last_seq = ?4, tether_last = ?5,
         cost_usd = ?6, snapshot_id = ?7, snapshot_seq = ?8, snapshot_at = ?9 WHERE key = ?1",
    )?
    .execute(params![
        key,
        session.step_count as i64,
        at,
        session.last_seq as i64,
        tether_last,
        session.cost_usd,
        session.snapshot.as_ref().map(|s| s.id.as_bytes()),
        session.snapshot.map(|s| s.seq as i64),
        session.snapshot.map(|s| millis(s.at)),
    ])?;
    conn.prepare_cached("DELETE FROM turns WHERE id = ?1")?.execute([finish.turn_id.as_bytes()])?;
    match &finish.result {
        _ if !keyed => 0,
        Some(result) => conn
            .prepare_cached("UPDATE keys SET result = ?2 WHERE turn_id = ?1")?
            .execute(params![finish.turn_id.as_bytes(), result])?,
        None => conn
            .prepare_cached("DELETE FROM keys WHERE turn_id = ?1")?
            .execute([finish.turn_id.as_bytes()])?,
    };
    Ok(session)
}

pub(super) fn abandon(conn: &Connection, turn: TurnId, owner: InstanceId) -> Result<()> {
    let Owned { session: key, found, .. } = owned(conn, turn, owner)?;
    conn.prepare_cached("DELETE FROM keys WHERE turn_id = ?1")?.execute([turn.as_bytes()])?;
    conn.prepare_cached("DELETE FROM turns WHERE id = ?1")?.execute([turn.as_bytes()])?;
    // Nobody else has begun to use the session meanwhile?
    let (untouched, unused): (bool, bool) = conn
        .prepare_cached(
            "SELECT NOT EXISTS (SELECT 1 FROM turns WHERE session = ?1) AND attached_by IS NULL,
             last_seq = 0 FROM sessions WHERE key = ?1",
        )?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
    match found {
        _ if !untouched => Ok(()),
        None if unused => sessions::forget(conn, key),
        None => Ok(()),
        Some(status) => {
            conn.prepare_cached(
                "UPDATE sessions SET status = ?2 WHERE key = ?1 AND status = 'running'",
            )?
            .execute(params![key, status])?;
            Ok(())
        }
    }
}

pub(super) fn take_over(
    conn: &Connection,
    owner: InstanceId,
    at: Timestamp,
) -> Result<Vec<Unfinished>> {
    let me = owner.0.as_bytes();
    let lost = rows::sessions(conn, "WHERE attached_by IS NOT NULL AND attached_by <> ?1", [me])?;
    for (key, session) in lost {
        super::tether::release(conn, key, session.status, at)?;
    }
    conn.prepare_cached("UPDATE turns SET attempt = attempt + 1 WHERE owner <> ?1 AND started")?
        .execute([me])?;
    let mut statement = conn.prepare_cached(
        "SELECT t.id, s.id, t.request, t.attempt FROM turns t JOIN sessions s ON s.key = t.session
         WHERE t.owner <> ?1 ORDER BY t.number",
    )?;
    let found = statement
        .query_map([me], |row| {
            Ok(Unfinished {
                id: TurnId::from_bytes(row.get(0)?),
                session_id: SessionId::from_bytes(row.get(1)?),
                request: row.get(2)?,
                attempt: row.get(3)?,
            })
        })?
        .collect::<Result<Vec<_>, _>>()?;
    conn.prepare_cached("UPDATE turns SET owner = ?1, started = 0 WHERE owner <> ?1")?
        .execute([me])?;
    Ok(found)
}
