//! Converts rows to values and back.

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{Seq, SessionId, SnapshotId, TurnId, UserId};
use bowline_sbp::message::Message;
use bowline_sbp::surface::SurfaceContext;
use bowline_sbp::title::Titles;
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::value::RawValue;

use crate::{Entry, EntryKind, Error, Result, Session, Snapshot, SnapshotKind, TokenHash};

/// A session's row number: the upper half of the row numbers of its entries.
pub(super) type Key = i64;

/// The row number of an entry. 2^31 sessions of 2^32 entries fit.
pub(super) fn place(key: Key, seq: Seq) -> i64 {
    (key << 32) | seq.min(u64::from(u32::MAX)) as i64
}

pub(super) fn seq_of(place: i64) -> Seq {
    (place & 0xffff_ffff) as Seq
}

pub(super) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub(super) fn timestamp(millis: i64) -> Result<Timestamp> {
    Timestamp::from_millisecond(millis).map_err(|_| corrupt("a time out of range"))
}

pub(super) fn corrupt(what: &str) -> Error {
    Error::Corrupt(what.to_owned())
}

/// The text of a statement that selects sessions, concatenated at compile time.
macro_rules! select_sessions {
    ($rest:literal) => {
        concat!(
            "SELECT key, id, token_hash, agent_id, status, step_count, metadata, created_at, ",
            "updated_at, last_seq, delivered_seq, tether_last - tether_done, cost_usd, ",
            "attach_epoch, (SELECT context FROM attachments WHERE session = key ORDER BY epoch ",
            "DESC LIMIT 1), snapshot_id, snapshot_seq, snapshot_at, snapshot_kind, ",
            "handed_to, tether_last, title, auto_title, user, token_number, ",
            "coalesce(token_at, created_at) FROM sessions ",
            $rest
        )
    };
}
pub(super) use select_sessions;

/// The sessions that a statement of [`select_sessions`] finds.
pub(super) fn sessions(
    conn: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<(Key, Session)>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(session_of(row)?);
    }
    Ok(found)
}

/// The session of that id.
pub(super) fn session(conn: &Connection, id: SessionId) -> Result<Option<(Key, Session)>> {
    Ok(sessions(conn, select_sessions!("WHERE id = ?1"), [id.as_bytes()])?.pop())
}

/// The session of that id; an error if there is none.
pub(super) fn existing(conn: &Connection, id: SessionId) -> Result<(Key, Session)> {
    session(conn, id)?.ok_or(Error::NoSession)
}

/// The session in that row; an error if there is none.
pub(super) fn with_key(conn: &Connection, key: Key) -> Result<Session> {
    let found = sessions(conn, select_sessions!("WHERE key = ?1"), [key])?.pop();
    Ok(found.ok_or(Error::NoSession)?.1)
}

/// The row number of that session.
pub(super) fn key_of(conn: &Connection, id: SessionId) -> Result<Option<Key>> {
    let mut statement = conn.prepare_cached("SELECT key FROM sessions WHERE id = ?1")?;
    Ok(statement.query_row([id.as_bytes()], |row| row.get(0)).optional()?)
}

fn session_of(row: &Row<'_>) -> Result<(Key, Session)> {
    let surface: Option<String> = row.get(14)?;
    let snapshot = match row.get::<_, Option<[u8; 16]>>(15)? {
        None => None,
        Some(id) => Some(Snapshot {
            id: SnapshotId::from_bytes(id),
            seq: row.get::<_, i64>(16)? as Seq,
            at: timestamp(row.get(17)?)?,
            kind: snapshot_kind(row.get_ref(18)?.as_str().unwrap_or_default())?,
        }),
    };
    let session = Session {
        id: SessionId::from_bytes(row.get(1)?),
        token_hash: TokenHash(row.get(2)?),
        token_number: row.get::<_, i64>(24)? as u64,
        token_at: timestamp(row.get(25)?)?,
        user: UserId::from_bytes(row.get(23)?),
        agent_id: row
            .get_ref(3)?
            .as_str()
            .ok()
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| corrupt("an agent id"))?,
        status: row
            .get_ref(4)?
            .as_str()
            .ok()
            .and_then(|s| s.parse().ok())
            .ok_or_else(|| corrupt("a status"))?,
        step_count: row.get::<_, i64>(5)? as u64,
        metadata: row.get(6)?,
        created_at: timestamp(row.get(7)?)?,
        updated_at: timestamp(row.get(8)?)?,
        last_seq: row.get::<_, i64>(9)? as Seq,
        delivered_seq: row.get::<_, i64>(10)? as Seq,
        pending_turns: row.get::<_, i64>(11)? as u64,
        tethered_turns: row.get::<_, i64>(20)? as u64,
        cost_usd: row.get(12)?,
        attach_epoch: row.get::<_, i64>(13)? as u64,
        surface: surface.and_then(|text| serde_json::from_str(&text).ok()),
        snapshot,
        handed_to: row.get::<_, Option<[u8; 16]>>(19)?.map(SessionId::from_bytes),
        titles: Titles { given: row.get(21)?, automatic: row.get(22)? },
    };
    Ok((row.get(0)?, session))
}

fn snapshot_kind(name: &str) -> Result<SnapshotKind> {
    SnapshotKind::named(name).ok_or_else(|| corrupt("a snapshot of an unknown kind"))
}

/// A surface context as JSON.
pub(super) fn context_text(context: &SurfaceContext) -> Result<String> {
    serde_json::to_string(context).map_err(|_| corrupt("a surface that is not JSON"))
}

pub(super) fn context_of(text: ValueRef<'_>) -> Result<SurfaceContext> {
    serde_json::from_str(text.as_str().unwrap_or_default())
        .map_err(|_| corrupt("a surface that is not JSON"))
}

/// The entries that `rest` (WHERE …) finds, until `fits` returns false.
pub(super) fn entries(
    conn: &Connection,
    rest: &str,
    params: impl rusqlite::Params,
    mut fits: impl FnMut(&Entry) -> bool,
) -> Result<Vec<Entry>> {
    let sql = format!(
        "SELECT place, kind, turn_id, message, model, cost_usd, status, step, tether_no, created_at, \
         agent_id, carried, replaces, author FROM entries {rest}"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let entry = entry_of(row)?;
        if !fits(&entry) {
            break;
        }
        found.push(entry);
    }
    Ok(found)
}

fn entry_of(row: &Row<'_>) -> Result<Entry> {
    let kind = match row.get::<_, i64>(1)? {
        0 => EntryKind::Message,
        1 => EntryKind::Turn,
        2 => EntryKind::Note,
        3 => EntryKind::Action,
        _ => return Err(corrupt("an entry of an unknown kind")),
    };
    Ok(Entry {
        seq: seq_of(row.get(0)?),
        kind,
        turn_id: TurnId::from_bytes(row.get(2)?),
        message: message_of(row.get(3)?)?,
        model: row.get(4)?,
        cost_usd: row.get(5)?,
        status: TurnStatus::named(row.get_ref(6)?.as_str().unwrap_or_default()),
        step: row.get::<_, i64>(7)? as u64,
        tethered: row.get::<_, Option<i64>>(8)?.is_some(),
        created_at: timestamp(row.get(9)?)?,
        agent_id: row.get_ref(10)?.as_str_or_null().ok().flatten().and_then(|id| id.parse().ok()),
        carried: row.get(11)?,
        replaces: row.get::<_, Option<i64>>(12)?.map(|seq| seq as Seq),
        author: row.get(13)?,
    })
}

pub(super) fn kind_number(kind: EntryKind) -> i64 {
    match kind {
        EntryKind::Message => 0,
        EntryKind::Turn => 1,
        EntryKind::Note => 2,
        EntryKind::Action => 3,
    }
}

pub(super) fn message_of(text: String) -> Result<Message> {
    let raw = RawValue::from_string(text).map_err(|_| corrupt("a message that is not JSON"))?;
    Message::read(raw).map_err(|_| corrupt("a message without a role"))
}
