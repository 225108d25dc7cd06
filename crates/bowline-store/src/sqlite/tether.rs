//! The entries to be delivered to surfaces after a position, in pages.

use bowline_sbp::delivery::{Logged, LoggedQuestion, LoggedTurn};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{Seq, SessionId, TurnId};
use bowline_sbp::message::{EntryKind, said};
use bowline_sbp::session::TokenHash;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Key, kind_number, millis, place, seq_of, timestamp};
use crate::{Arrival, Result};

/// The most entries in one page, and the most bytes of text (one entry always fits).
const PAGE_ENTRIES: u32 = 512;
const PAGE_BYTES: usize = 256 << 10;

/// A page of entries to deliver. Drains read these, so only the needed columns are read.
pub(super) fn shown_after(
    conn: &Connection,
    id: SessionId,
    mut after: Seq,
    questions: bool,
) -> Result<Vec<Logged>> {
    let Some(key) = rows::key_of(conn, id)? else { return Ok(Vec::new()) };
    loop {
        let (page, last) = page(conn, key, after, questions)?;
        match last {
            // Nothing in this page is delivered to surfaces; there may be more after it.
            Some(last) if page.is_empty() => after = last,
            _ => return Ok(page),
        }
    }
}

/// A page, and the position of the last entry that was read.
fn page(
    conn: &Connection,
    key: Key,
    after: Seq,
    questions: bool,
) -> Result<(Vec<Logged>, Option<Seq>)> {
    let sql = match questions {
        false => {
            "SELECT place, turn_id, message, model, status, step, created_at, kind, cost_usd, author
             FROM entries
             WHERE place > ?1 AND place < ?2 AND tether_no IS NOT NULL ORDER BY place LIMIT ?3"
        }
        true => {
            "SELECT place, turn_id, message, model, status, step, created_at, kind, cost_usd, author
             FROM entries
             WHERE place > ?1 AND place < ?2 AND (tether_no IS NOT NULL OR kind = 0)
             ORDER BY place LIMIT ?3"
        }
    };
    let mut statement = conn.prepare_cached(sql)?;
    let span = params![place(key, after), place(key + 1, 0), PAGE_ENTRIES];
    let mut rows = statement.query(span)?;
    let (mut shown, mut bytes, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        let message = row.get_ref(2)?.as_str().map_err(|_| rows::corrupt("a message"))?;
        bytes += message.len();
        if bytes > PAGE_BYTES && !shown.is_empty() {
            break;
        }
        let seq = seq_of(row.get(0)?);
        last = Some(seq);
        let turn_id = TurnId::from_bytes(row.get(1)?);
        let created_at = timestamp(row.get(6)?)?;
        let (role, content) = said(message).ok_or_else(|| rows::corrupt("a message"))?;
        if row.get::<_, i64>(7)? == kind_number(EntryKind::Message) {
            // System messages and results of the caller's own tools are not delivered.
            if role == "user" {
                let author = row.get(9)?;
                let question = LoggedQuestion { seq, turn_id, content, author, created_at };
                shown.push(Logged::Question(question));
            }
            continue;
        }
        shown.push(Logged::Turn(LoggedTurn {
            seq,
            turn_id,
            role,
            content,
            model: row.get(3)?,
            created_at,
            step_count: row.get::<_, i64>(5)? as u64,
            cost_usd: row.get(8)?,
            status: TurnStatus::named(row.get_ref(4)?.as_str().unwrap_or_default()),
        }));
    }
    Ok((shown, last))
}

pub(super) fn arrival(
    conn: &Connection,
    id: SessionId,
    device: Option<&str>,
) -> Result<Option<Arrival>> {
    let Some((key, session)) = rows::session(conn, id)? else { return Ok(None) };
    let known: Option<Option<i64>> = match device {
        None => None,
        Some(name) => conn
            .prepare_cached(
                "SELECT delivered_seq FROM surfaces WHERE session = ?1 AND surface_id = ?2",
            )?
            .query_row(params![key, name], |row| row.get(0))
            .optional()?,
    };
    let cursor = known.flatten().map_or(session.delivered_seq, |seq| seq as Seq);
    let pending = match cursor == session.delivered_seq {
        true => session.pending_turns,
        false => session.tethered_turns.saturating_sub(tethered_up_to(conn, key, cursor)?),
    };
    Ok(Some(Arrival { session, cursor, pending }))
}

/// The number of Tether turns up to `seq`.
fn tethered_up_to(conn: &Connection, key: Key, seq: Seq) -> Result<u64> {
    let number: Option<i64> = conn
        .prepare_cached(
            "SELECT tether_no FROM entries
             WHERE place > ?1 AND place <= ?2 AND tether_no IS NOT NULL
             ORDER BY place DESC LIMIT 1",
        )?
        .query_row(params![place(key, 0), place(key, seq)], |row| row.get(0))
        .optional()?;
    Ok(number.unwrap_or(0) as u64)
}

/// The device with this token, if the token has not expired at that time.
pub(super) fn device_of(
    conn: &Connection,
    id: SessionId,
    token: TokenHash,
    at: Timestamp,
) -> Result<Option<String>> {
    let Some(key) = rows::key_of(conn, id)? else { return Ok(None) };
    let mut statement = conn.prepare_cached(
        "SELECT surface_id FROM surfaces
         WHERE session = ?1 AND token_hash = ?2 AND token_expires_at > ?3",
    )?;
    let found = statement.query_row(params![key, token.0, millis(at)], |row| row.get(0));
    Ok(found.optional()?)
}
