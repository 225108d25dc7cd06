//! The keys that sign tokens: one in use, one published ahead of its turn, and those whose tokens
//! are still out.
//!
//! Invariants
//! - There is always a current and a next one: relays know a key before it signs.
//! - A key is published until the last token it signed has expired, whatever lifetimes were
//!   configured: each issue notes it before the token is made.
//! - A key that signs no more has no seed any more.

use std::fmt;

use bowline_sbrp::identity::{IdentityKey, IdentitySecret};
use rusqlite::{Transaction, params};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::audit::{self, AuditEvent, OPERATOR};
use super::{Error, Registry, Result};
use crate::control::api_key::random;

/// Noted further ahead than needed, so that not every token has to write it.
const AHEAD: u64 = 600;
/// How much longer than its last token a key is published: relays allow for 30 s of skew.
const SLACK: u64 = 60;

/// The key to sign with.
pub struct Signing {
    pub kid: String,
    pub seed: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signing").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// What a rotation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// Signs from now on.
    pub current: String,
    /// Is published, and signs after the next rotation.
    pub next: String,
    /// Signs no more.
    pub retired: String,
    /// Until when the retired one is published.
    pub published_until: u64,
    /// Since when the current one is. Relays that asked before that ask again when they meet it.
    pub published_since: u64,
}

/// The key for a token that is good until then; notes that it is needed so long.
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

/// On the first start there are none.
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

/// What became of the keys when others had seen them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    pub current: String,
    pub next: String,
}

impl Registry {
    /// Every key that a token still in force may name, oldest first.
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

    /// Lets the next key sign, makes a new next one, and keeps the old one published until all it
    /// signed has expired. All of it, or nothing.
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
            audit::note(tx, now, OPERATOR, AuditEvent::KeyRotated, &current)?;
            Ok(Rotated { current, next, retired, published_until, published_since })
        })
    }

    /// Gives up all keys at once, because somebody else may have them: what they signed, and what
    /// anyone signs with them from now on, is good nowhere as soon as relays have asked again.
    pub fn replace_keys(&mut self, now: u64) -> Result<Replaced> {
        self.change(|tx| {
            tx.execute(
                "UPDATE signing_keys
                 SET role = 'retired', seed = NULL, retired_at = coalesce(retired_at, ?1),
                     published_until = min(coalesce(published_until, ?1), ?1)",
                [now],
            )?;
            let (current, next) = (make(tx, "current", now)?, make(tx, "next", now)?);
            audit::note(tx, now, OPERATOR, AuditEvent::KeysReplaced, &current)?;
            Ok(Replaced { current, next })
        })
    }
}
