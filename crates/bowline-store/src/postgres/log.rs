//! Appends to the log of a session that is created by an import, fork or handoff.

use bowline_sbp::id::SessionId;
use bowline_sbp::session::Placed;

use super::commit;
use super::error::Attempt;
use super::pool::Connection;
use super::rows::{kind_number, millis};
use super::text::stored;

/// Writes the entries of a session that this transaction has created, and its uses of blobs.
pub(super) async fn append(tx: &Connection, session: SessionId, entries: &[Placed]) -> Attempt<()> {
    if entries.is_empty() {
        return Ok(());
    }
    insert(tx, session, entries).await?;
    for placed in entries.iter().filter(|placed| commit::has_blobs(placed)) {
        commit::add_blobs(tx, session, placed).await?;
    }
    let instruction = entries.iter().rev().find_map(|placed| placed.entry.instruction.as_ref());
    if let Some(messages) = instruction {
        let messages = serde_json::to_string(messages).expect("raw JSON serialises");
        let sql = "INSERT INTO instructions (session, messages) VALUES ($1, $2)";
        tx.execute(sql, &[&session.0, &messages]).await?;
    }
    Ok(())
}

async fn insert(tx: &Connection, session: SessionId, entries: &[Placed]) -> Attempt<()> {
    fn column<'a, T>(entries: &'a [Placed], of: impl Fn(&'a Placed) -> T) -> Vec<T> {
        entries.iter().map(of).collect()
    }
    tx.execute(
        "INSERT INTO entries (session, seq, kind, turn_id, message, model, cost_usd, status, step,
                              tether_no, created_at, agent_id, carried, caller, replaces, author)
         SELECT $1::uuid, n.* FROM unnest(
             $2::bigint[], $3::smallint[], $4::uuid[], $5::text[], $6::text[], $7::float8[],
             $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[],
             $14::bigint[], $15::bigint[], $16::text[]) n",
        &[
            &session.0,
            &column(entries, |placed| placed.seq as i64),
            &column(entries, |placed| kind_number(placed.entry.kind)),
            &column(entries, |placed| placed.turn_id.0),
            &column(entries, |placed| placed.entry.message.as_json()),
            &column(entries, |placed| placed.entry.model.as_deref().map(stored)),
            &column(entries, |placed| placed.entry.cost_usd),
            &column(entries, |placed| placed.entry.status.as_str()),
            &column(entries, |placed| placed.step as i64),
            &column(entries, |placed| placed.tether_no.map(|number| number as i64)),
            &column(entries, |placed| millis(placed.at)),
            &column(entries, |placed| placed.entry.agent_id.as_ref().map(|agent| agent.as_str())),
            &column(entries, |placed| placed.entry.carried.as_deref().map(stored)),
            &column(entries, |placed| placed.entry.caller.map(|caller| caller.0 as i64)),
            &column(entries, |placed| placed.entry.replaces.map(|seq| seq as i64)),
            &column(entries, |placed| placed.entry.author.as_deref().map(stored)),
        ],
    )
    .await
    .map(drop)
}
