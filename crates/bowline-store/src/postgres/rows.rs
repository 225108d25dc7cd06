//! Converts rows to values and back.

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{Seq, SessionId, SnapshotId, TurnId, UserId};
use bowline_sbp::message::Message;
use bowline_sbp::surface::SurfaceContext;
use bowline_sbp::title::Titles;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::{Connection, Params};
use super::text;
use crate::{Entry, EntryKind, Error, Session, Snapshot, SnapshotKind, TokenHash};

pub(super) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub(super) fn timestamp(millis: i64) -> Attempt<Timestamp> {
    Timestamp::from_millisecond(millis).map_err(|_| corrupt("a time out of range").into())
}

pub(super) fn corrupt(what: &str) -> Error {
    Error::Corrupt(what.to_owned())
}

/// The id of a row, as PostgreSQL has it.
pub(super) fn uuid(id: &[u8; 16]) -> Uuid {
    Uuid::from_bytes(*id)
}

/// A column of a row; an error if it has another type.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Attempt<T> {
    Ok(row.try_get(name)?)
}

/// A column with an unsigned number.
pub(super) fn number(row: &Row, name: &str) -> Attempt<u64> {
    Ok(column::<i64>(row, name)? as u64)
}

/// A column with an unsigned number, or null.
pub(super) fn some_number(row: &Row, name: &str) -> Attempt<Option<u64>> {
    Ok(column::<Option<i64>>(row, name)?.map(|number| number as u64))
}

/// A column with an id.
pub(super) fn id(row: &Row, name: &str) -> Attempt<[u8; 16]> {
    Ok(column::<Uuid>(row, name)?.into_bytes())
}

/// A column with an id, or null.
pub(super) fn some_id(row: &Row, name: &str) -> Attempt<Option<[u8; 16]>> {
    Ok(column::<Option<Uuid>>(row, name)?.map(Uuid::into_bytes))
}

/// A column with a hash or a key of 32 bytes.
pub(super) fn hash(row: &Row, name: &str) -> Attempt<[u8; 32]> {
    let bytes: &[u8] = column(row, name)?;
    bytes.try_into().map_err(|_| corrupt("a hash of another length").into())
}

/// A column with a hash, or null.
pub(super) fn some_hash(row: &Row, name: &str) -> Attempt<Option<[u8; 32]>> {
    let bytes: Option<&[u8]> = column(row, name)?;
    let bytes = bytes.map(<[u8; 32]>::try_from).transpose();
    bytes.map_err(|_| corrupt("a hash of another length").into())
}

/// A column with a time.
pub(super) fn time(row: &Row, name: &str) -> Attempt<Timestamp> {
    timestamp(column(row, name)?)
}

/// A column with a time, or null.
pub(super) fn some_time(row: &Row, name: &str) -> Attempt<Option<Timestamp>> {
    column::<Option<i64>>(row, name)?.map(timestamp).transpose()
}

/// A column with a text that a caller chose.
pub(super) fn told(row: &Row, name: &str) -> Attempt<String> {
    Ok(text::read(column(row, name)?))
}

/// A column with a text that a caller chose, or null.
pub(super) fn some_told(row: &Row, name: &str) -> Attempt<Option<String>> {
    Ok(column::<Option<String>>(row, name)?.map(text::read))
}

/// A column with the name of something.
pub(super) fn parsed<T: std::str::FromStr>(row: &Row, name: &str, what: &str) -> Attempt<T> {
    column::<&str>(row, name)?.parse().map_err(|_| corrupt(what).into())
}

/// The text of a statement that selects sessions as `s`, concatenated at compile time.
macro_rules! select_sessions {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.number, s.token_hash, s.token_number, ",
            "coalesce(s.token_at, s.created_at) AS token_at, s.user_id, s.agent_id, s.status, ",
            "s.step_count, s.metadata, s.created_at, s.updated_at, s.last_seq, s.delivered_seq, ",
            "s.tether_last, s.tether_done, s.cost_usd, s.attach_epoch, s.snapshot_id, ",
            "s.snapshot_seq, s.snapshot_at, s.snapshot_kind, s.handed_to, s.title, s.auto_title, ",
            "(SELECT a.context FROM attachments a WHERE a.session = s.id ",
            "ORDER BY a.epoch DESC LIMIT 1) AS surface FROM sessions s ",
            $rest
        )
    };
}
pub(super) use select_sessions;

/// The sessions that a statement of [`select_sessions`] finds.
pub(super) async fn sessions(
    connection: &Connection,
    sql: &str,
    params: Params<'_>,
) -> Attempt<Vec<Session>> {
    connection.query(sql, params).await?.iter().map(session_of).collect()
}

/// The session of that id.
pub(super) async fn session(connection: &Connection, id: SessionId) -> Attempt<Option<Session>> {
    let sql = select_sessions!("WHERE s.id = $1");
    let row = connection.query_opt(sql, &[&uuid(id.as_bytes())]).await?;
    row.as_ref().map(session_of).transpose()
}

/// The session of that id; an error if there is none.
pub(super) async fn existing(connection: &Connection, id: SessionId) -> Attempt<Session> {
    Ok(session(connection, id).await?.ok_or(Error::NoSession)?)
}

pub(super) fn session_of(row: &Row) -> Attempt<Session> {
    let surface: Option<&str> = column(row, "surface")?;
    let snapshot = match some_id(row, "snapshot_id")? {
        None => None,
        Some(id) => Some(Snapshot {
            id: SnapshotId::from_bytes(id),
            seq: number(row, "snapshot_seq")?,
            at: time(row, "snapshot_at")?,
            kind: SnapshotKind::named(column(row, "snapshot_kind")?)
                .ok_or_else(|| corrupt("a snapshot of an unknown kind"))?,
        }),
    };
    let (last, done) = (number(row, "tether_last")?, number(row, "tether_done")?);
    Ok(Session {
        id: SessionId::from_bytes(id(row, "id")?),
        token_hash: TokenHash(hash(row, "token_hash")?),
        token_number: number(row, "token_number")?,
        token_at: time(row, "token_at")?,
        user: UserId::from_bytes(id(row, "user_id")?),
        agent_id: parsed(row, "agent_id", "an agent id")?,
        status: parsed(row, "status", "a status")?,
        step_count: number(row, "step_count")?,
        metadata: told(row, "metadata")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        last_seq: number(row, "last_seq")?,
        delivered_seq: number(row, "delivered_seq")?,
        pending_turns: last.saturating_sub(done),
        tethered_turns: last,
        cost_usd: column(row, "cost_usd")?,
        attach_epoch: number(row, "attach_epoch")?,
        surface: surface.and_then(|text| serde_json::from_str(text).ok()),
        snapshot,
        handed_to: some_id(row, "handed_to")?.map(SessionId::from_bytes),
        titles: Titles {
            given: some_told(row, "title")?.map(Into::into),
            automatic: some_told(row, "auto_title")?.map(Into::into),
        },
    })
}

/// A surface context as JSON.
pub(super) fn context_text(context: &SurfaceContext) -> Attempt<String> {
    serde_json::to_string(context).map_err(|_| corrupt("a surface that is not JSON").into())
}

pub(super) fn context_of(row: &Row) -> Attempt<SurfaceContext> {
    serde_json::from_str(column(row, "context")?)
        .map_err(|_| corrupt("a surface that is not JSON").into())
}

/// The columns of [`entry_of`].
macro_rules! select_entries {
    ($rest:literal) => {
        concat!(
            "SELECT seq, kind, turn_id, message, model, cost_usd, status, step, tether_no, ",
            "created_at, agent_id, carried, replaces, author FROM entries ",
            $rest
        )
    };
}
pub(super) use select_entries;

pub(super) fn entry_of(row: &Row) -> Attempt<Entry> {
    Ok(Entry {
        seq: number(row, "seq")?,
        kind: kind_of(column(row, "kind")?)?,
        turn_id: TurnId::from_bytes(id(row, "turn_id")?),
        message: message_of(column(row, "message")?)?,
        model: some_told(row, "model")?,
        cost_usd: column(row, "cost_usd")?,
        status: TurnStatus::named(column(row, "status")?),
        step: number(row, "step")?,
        tethered: column::<Option<i64>>(row, "tether_no")?.is_some(),
        created_at: time(row, "created_at")?,
        agent_id: column::<Option<&str>>(row, "agent_id")?.and_then(|id| id.parse().ok()),
        carried: some_told(row, "carried")?,
        replaces: some_number(row, "replaces")? as Option<Seq>,
        author: some_told(row, "author")?,
    })
}

fn kind_of(number: i16) -> Attempt<EntryKind> {
    match number {
        0 => Ok(EntryKind::Message),
        1 => Ok(EntryKind::Turn),
        2 => Ok(EntryKind::Note),
        3 => Ok(EntryKind::Action),
        _ => Err(corrupt("an entry of an unknown kind").into()),
    }
}

pub(super) fn kind_number(kind: EntryKind) -> i16 {
    match kind {
        EntryKind::Message => 0,
        EntryKind::Turn => 1,
        EntryKind::Note => 2,
        EntryKind::Action => 3,
    }
}

pub(super) fn message_of(text: String) -> Attempt<Message> {
    let raw = RawValue::from_string(text).map_err(|_| corrupt("a message that is not JSON"))?;
    Message::read(raw).map_err(|_| corrupt("a message without a role").into())
}
