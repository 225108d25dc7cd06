//! The entries to be delivered to surfaces after a position, in pages.

use bowline_sbp::delivery::{Logged, LoggedQuestion, LoggedTurn};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::{Seq, SessionId, TurnId};
use bowline_sbp::message::{EntryKind, said};
use tokio_postgres::Row;

use super::error::Attempt;
use super::pool::Connection;
use super::rows::{
    self, column, corrupt, id, kind_number, number, some_number, some_told, time, uuid,
};
use super::{Postgres, text};
use crate::{Arrival, Result, Tether};

/// The most entries in one page, and the most bytes of text (one entry always fits).
const PAGE_ENTRIES: i64 = 512;
const PAGE_BYTES: i64 = 256 << 10;

#[async_trait::async_trait]
impl Tether for Postgres {
    async fn shown_after(&self, id: SessionId, after: Seq, questions: bool) -> Result<Vec<Logged>> {
        self.pool.read(move |c| async move { shown_after(&c, id, after, questions).await }).await
    }

    async fn arrival(&self, id: SessionId, device: Option<String>) -> Result<Option<Arrival>> {
        let device = device.as_deref();
        self.pool.snapshot(move |c| async move { arrival(&c, id, device).await }).await
    }
}

async fn shown_after(
    c: &Connection,
    session: SessionId,
    mut after: Seq,
    questions: bool,
) -> Attempt<Vec<Logged>> {
    loop {
        let (page, last) = page(c, session, after, questions).await?;
        match last {
            // Nothing in this page is delivered to surfaces; there may be more after it.
            Some(last) if page.is_empty() => after = last,
            _ => return Ok(page),
        }
    }
}

/// A page, and the position of the last entry that was read. The database cuts it off at the bytes, so
/// that they are not sent for nothing.
async fn page(
    c: &Connection,
    session: SessionId,
    after: Seq,
    questions: bool,
) -> Attempt<(Vec<Logged>, Option<Seq>)> {
    let sql = "SELECT * FROM (
                   SELECT seq, turn_id, message, model, status, step, created_at, kind, cost_usd, author,
                          sum(octet_length(message)) OVER (ORDER BY seq) AS bytes,
                          row_number() OVER (ORDER BY seq) AS nth
                   FROM (SELECT * FROM entries
                         WHERE session = $1 AND seq > $2
                           AND (tether_no IS NOT NULL OR ($3 AND kind = 0))
                         ORDER BY seq LIMIT $4) e) p
               WHERE nth = 1 OR bytes <= $5 ORDER BY seq";
    let key = uuid(session.as_bytes());
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&key, &(after as i64), &questions, &PAGE_ENTRIES, &PAGE_BYTES];
    let (mut shown, mut last) = (Vec::new(), None);
    for row in c.query(sql, &params).await? {
        last = Some(number(&row, "seq")?);
        shown.extend(logged(&row)?);
    }
    Ok((shown, last))
}

/// An entry as it is delivered. System messages and results of the caller's own tools are not.
fn logged(row: &Row) -> Attempt<Option<Logged>> {
    let seq = number(row, "seq")?;
    let turn_id = TurnId::from_bytes(id(row, "turn_id")?);
    let created_at = time(row, "created_at")?;
    let (role, content) = said(column(row, "message")?).ok_or_else(|| corrupt("a message"))?;
    if column::<i16>(row, "kind")? == kind_number(EntryKind::Message) {
        let author = some_told(row, "author")?;
        let question = LoggedQuestion { seq, turn_id, content, author, created_at };
        return Ok((role == "user").then_some(Logged::Question(question)));
    }
    Ok(Some(Logged::Turn(LoggedTurn {
        seq,
        turn_id,
        role,
        content,
        model: some_told(row, "model")?,
        created_at,
        step_count: number(row, "step")?,
        cost_usd: column(row, "cost_usd")?,
        status: TurnStatus::named(column(row, "status")?),
    })))
}

async fn arrival(c: &Connection, id: SessionId, device: Option<&str>) -> Attempt<Option<Arrival>> {
    let Some(session) = rows::session(c, id).await? else { return Ok(None) };
    let key = uuid(id.as_bytes());
    let known = match device {
        None => None,
        Some(name) => {
            let sql = "SELECT delivered_seq FROM surfaces WHERE session = $1 AND surface_id = $2";
            let row = c.query_opt(sql, &[&key, &text::stored(name)]).await?;
            row.map(|row| some_number(&row, "delivered_seq")).transpose()?.flatten()
        }
    };
    let cursor = known.unwrap_or(session.delivered_seq);
    let pending = match cursor == session.delivered_seq {
        true => session.pending_turns,
        false => session.tethered_turns.saturating_sub(tethered_up_to(c, id, cursor).await?),
    };
    Ok(Some(Arrival { session, cursor, pending }))
}

/// The number of Tether turns up to `seq`.
async fn tethered_up_to(c: &Connection, session: SessionId, seq: Seq) -> Attempt<u64> {
    let sql = "SELECT tether_no FROM entries
               WHERE session = $1 AND seq <= $2 AND tether_no IS NOT NULL
               ORDER BY seq DESC LIMIT 1";
    let row = c.query_opt(sql, &[&uuid(session.as_bytes()), &(seq as i64)]).await?;
    Ok(row.map(|row| number(&row, "tether_no")).transpose()?.unwrap_or(0))
}
