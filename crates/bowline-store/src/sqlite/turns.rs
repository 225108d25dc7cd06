//! Accepting, finishing, abandoning and taking over turns.

use bowline_sbp::id::{Seq, SessionId, TurnId};
use bowline_sbp::lifecycle::{Change, Status};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::log::Log;
use super::memory;
use super::rows::{self, Key, millis, select_sessions};
use super::sessions::{self, Known};
use crate::{
    Accepted, Advance, Error, Finish, InstanceId, NewTurn, Result, Session, TurnSession, Unfinished,
};

/// Sessions whose surface another process had.
const LOST: &str = select_sessions!("WHERE attached_by IS NOT NULL AND attached_by <> ?1");

pub(super) fn accept(conn: &Connection, turn: &NewTurn) -> Result<Accepted> {
    if let Some(known) =
        turn.key.as_ref().map(|key| sessions::known_key(conn, key)).transpose()?.flatten()
    {
        let session = rows::with_key(conn, known.session)?;
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
            if let Some(successor) = session.handed_to {
                return Err(Error::HandedOver(successor));
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
        let known = Known { session: key, turn_id: Some(*turn.id.as_bytes()), result: None };
        sessions::remember_key(conn, name, &known, turn.at)?;
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
    number: i64,
    session: Key,
    /// The session's status before the turn; none if the turn made it.
    found: Option<String>,
    keyed: bool,
}

fn owned(conn: &Connection, turn: TurnId, owner: InstanceId) -> Result<Owned> {
    let sql = "SELECT number, session, found, keyed FROM turns WHERE id = ?1 AND owner = ?2";
    conn.prepare_cached(sql)?
        .query_row(params![turn.as_bytes(), owner.0.as_bytes()], |row| {
            let (number, session) = (row.get(0)?, row.get(1)?);
            Ok(Owned { number, session, found: row.get(2)?, keyed: row.get(3)? })
        })
        .optional()?
        .ok_or(Error::Superseded)
}

fn end(conn: &Connection, number: i64) -> Result<()> {
    conn.prepare_cached("DELETE FROM turns WHERE number = ?1")?.execute([number])?;
    Ok(())
}

pub(super) fn advance(conn: &Connection, advance: &Advance) -> Result<Session> {
    let Owned { number, session: key, .. } = owned(conn, advance.turn_id, advance.owner)?;
    let mut log = Log::open(conn, key)?;
    if let Some((agent, memories)) = &advance.memories {
        memory::remember(conn, agent, memories)?;
    }
    log.append(conn, advance.turn_id, &advance.entries, advance.at)?;
    log.take_snapshot(advance.snapshot, advance.at);
    log.close(conn, advance.at)?;
    conn.prepare_cached("UPDATE turns SET advanced = 1 WHERE number = ?1")?.execute([number])?;
    rows::with_key(conn, key)
}

pub(super) fn finish(conn: &Connection, finish: &Finish) -> Result<Seq> {
    let Owned { number, session, keyed, .. } = owned(conn, finish.turn_id, finish.owner)?;
    let seq = Log::open(conn, session)?.finish(conn, finish)?;
    end(conn, number)?;
    match &finish.result {
        _ if !keyed => 0,
        Some(result) => conn
            .prepare_cached("UPDATE keys SET result = ?2 WHERE turn_id = ?1")?
            .execute(params![finish.turn_id.as_bytes(), result])?,
        None => conn
            .prepare_cached("DELETE FROM keys WHERE turn_id = ?1")?
            .execute([finish.turn_id.as_bytes()])?,
    };
    Ok(seq)
}

pub(super) fn abandon(conn: &Connection, turn: TurnId, owner: InstanceId) -> Result<()> {
    let Owned { number, session: key, found, .. } = owned(conn, turn, owner)?;
    conn.prepare_cached("DELETE FROM keys WHERE turn_id = ?1")?.execute([turn.as_bytes()])?;
    end(conn, number)?;
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
    let lost = rows::sessions(conn, LOST, [me])?;
    for (key, session) in lost {
        super::tether::release(conn, key, session.status, at)?;
    }
    conn.prepare_cached("UPDATE turns SET attempt = attempt + 1 WHERE owner <> ?1 AND started")?
        .execute([me])?;
    let mut statement = conn.prepare_cached(
        "SELECT t.id, s.id, t.request, t.attempt, t.advanced, t.keyed
         FROM turns t JOIN sessions s ON s.key = t.session
         WHERE t.owner <> ?1 ORDER BY t.number",
    )?;
    let found = statement
        .query_map([me], |row| {
            Ok(Unfinished {
                id: TurnId::from_bytes(row.get(0)?),
                session_id: SessionId::from_bytes(row.get(1)?),
                request: row.get(2)?,
                attempt: row.get(3)?,
                advanced: row.get(4)?,
                keyed: row.get(5)?,
            })
        })?
        .collect::<Result<Vec<_>, _>>()?;
    conn.prepare_cached("UPDATE turns SET owner = ?1, started = 0 WHERE owner <> ?1")?
        .execute([me])?;
    Ok(found)
}
