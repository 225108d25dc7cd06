//! Exports and their bundles.
//!
//! An export outlives its bundle: lineage still lists it when there is nothing left to import.

use bowline_sbp::budget::Spent;
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::GatewayId;
use bowline_sbp::id::{ExportId, SessionId};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Attempt;
use super::federation;
use super::pool::{Connection, Params};
use super::rows::{self, millis};
use super::text::stored;
use super::usage::{self, Usages};
use crate::{AnnouncedExport, Error, Export, NewExport};

/// The most exports of one session in a list.
const MOST: i64 = 1000;
/// The most bundles deleted in one transaction: large ones take time.
pub(super) const DROPPED_AT_ONCE: u64 = 16;

pub(super) async fn keep(tx: &Connection, new: &NewExport, writer: Uuid) -> Attempt<Export> {
    // Until the commit the session cannot be deleted, which would leave its bundle behind. Its owner
    // goes on writing.
    tx.query_opt("SELECT 1 FROM sessions WHERE id = $1 FOR KEY SHARE", &[&new.session_id.0])
        .await?
        .ok_or(Error::NoSession)?;
    insert(tx, new).await?;
    if let Some(spender) = &new.spender {
        let spent = Spent { exports: 1, ..Spent::default() };
        usage::add(tx, &Usages::of(new.at, spender, spent), writer).await?;
    }
    let found = find(tx, new.id).await?;
    let found = found.map(|(_, export)| export);
    Ok(found.ok_or_else(|| rows::corrupt("an export that was just created is missing"))?)
}

pub(super) async fn insert(tx: &Connection, new: &NewExport) -> Attempt<()> {
    let row = tx.query_one("INSERT INTO exports (id, session_id, cid, label, messages, created_at, expires_at, with_memory, peer,
             announce)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING number",
        &[
            &new.id.0,
            &new.session_id.0,
            &new.cid.as_slice(),
            &new.label.as_deref().map(stored),
            &(new.message_count as i64),
            &millis(new.at),
            &millis(new.expires_at),
            &new.with_memory,
            &new.peer.as_ref().map(GatewayId::as_str),
            &new.announce,
        ],
    )
    .await?;
    let number: i64 = row.try_get(0)?;
    // A handoff's export is created as used: no bundle is kept.
    if new.bundle.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO bundles (export, expires_at, bundle) VALUES ($1, $2, $3)";
    tx.execute(sql, &[&number, &millis(new.expires_at), &new.bundle]).await?;
    Ok(())
}

pub(super) async fn read(
    db: &Connection,
    id: ExportId,
) -> Attempt<Option<(Export, Option<Vec<u8>>)>> {
    let Some((number, export)) = find(db, id).await? else { return Ok(None) };
    let bundle = db.query_opt("SELECT bundle FROM bundles WHERE export = $1", &[&number]).await?;
    Ok(Some((export, bundle.map(|row| row.try_get(0)).transpose()?)))
}

/// Whether the export can be imported at that time (G7). Locks it until the end of the transaction: of
/// several imports the next one looks when this one has ended, and finds it used.
pub(super) async fn lock_unused(tx: &Connection, id: ExportId, at: Timestamp) -> Attempt<()> {
    let found = select(tx, "WHERE id = $1 FOR NO KEY UPDATE", &[&id.0]).await?.pop();
    let (number, export) = found.ok_or(Error::NoExport)?;
    if export.imported.is_some() {
        return Err(Error::Consumed.into());
    }
    // Whoever deletes the session locks the export first: the bundle stays until the commit.
    let kept = tx.query_opt("SELECT 1 FROM bundles WHERE export = $1", &[&number]).await?;
    match kept {
        Some(_) if federation::is_reserved(tx, id, at).await? => Err(Error::Reserved.into()),
        Some(_) => Ok(()),
        None => Err(Error::NoExport.into()),
    }
}

/// Whether nobody had used it up before: then it is now (G7).
pub(super) async fn use_up(
    tx: &Connection,
    id: ExportId,
    by: SessionId,
    at: Timestamp,
) -> Attempt<bool> {
    let sql = "UPDATE exports SET imported_at = $2, imported_as = $3
               WHERE id = $1 AND imported_at IS NULL";
    Ok(tx.execute(sql, &[&id.0, &millis(at), &by.0]).await? == 1)
}

/// The exports of a session, newest first; also of a deleted one.
pub(super) async fn list(db: &Connection, session: SessionId) -> Attempt<Vec<Export>> {
    let rest = "WHERE session_id = $1 ORDER BY number DESC LIMIT $2";
    let found = select(db, rest, &[&session.0, &MOST]).await?;
    Ok(found.into_iter().map(|(_, export)| export).collect())
}

/// Removes labels and bundles of a session that is deleted. The exports first: an import that has
/// locked one ends before.
pub(super) async fn forget(tx: &Connection, session: SessionId) -> Attempt<()> {
    for sql in [
        "UPDATE exports SET label = NULL WHERE session_id = $1",
        "DELETE FROM bundles WHERE export IN (SELECT number FROM exports WHERE session_id = $1)",
    ] {
        tx.execute(sql, &[&session.0]).await?;
    }
    Ok(())
}

/// The export, locked until the end of the transaction.
pub(super) async fn locked(tx: &Connection, id: ExportId) -> Attempt<Option<Export>> {
    let found = select(tx, "WHERE id = $1 FOR NO KEY UPDATE", &[&id.0]).await?.pop();
    Ok(found.map(|(_, export)| export))
}

/// Deletes the bundle of one export.
pub(super) async fn drop_bundle(tx: &Connection, id: ExportId) -> Attempt<()> {
    let sql = "DELETE FROM bundles WHERE export = (SELECT number FROM exports WHERE id = $1)";
    tx.execute(sql, &[&id.0]).await.map(|_| ())
}

/// The newest exports with that content id that have not expired, and whose bundle is there.
pub(super) async fn with_cid(
    db: &Connection,
    cid: &[u8; 32],
    at: Timestamp,
) -> Attempt<Vec<Export>> {
    let rest = "WHERE cid = $1 AND expires_at > $2
                AND EXISTS (SELECT 1 FROM bundles WHERE export = number) ORDER BY number DESC LIMIT 8";
    let found = select(db, rest, &[&cid.as_slice(), &millis(at)]).await?;
    Ok(found.into_iter().map(|(_, export)| export).collect())
}

/// The newest exports of which trackers are told and that have not expired.
pub(super) async fn announced(
    db: &Connection,
    at: Timestamp,
    most: u32,
) -> Attempt<Vec<AnnouncedExport>> {
    let sql = "SELECT cid, expires_at, imported_at IS NULL
             AND EXISTS (SELECT 1 FROM bundles WHERE export = number)
             AND EXISTS (SELECT 1 FROM sessions WHERE id = session_id AND handed_to IS NULL)
             AS is_open
         FROM exports WHERE announce AND expires_at > $1 ORDER BY number DESC LIMIT $2";
    let read = |row: &Row| {
        Ok(AnnouncedExport {
            cid: Cid::from_bytes(rows::hash(row, "cid")?),
            expires_at: rows::time(row, "expires_at")?,
            is_open: rows::column(row, "is_open")?,
        })
    };
    db.query(sql, &[&millis(at), &i64::from(most)]).await?.iter().map(read).collect()
}

/// Deletes up to [`DROPPED_AT_ONCE`] bundles that expired before `before`; returns their number.
pub(super) async fn drop_expired(db: &Connection, before: Timestamp) -> Attempt<u64> {
    db.execute(
        "DELETE FROM bundles WHERE export IN (
             SELECT export FROM bundles WHERE expires_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
        &[&millis(before), &(DROPPED_AT_ONCE as i64)],
    )
    .await
}

pub(super) async fn find(db: &Connection, id: ExportId) -> Attempt<Option<(i64, Export)>> {
    Ok(select(db, "WHERE id = $1", &[&id.0]).await?.pop())
}

async fn select(db: &Connection, rest: &str, params: Params<'_>) -> Attempt<Vec<(i64, Export)>> {
    let sql = format!(
        "SELECT number, id, session_id, cid, label, messages, created_at, expires_at, imported_at,
         imported_as, with_memory, peer FROM exports {rest}"
    );
    db.query(&sql, params).await?.iter().map(export_of).collect()
}

fn export_of(row: &Row) -> Attempt<(i64, Export)> {
    let imported = match rows::some_time(row, "imported_at")? {
        None => None,
        Some(at) => Some((at, SessionId(rows::column(row, "imported_as")?))),
    };
    let export = Export {
        id: ExportId(rows::column(row, "id")?),
        session_id: SessionId(rows::column(row, "session_id")?),
        cid: rows::hash(row, "cid")?,
        label: rows::some_told(row, "label")?,
        message_count: rows::number(row, "messages")?,
        with_memory: rows::column(row, "with_memory")?,
        created_at: rows::time(row, "created_at")?,
        expires_at: rows::time(row, "expires_at")?,
        imported,
        peer: federation::gateway_of(rows::column(row, "peer")?)?,
    };
    Ok((rows::column(row, "number")?, export))
}
