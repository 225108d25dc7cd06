//! Users and their API keys.

use rusqlite::{OptionalExtension as _, Transaction, params};
use uuid::Uuid;

use super::audit::{self, AuditEvent, OPERATOR};
use super::{Error, KeyHash, Registry, Result, retention};
use crate::control::api_key::ApiKey;
use crate::control::clock;

const LONGEST_NAME: usize = 64;

/// A user's row in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user's id in tokens.
    pub id: String,
    pub name: String,
    pub created_at: u64,
    pub revoked_at: Option<u64>,
    /// API keys and daemons that are not revoked.
    pub keys: u32,
    pub daemons: u32,
}

/// The result of revoking a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevokedUser {
    pub keys: usize,
    pub daemons: usize,
    /// When the last presence token of their daemons expires.
    pub tokens_until: Option<u64>,
}

/// The user behind an API key.
#[derive(Debug)]
pub(super) struct KeyOwner {
    pub(super) number: i64,
    pub(super) id: String,
    pub(super) name: String,
}

/// The owner of the presented API key, if neither key nor user is revoked.
pub(super) fn caller(tx: &Transaction<'_>, shown: &KeyHash) -> Result<KeyOwner> {
    let mut keys = tx.prepare_cached(
        "SELECT k.hash, u.number, u.id, u.name FROM api_keys k JOIN users u ON u.number = k.owner
         WHERE k.tag = ?1 AND k.revoked_at IS NULL AND u.revoked_at IS NULL",
    )?;
    let mut rows = keys.query([shown.tag()])?;
    let mut found = None;
    while let Some(row) = rows.next()? {
        if shown.matches(&row.get::<_, Vec<u8>>(0)?) {
            found = Some(KeyOwner { number: row.get(1)?, id: row.get(2)?, name: row.get(3)? });
        }
    }
    found.ok_or(Error::UnknownKey)
}

impl Registry {
    /// Whether an API key belongs to anybody.
    pub fn check_key(&mut self, shown: &KeyHash) -> Result<()> {
        self.look(|tx| caller(tx, shown).map(drop))
    }

    /// Creates a user with one API key.
    pub fn add_user(&mut self, name: &str, now: u64) -> Result<ApiKey> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._@+-".contains(c);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) {
            return Err(Error::BadName);
        }
        self.change(|tx| {
            if number(tx, name)?.is_some() {
                return Err(Error::NameTaken);
            }
            tx.execute(
                "INSERT INTO users (id, name, created_at) VALUES (?1, ?2, ?3)",
                params![format!("usr_{}", Uuid::new_v4().simple()), name, now],
            )?;
            let key = add_key(tx, tx.last_insert_rowid(), now)?;
            audit::note(tx, now, OPERATOR, AuditEvent::UserAdded, name)?;
            Ok(key)
        })
    }

    /// Creates another API key for a user; `replace` revokes the existing ones, and ends what they
    /// were used for.
    pub fn add_key(&mut self, name: &str, replace: bool, now: u64) -> Result<ApiKey> {
        self.change(|tx| {
            let user = number(tx, name)?.ok_or(Error::NoUser)?;
            if replace {
                revoke_keys(tx, user, now)?;
                end_tokens(tx, user, now)?;
                retention::compact(tx, now, retention::AT_ONCE)?;
                audit::note(tx, now, OPERATOR, AuditEvent::ApiKeysRevoked, name)?;
            }
            let key = add_key(tx, user, now)?;
            audit::note(tx, now, OPERATOR, AuditEvent::ApiKeyAdded, name)?;
            Ok(key)
        })
    }

    /// The users whose tokens were ended since then, by their ids in tokens, each with the time up to
    /// which its tokens ended; the last `most` of them.
    pub fn ended_since(&mut self, since: u64, most: u32) -> Result<Vec<(String, u64)>> {
        self.look(|tx| {
            let mut users = tx.prepare_cached(
                "SELECT id, ended_until FROM users WHERE ended_until >= ?1
                 ORDER BY ended_until DESC LIMIT ?2",
            )?;
            let users = users.query_map((since, most), |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(users.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// All users, including revoked ones, in the order of creation.
    pub fn users(&mut self) -> Result<Vec<User>> {
        self.look(|tx| {
            let mut users = tx.prepare_cached(
                "SELECT u.id, u.name, u.created_at, u.revoked_at,
                        (SELECT count(*) FROM api_keys
                         WHERE owner = u.number AND revoked_at IS NULL),
                        (SELECT count(*) FROM daemons
                         WHERE owner = u.number AND revoked_at IS NULL)
                 FROM users u ORDER BY u.number",
            )?;
            let users = users.query_map([], |row| {
                Ok(User {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    created_at: row.get(2)?,
                    revoked_at: row.get(3)?,
                    keys: row.get(4)?,
                    daemons: row.get(5)?,
                })
            })?;
            Ok(users.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Revokes a user with all their API keys and daemons.
    pub fn revoke_user(&mut self, name: &str, now: u64) -> Result<RevokedUser> {
        self.change(|tx| {
            let user = number(tx, name)?.ok_or(Error::NoUser)?;
            tx.execute("UPDATE users SET revoked_at = ?2 WHERE number = ?1", (user, now))?;
            let keys = revoke_keys(tx, user, now)?;
            end_tokens(tx, user, now)?;
            let last = "SELECT max(presence_until) FROM daemons
                        WHERE owner = ?1 AND presence_until > ?2";
            let tokens_until = tx.query_row(last, (user, now), |row| row.get(0))?;
            let daemons = tx.execute(
                "UPDATE daemons SET revoked_at = ?2 WHERE owner = ?1 AND revoked_at IS NULL",
                (user, now),
            )?;
            retention::compact(tx, now, retention::AT_ONCE)?;
            audit::note(tx, now, OPERATOR, AuditEvent::UserRevoked, name)?;
            Ok(RevokedUser { keys, daemons, tokens_until })
        })
    }
}

/// No token that was issued to the user until now is good any more. The time is that of the
/// transaction: it may have waited for others, which issued tokens meanwhile.
fn end_tokens(tx: &Transaction<'_>, user: i64, now: u64) -> Result<()> {
    let until = now.max(clock::now());
    tx.execute("UPDATE users SET ended_until = ?2 WHERE number = ?1", (user, until))?;
    Ok(())
}

/// The row number of the user with this name who is not revoked.
fn number(tx: &Transaction<'_>, name: &str) -> Result<Option<i64>> {
    let one = "SELECT number FROM users WHERE name = ?1 AND revoked_at IS NULL";
    Ok(tx.query_row(one, [name], |row| row.get(0)).optional()?)
}

fn add_key(tx: &Transaction<'_>, owner: i64, now: u64) -> Result<ApiKey> {
    let key = ApiKey::make();
    let hash = KeyHash::of(key.reveal());
    tx.execute(
        "INSERT INTO api_keys (owner, tag, hash, created_at) VALUES (?1, ?2, ?3, ?4)",
        params![owner, hash.tag(), hash.as_bytes(), now],
    )?;
    Ok(key)
}

fn revoke_keys(tx: &Transaction<'_>, owner: i64, now: u64) -> Result<usize> {
    Ok(tx.execute(
        "UPDATE api_keys SET revoked_at = ?2 WHERE owner = ?1 AND revoked_at IS NULL",
        (owner, now),
    )?)
}
