//! The records on disk: which gateway has which bundle, until when.
//!
//! SQLite, with one connection that writes and several that read. Nothing is kept in memory but a few
//! pages: a million records cost disk, not memory.
//!
//! Invariants
//! - Of two announcements of one record the one that was signed later counts; of the same second, a
//!   withdrawal. So an announcement that is sent again brings nothing back.
//! - No gateway has more records than it may, nor do all together.

mod file;
mod schema;

use std::path::Path;

use bowline_sbp::cid::Cid;
use bowline_sbp::federation::registry::{CLOCK_DIFFERENCE, MOST_HOLDERS};
use bowline_sbp::federation::{Announced, Announcement, BaseUrl, GatewayId, Holder};
use bowline_sbp::gateway_key::GatewayKey;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

pub use self::file::{FILE, RegistryOpenError};

/// How long the memory of a record lasts at least, in seconds: longer than anything signed before it
/// is accepted.
const REMEMBERED: i64 = 2 * CLOCK_DIFFERENCE;
/// How long a gateway without records is known, in seconds.
const GATEWAY_KEPT: i64 = 24 * 3600;
/// Records that one step of [`Registry::purge`] deletes, so that writers do not wait for long.
const PURGE_STEP: u64 = 5_000;

/// Why a call failed and changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a gateway may have {0} records")]
    GatewayFull(u64),
    #[error("the tracker is full")]
    Full,
    #[error("the database failed: {0}")]
    Database(String),
    #[error("the registry is closed")]
    Closed,
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.to_string())
    }
}

type Result<T, E = Error> = std::result::Result<T, E>;

/// How much may be stored.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    pub records: u64,
    pub records_per_gateway: u64,
    pub gateways: u64,
}

/// A gateway whose key was seen at its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownGateway {
    pub key: GatewayKey,
    /// Seconds since 1970.
    pub checked_at: i64,
}

/// What an announcement changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    pub announced: u64,
    pub withdrawn: u64,
}

/// An open connection to the registry.
#[derive(Debug)]
pub struct Registry {
    conn: Connection,
}

impl Registry {
    /// Opens the registry in `folder`, and creates both as needed.
    pub fn open(folder: &Path) -> Result<Self, RegistryOpenError> {
        Ok(Self { conn: file::open(folder)? })
    }

    /// Another connection to an open registry, which only reads.
    pub fn reader(folder: &Path) -> Result<Self, RegistryOpenError> {
        Ok(Self { conn: file::reader(folder)? })
    }

    /// What is known of a gateway at that address.
    pub fn gateway(&self, id: &GatewayId, url: &BaseUrl) -> Result<Option<KnownGateway>> {
        let mut found = self
            .conn
            .prepare_cached("SELECT key, checked_at FROM gateways WHERE id = ?1 AND url = ?2")?;
        let row = found.query_row(params![id.as_str(), url.as_str()], |row| {
            Ok((row.get::<_, [u8; 32]>(0)?, row.get(1)?))
        });
        let Some((key, checked_at)) = row.optional()? else { return Ok(None) };
        // A key that was stored is one.
        Ok(GatewayKey::from_bytes(&key).ok().map(|key| KnownGateway { key, checked_at }))
    }

    /// The gateways that have a bundle. The first that announced it comes first, so that whoever names
    /// itself later hides nobody.
    pub fn holders(&self, cid: Cid, now: i64) -> Result<Vec<Holder>> {
        let mut found = self.conn.prepare_cached(
            "SELECT gateways.id, gateways.url, records.expires_at FROM records
             JOIN gateways ON gateways.number = records.gateway
             WHERE records.cid = ?1 AND records.expires_at > ?2
             ORDER BY records.first_at, records.gateway LIMIT ?3",
        )?;
        let rows = found.query_map(params![cid.as_bytes(), now, MOST_HOLDERS], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?))
        })?;
        let mut holders = Vec::new();
        for row in rows {
            let (id, url, expires_at) = row?;
            let (Ok(gateway_id), Ok(url)) = (id.parse(), url.parse()) else { continue };
            holders.push(Holder { gateway_id, url, expires_at });
        }
        Ok(holders)
    }

    /// Stores a verified announcement: all of it, or nothing.
    pub fn store(
        &mut self,
        announcement: &Announcement,
        gateway: KnownGateway,
        capacity: Capacity,
        now: i64,
    ) -> Result<Stored> {
        self.change(|tx| {
            let number = upsert_gateway(tx, announcement, gateway, capacity)?;
            let mut stored = Stored::default();
            let mut added = 0;
            for announced in announcement.cids.iter().filter(|one| one.expires_at > now) {
                let (new, changed) = announce(tx, number, announced, announcement.issued_at, now)?;
                added += new;
                stored.announced += changed;
            }
            for cid in &announcement.withdraw {
                stored.withdrawn += withdraw(tx, number, *cid, announcement.issued_at)?;
            }
            count_in(tx, number, added, capacity)?;
            Ok(stored)
        })
    }

    /// Deletes some of what has ended; returns whether there may be more.
    pub fn purge(&mut self, now: i64) -> Result<bool> {
        self.change(|tx| {
            let mut ended = tx.prepare_cached(
                "DELETE FROM records WHERE (cid, gateway) IN
                     (SELECT cid, gateway FROM records WHERE kept_until <= ?1 LIMIT ?2)
                 RETURNING gateway",
            )?;
            let mut count = 0;
            let mut less =
                tx.prepare_cached("UPDATE gateways SET records = records - 1 WHERE number = ?1")?;
            let gateways = ended.query_map(params![now, PURGE_STEP], |row| row.get::<_, i64>(0))?;
            for gateway in gateways.collect::<Result<Vec<_>, _>>()? {
                less.execute([gateway])?;
                count += 1;
            }
            tx.prepare_cached("UPDATE totals SET records = records - ?1")?.execute([count])?;
            let unused = tx.execute(
                "DELETE FROM gateways WHERE records = 0 AND checked_at <= ?1",
                [now - GATEWAY_KEPT],
            )?;
            tx.execute("UPDATE totals SET gateways = gateways - ?1", [unused])?;
            Ok(count == PURGE_STEP)
        })
    }

    /// Checks that the registry can be written.
    pub fn check(&mut self) -> Result<()> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        Ok(tx.rollback()?)
    }

    /// Records, those included that are kept for a while after their end.
    pub fn records(&self) -> Result<u64> {
        Ok(self.conn.query_row("SELECT records FROM totals", [], |row| row.get(0))?)
    }

    fn change<T>(&mut self, change: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = change(&tx)?;
        tx.commit()?;
        Ok(done)
    }
}

fn upsert_gateway(
    tx: &Transaction<'_>,
    announcement: &Announcement,
    KnownGateway { key, checked_at }: KnownGateway,
    capacity: Capacity,
) -> Result<i64> {
    let (id, url) = (announcement.gateway_id.as_str(), announcement.url.as_str());
    let mut known = tx.prepare_cached("SELECT number FROM gateways WHERE id = ?1 AND url = ?2")?;
    if let Some(number) = known.query_row([id, url], |row| row.get(0)).optional()? {
        tx.prepare_cached("UPDATE gateways SET key = ?1, checked_at = ?2 WHERE number = ?3")?
            .execute(params![key.as_bytes(), checked_at, number])?;
        return Ok(number);
    }
    let gateways: u64 = tx.query_row("SELECT gateways FROM totals", [], |row| row.get(0))?;
    if gateways >= capacity.gateways {
        return Err(Error::Full);
    }
    tx.execute(
        "INSERT INTO gateways (id, url, key, checked_at) VALUES (?1, ?2, ?3, ?4)",
        params![id, url, key.as_bytes(), checked_at],
    )?;
    let number = tx.last_insert_rowid();
    tx.execute("UPDATE totals SET gateways = gateways + 1", [])?;
    Ok(number)
}

/// How many records are new, and how many were changed.
fn announce(
    tx: &Transaction<'_>,
    gateway: i64,
    announced: &Announced,
    issued_at: i64,
    now: i64,
) -> Result<(u64, u64)> {
    let Announced { cid, expires_at } = announced;
    let kept_until = kept_until(*expires_at, issued_at);
    let made = tx
        .prepare_cached(
            "INSERT INTO records (cid, gateway, first_at, announced_at, expires_at, kept_until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
        )?
        .execute(params![cid.as_bytes(), gateway, now, issued_at, expires_at, kept_until])?;
    if made > 0 {
        return Ok((1, 1));
    }
    let refreshed = tx
        .prepare_cached(
            "UPDATE records SET announced_at = ?3, expires_at = ?4, kept_until = ?5
             WHERE cid = ?1 AND gateway = ?2 AND (announced_at < ?3
                   OR (announced_at = ?3 AND expires_at != 0 AND expires_at < ?4))",
        )?
        .execute(params![cid.as_bytes(), gateway, issued_at, expires_at, kept_until])?;
    Ok((0, refreshed as u64))
}

fn withdraw(tx: &Transaction<'_>, gateway: i64, cid: Cid, issued_at: i64) -> Result<u64> {
    let withdrawn = tx
        .prepare_cached(
            "UPDATE records SET announced_at = ?3, expires_at = 0, kept_until = ?4
             WHERE cid = ?1 AND gateway = ?2 AND announced_at <= ?3 AND expires_at != 0",
        )?
        .execute(params![cid.as_bytes(), gateway, issued_at, kept_until(0, issued_at)])?;
    Ok(withdrawn as u64)
}

fn kept_until(expires_at: i64, issued_at: i64) -> i64 {
    expires_at.max(issued_at.saturating_add(REMEMBERED))
}

fn count_in(tx: &Transaction<'_>, gateway: i64, added: u64, capacity: Capacity) -> Result<()> {
    if added == 0 {
        return Ok(());
    }
    let of_gateway: u64 = tx
        .prepare_cached(
            "UPDATE gateways SET records = records + ?1 WHERE number = ?2 RETURNING records",
        )?
        .query_row(params![added, gateway], |row| row.get(0))?;
    let of_all: u64 = tx
        .prepare_cached("UPDATE totals SET records = records + ?1 RETURNING records")?
        .query_row([added], |row| row.get(0))?;
    if of_gateway > capacity.records_per_gateway {
        return Err(Error::GatewayFull(capacity.records_per_gateway));
    }
    if of_all > capacity.records { Err(Error::Full) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
