//! The keys of paired devices, by daemon: whoever has one gets session tokens of that daemon.
//!
//! A daemon's owner sets all of them at once, so that a lost request is made up for by the next one.
//! Only public keys and times are here, no names.
//!
//! Invariant: an expired key, and any key of a revoked daemon or user, is as good as none.

use bowline_sbrp::api::DeviceKey;
use bowline_sbrp::device_auth::VerifiedRequest;
use rusqlite::{OptionalExtension as _, Transaction, params};

use super::audit::{self, AuditEvent};
use super::daemons::{own, session_terms};
use super::terms::SessionTerms;
use super::users::{KeyOwner, caller};
use super::{Error, KeyHash, Registry, Result};

impl Registry {
    /// Replaces the devices of one of the caller's daemons. The same set again changes nothing.
    pub fn set_devices(
        &mut self,
        key: &KeyHash,
        id: &str,
        devices: &[DeviceKey],
        now: u64,
    ) -> Result<()> {
        self.change(|tx| {
            let owner = caller(tx, key)?;
            let daemon = own(tx, &owner, id)?.in_force()?;
            tx.prepare_cached("DELETE FROM device_keys WHERE expires_at <= ?1")?.execute([now])?;
            let in_force = |device: &&DeviceKey| device.expires_at.is_none_or(|at| at > now);
            let mut wanted: Vec<_> = devices
                .iter()
                .filter(in_force)
                .map(|device| (*device.key.as_bytes(), device.expires_at))
                .collect();
            wanted.sort_unstable();
            if stored(tx, &daemon)? == wanted {
                return Ok(());
            }
            replace(tx, &daemon, &wanted)?;
            audit::count(tx, now, &owner.name, AuditEvent::DevicesChanged, &daemon, 1)
        })
    }

    /// Whether the daemon has this device.
    pub fn check_device(&mut self, asked: &VerifiedRequest, now: u64) -> Result<()> {
        self.look(|tx| owner_of(tx, asked, now).map(drop))
    }

    /// The data for a device's session token.
    pub fn open_device_session(
        &mut self,
        asked: &VerifiedRequest,
        now: u64,
        until: u64,
    ) -> Result<SessionTerms> {
        self.change(|tx| {
            let owner = owner_of(tx, asked, now)?;
            let daemon = asked.daemon().as_str();
            audit::count(tx, now, &owner.name, AuditEvent::SessionIssued, daemon, 1)?;
            session_terms(tx, owner, daemon, until)
        })
    }
}

/// The owner of the daemon that has this device.
fn owner_of(tx: &Transaction<'_>, asked: &VerifiedRequest, now: u64) -> Result<KeyOwner> {
    let found = tx
        .prepare_cached(
            "SELECT u.number, u.id, u.name
             FROM daemons d
             JOIN device_keys k ON k.daemon = d.number
             JOIN users u ON u.number = d.owner
             WHERE d.id = ?1 AND k.key = ?2 AND (k.expires_at IS NULL OR k.expires_at > ?3)
                   AND d.revoked_at IS NULL AND u.revoked_at IS NULL",
        )?
        .query_row(params![asked.daemon().as_str(), asked.device().as_bytes(), now], |row| {
            Ok(KeyOwner { number: row.get(0)?, id: row.get(1)?, name: row.get(2)? })
        });
    found.optional()?.ok_or(Error::UnknownDevice)
}

/// A daemon's devices in the order of their keys.
fn stored(tx: &Transaction<'_>, daemon: &str) -> Result<Vec<([u8; 32], Option<u64>)>> {
    let mut rows = tx.prepare_cached(
        "SELECT key, expires_at FROM device_keys
         WHERE daemon = (SELECT number FROM daemons WHERE id = ?1) ORDER BY key",
    )?;
    let rows = rows.query_map([daemon], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn replace(tx: &Transaction<'_>, daemon: &str, devices: &[([u8; 32], Option<u64>)]) -> Result<()> {
    tx.prepare_cached(
        "DELETE FROM device_keys WHERE daemon = (SELECT number FROM daemons WHERE id = ?1)",
    )?
    .execute([daemon])?;
    let mut insert = tx.prepare_cached(
        "INSERT INTO device_keys (daemon, key, expires_at)
         SELECT number, ?2, ?3 FROM daemons WHERE id = ?1",
    )?;
    for (key, expires_at) in devices {
        insert.execute(params![daemon, key, expires_at])?;
    }
    Ok(())
}
