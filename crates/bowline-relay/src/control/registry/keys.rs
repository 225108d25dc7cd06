//! The signing keys of tokens: the current one, the next one, which is already published, and
//! retired ones whose tokens have not expired.
//!
//! Invariants
//! - There is always a current and a next key: relays know a key before it signs.
//! - A key is published until the last token it signed has expired, even if configured lifetimes
//!   change: the token's expiry is recorded before the token is signed.
//! - A retired key has no seed.

use std::fmt;

use bowline_sbrp::identity::{IdentityKey, IdentitySecret};
use rusqlite::{Transaction, params};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::audit::{self, AuditEvent, OPERATOR};
use super::{Error, Registry, Result, retention};
use crate::control::api_key::random;

/// The recorded expiry is this many seconds later than needed, so that not every token writes it.
const AHEAD: u64 = 600;
/// How much longer than its last token a key is published, in seconds: relays allow 30 s of skew.
const SLACK: u64 = 60;

/// The current signing key.
pub struct Signing {
    pub kid: String,
    pub seed: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signing").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// The result of a key rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The key that signs from now on.
    pub current: String,
    /// The key that is published, and signs after the next rotation.
    pub next: String,
    /// The key that no longer signs.
    pub retired: String,
    /// Until when the retired key is published.
    pub published_until: u64,
    /// Since when the current key is published. Relays with an older key set fetch it again when a
    /// token names this key.
    pub published_since: u64,
}

/// The key for a token that expires at `until`; records that the key is needed until then.
pub(super) fn signing(tx: &Transaction<'_>, until: u64) -> Result<Signing> {
    let (number, kid, seed, signed_until): (i64, String, Vec<u8>, u64) = tx
        .prepare_cached(
            "SELECT number, kid, seed, signed_until FROM signing_keys WHERE role = 'current'",
        )?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let seed = Zeroizing::new(seed);
    if signed_until < until {
        tx.prepare_cached("UPDATE signing_keys SET signed_until = ?2 WHERE number = ?1")?
            .execute((number, until + AHEAD))?;
    }
    let seed = <[u8; 32]>::try_from(seed.as_slice())
        .map_err(|_| Error::Database("a signing key has the wrong length".into()))?;
    Ok(Signing { kid, seed: Zeroizing::new(seed) })
}

/// Creates the current and the next key on the first start.
pub(super) fn make_first(tx: &Transaction<'_>, now: u64) -> Result<()> {
    let none: bool = tx.query_row("SELECT count(*) = 0 FROM signing_keys", [], |row| row.get(0))?;
    if none {
        make(tx, "current", now)?;
        make(tx, "next", now)?;
    }
    Ok(())
}

fn make(tx: &Transaction<'_>, role: &str, now: u64) -> Result<String> {
    let seed = Zeroizing::new(random::<32>());
    let public = IdentitySecret::from_seed(&seed).public();
    let kid = format!("key_{}", Uuid::new_v4().simple());
    tx.execute(
        "INSERT INTO signing_keys (kid, role, public, seed, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![kid, role, public.as_bytes(), seed.as_slice(), now],
    )?;
    Ok(kid)
}

/// The result of replacing all keys after a compromise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    pub current: String,
    pub next: String,
}

impl Registry {
    /// Every key that an unexpired token may name, oldest first.
    pub fn published(&mut self, now: u64) -> Result<Vec<(String, IdentityKey)>> {
        self.look(|tx| {
            let mut keys = tx.prepare_cached(
                "SELECT kid, public FROM signing_keys
                 WHERE role != 'retired' OR published_until > ?1 ORDER BY number",
            )?;
            let keys = keys.query_map([now], |row| Ok((row.get(0)?, row.get(1)?)))?;
            keys.map(|row| {
                let (kid, public): (String, [u8; 32]) = row?;
                let public = IdentityKey::from_bytes(&public)
                    .map_err(|unfit| Error::Database(unfit.to_string()))?;
                Ok((kid, public))
            })
            .collect()
        })
    }

    /// Makes the next key current, creates a new next key, and keeps the old key published until
    /// all tokens it signed have expired. One transaction.
    pub fn rotate(&mut self, now: u64) -> Result<Rotated> {
        self.change(|tx| {
            let key = |role: &str| -> Result<(i64, String, u64, u64)> {
                let one = "SELECT number, kid, signed_until, created_at FROM signing_keys
                           WHERE role = ?1";
                let read = |row: &rusqlite::Row<'_>| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                };
                Ok(tx.query_row(one, [role], read)?)
            };
            let (old, retired, signed_until, _) = key("current")?;
            let (new, current, _, published_since) = key("next")?;
            let published_until = signed_until.max(now) + SLACK;
            tx.execute(
                "UPDATE signing_keys
                 SET role = 'retired', seed = NULL, retired_at = ?2, published_until = ?3
                 WHERE number = ?1",
                (old, now, published_until),
            )?;
            tx.execute("UPDATE signing_keys SET role = 'current' WHERE number = ?1", [new])?;
            let next = make(tx, "next", now)?;
            retention::compact(tx, now, retention::AT_ONCE)?;
            audit::note(tx, now, OPERATOR, AuditEvent::KeyRotated, &current)?;
            Ok(Rotated { current, next, retired, published_until, published_since })
        })
    }

    /// Replaces all keys at once, because they may be compromised: tokens signed with the old keys
    /// are refused as soon as relays have fetched the new key set.
    pub fn replace_keys(&mut self, now: u64) -> Result<Replaced> {
        self.change(|tx| {
            tx.execute(
                "UPDATE signing_keys
                 SET role = 'retired', seed = NULL, retired_at = coalesce(retired_at, ?1),
                     published_until = min(coalesce(published_until, ?1), ?1)",
                [now],
            )?;
            retention::compact(tx, now, retention::AT_ONCE)?;
            let (current, next) = (make(tx, "current", now)?, make(tx, "next", now)?);
            audit::note(tx, now, OPERATOR, AuditEvent::KeysReplaced, &current)?;
            Ok(Replaced { current, next })
        })
    }
}
