//! Import and fork, each in one transaction (G7, G8).
//!
//! Everything that can be refused is checked first; creating the new session is the first write.

use bowline_sbp::federation::MovedTether;
use bowline_sbp::id::Seq;
use bowline_sbp::lifecycle::{Change, Status};
use bowline_sbp::surface::SurfaceContext;
use bowline_sbp::title::Titles;
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::log::LogAppender;
use super::rows::{self, Key, millis};
use super::sessions::{self, Known};
use super::{exports, history, lineage, memory, titles};
use crate::failpoint;
use crate::roaming::Kept;
use crate::size::whole;
use crate::{
    Derived, Edge, EdgeKind, Error, IdempotencyKey, MemoryOwner, NewFork, NewImport, NewSession,
    Result, SnapshotKind,
};

/// A position in a log and its step count.
pub(super) type Point = (Seq, u64);

pub(super) fn import(conn: &Connection, import: NewImport) -> Result<Derived> {
    if let Some(derived) = replayed(conn, import.key.as_ref())? {
        return Ok(derived);
    }
    let of = owner_of(&import);
    let NewImport { session: new, export_id, .. } = import;
    let used_up = if import.consume { Some(export_id.ok_or(Error::NoExport)?) } else { None };
    if let Some(export) = used_up {
        exports::check_unused(conn, export, new.at)?;
    }
    memory::check_room(conn, &of, &import.memories)?;

    failpoint::begin("import");
    let status = status_with(!import.entries.is_empty())?;
    let key = sessions::insert(conn, &new, status)?;
    failpoint::pass("session");
    let mut titles = Titles { given: import.title, automatic: None };
    import.entries.iter().for_each(|part| titles.see(part.entry.kind, &part.entry.message));
    titles::write(conn, key, &titles)?;
    let mut log = LogAppender::open(conn, key)?;
    // The cost of imported entries counts as `cost_usd` of the session, not as `spent_usd`.
    log.restore(conn, import.step_count, import.entries, import.tether.as_ref())?;
    log.take_snapshot((SnapshotKind::Checkpoint, import.snapshot), new.at);
    let point = log.close(conn, new.at)?;
    failpoint::pass("entries");
    match &import.tether {
        None => conn
            .prepare_cached("UPDATE sessions SET delivered_seq = last_seq WHERE key = ?1")?
            .execute([key])?,
        Some(tether) => take_tether(conn, key, tether, new.at)?,
    };
    failpoint::pass("delivered");
    if let Some(payload) = import.carried {
        conn.prepare_cached("INSERT INTO carried (session, payload) VALUES (?1, ?2)")?
            .execute(params![key, payload])?;
    }
    failpoint::pass("carried");
    memory::remember(conn, &of, &import.memories)?;
    failpoint::pass("memories");
    if let Some(export) = used_up
        && !exports::use_up(conn, export, new.id, new.at)?
    {
        return Err(Error::Consumed);
    }
    failpoint::pass("used-up");
    let edge = Edge {
        kind: import.kind,
        origin: import.origin,
        session: new.id.to_string(),
        export_id,
        detail: import.detail,
        at: new.at,
    };
    derived(conn, key, point, &edge, import.key.as_ref())
}

/// Whether a session that comes from another gateway could be imported now: its origin is asked to give it up after this.
pub(super) fn check_import(conn: &Connection, import: &NewImport) -> Result<()> {
    if replayed(conn, import.key.as_ref())?.is_some() {
        return Err(Error::KeyReused);
    }
    memory::check_room(conn, &owner_of(import), &import.memories)
}

/// Whose memory an import writes to.
fn owner_of(import: &NewImport) -> MemoryOwner {
    MemoryOwner { user: import.session.user, agent: import.session.agent_id.clone() }
}

/// The cursors of a session that comes from another gateway. Returns the number of rows.
fn take_tether(conn: &Connection, key: Key, tether: &MovedTether, at: Timestamp) -> Result<usize> {
    let context = rows::context_text(&SurfaceContext::default())?;
    for (device, seq) in &tether.devices {
        conn.prepare_cached(
            "INSERT INTO surfaces (session, surface_id, context, first_seen, last_seen, delivered_seq)
             SELECT ?1, ?2, ?3, ?4, 0, min(?5, last_seq) FROM sessions WHERE key = ?1",
        )?
        .execute(params![key, device, context, millis(at), whole(*seq)])?;
    }
    let set = "UPDATE sessions SET delivered_seq = min(?2, last_seq), tether_done = coalesce((
                   SELECT max(tether_no) FROM entries WHERE place > ?3 AND place <= ?4), 0)
               WHERE key = ?1";
    let seq = whole(tether.delivered);
    let (from, to) = (rows::place(key, 0), rows::place(key, tether.delivered));
    Ok(conn.prepare_cached(set)?.execute(params![key, seq, from, to])?)
}

pub(super) fn fork(conn: &Connection, fork: NewFork) -> Result<Derived> {
    if let Some(derived) = replayed(conn, fork.key.as_ref())? {
        return Ok(derived);
    }
    let (origin, session) = rows::existing(conn, fork.origin)?;
    let point = match fork.at_step {
        None => (session.last_seq, session.step_count),
        Some(step) => (history::at_step(conn, origin, &session, step)?, step),
    };
    let new = NewSession {
        id: fork.id,
        token_hash: fork.token_hash,
        listed: false,
        user: session.user,
        agent_id: session.agent_id,
        metadata: session.metadata,
        at: fork.at,
    };
    failpoint::begin("fork");
    let (key, mut log) = branch(conn, origin, point, &new)?;
    let Titles { given, automatic } = session.titles;
    titles::write(conn, key, &Titles { given: fork.title.or(given), automatic })?;
    log.take_snapshot((SnapshotKind::Checkpoint, fork.snapshot), fork.at);
    log.close(conn, fork.at)?;
    failpoint::pass("log");
    let edge = Edge {
        kind: EdgeKind::Fork,
        origin: session.id.to_string(),
        session: new.id.to_string(),
        export_id: None,
        detail: fork.detail,
        at: fork.at,
    };
    derived(conn, key, point, &edge, fork.key.as_ref())
}

/// Creates a session that shares the log of another one up to `point`. Carried data of that session
/// is copied; its cost is not counted as spent here.
pub(super) fn branch(
    conn: &Connection,
    origin: Key,
    point: Point,
    new: &NewSession,
) -> Result<(Key, LogAppender)> {
    let (seq, step) = point;
    let base = history::base_at(conn, origin, seq)?;
    let key = sessions::insert(conn, new, status_with(step > 0)?)?;
    failpoint::pass("session");
    conn.prepare_cached(
        "UPDATE sessions SET base_key = ?2, base_seq = ?3, last_seq = ?4, delivered_seq = ?4,
         step_count = ?5 WHERE key = ?1",
    )?
    .execute(params![
        key,
        base.map(|(key, _)| key),
        base.map(|(_, seq)| seq as i64),
        seq as i64,
        step as i64,
    ])?;
    failpoint::pass("base");
    conn.prepare_cached(
        "INSERT INTO carried (session, payload) SELECT ?1, payload FROM carried WHERE session = ?2",
    )?
    .execute([key, origin])?;
    failpoint::pass("carried");
    conn.prepare_cached(
        "INSERT INTO instructions (session, messages)
         SELECT ?1, messages FROM instructions WHERE session = ?2",
    )?
    .execute([key, origin])?;
    failpoint::pass("instruction");
    Ok((key, LogAppender::open(conn, key)?))
}

/// `Running` for a session with history, `Idle` for an empty one.
fn status_with(past: bool) -> Result<Status> {
    Ok(if past { Status::Idle.after(Change::TurnTaken)? } else { Status::Idle })
}

/// Writes the lineage edge of a new session, and its idempotency key.
pub(super) fn derived(
    conn: &Connection,
    key: Key,
    point: Point,
    edge: &Edge,
    name: Option<&IdempotencyKey>,
) -> Result<Derived> {
    lineage::add(conn, edge, rows::with_key(conn, key)?.user)?;
    failpoint::pass("edge");
    if let Some(name) = name {
        let result = Kept { point, export_id: edge.export_id }.to_json()?;
        let known = Known { session: key, turn_id: None, result: Some(result) };
        sessions::remember_key(conn, name, &known, edge.at)?;
    }
    failpoint::pass("key");
    Ok(Derived {
        session: rows::with_key(conn, key)?,
        point,
        export_id: edge.export_id,
        replayed: false,
    })
}

/// The result of an earlier request with the same idempotency key, if there was one.
pub(super) fn replayed(
    conn: &Connection,
    name: Option<&IdempotencyKey>,
) -> Result<Option<Derived>> {
    let Some(known) = name.map(|name| sessions::known_key(conn, name)).transpose()?.flatten()
    else {
        return Ok(None);
    };
    // The key belongs to a turn, or to a new session: that was another request.
    let (None, Some(result)) = (known.turn_id, &known.result) else { return Err(Error::KeyReused) };
    let Kept { point, export_id } = Kept::of_json(result)?;
    let session = rows::with_key(conn, known.session)?;
    Ok(Some(Derived { session, point, export_id, replayed: true }))
}
