//! Users, their keys, and shared sessions.

use bowline_sbp::access::{OWNER, Role, Share};
use bowline_sbp::budget::OwnLimits;
use bowline_sbp::id::{SessionId, UserId};
use bowline_sbp::session::TokenHash;
use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use super::revision;
use super::rows::{self, Key, corrupt, millis, timestamp};
use crate::user::{ENDED_KEYS, MOST_KEYS, MOST_USERS};
use crate::{CredentialId, Error, Result, SharedSession, User, UserKey};

pub(super) fn add(conn: &Connection, user: &User) -> Result<()> {
    let known: i64 = conn.query_row("SELECT count(*) FROM users", [], |row| row.get(0))?;
    if known >= MOST_USERS {
        return Err(Error::TooMany("users", MOST_USERS as u32));
    }
    let added = conn
        .prepare_cached(
            "INSERT INTO users (id, name, role, created_at, limits) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            user.id.as_bytes(),
            user.name,
            user.role.as_str(),
            millis(user.created_at),
            limits_text(&user.limits)?,
        ]);
    match added {
        Ok(_) => revision::bump(conn),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(Error::NameTaken)
        }
        Err(error) => Err(error.into()),
    }
}

/// All users, the owner first.
pub(super) fn list(conn: &Connection) -> Result<Vec<User>> {
    let mut statement = conn.prepare_cached(
        "SELECT id, name, role, created_at, disabled_at, limits FROM users ORDER BY created_at, name",
    )?;
    let mut rows = statement.query([])?;
    let mut users = Vec::new();
    while let Some(row) = rows.next()? {
        users.push(user_of(row)?);
    }
    Ok(users)
}

/// Disables a user, or enables it again. The owner cannot be disabled.
pub(super) fn disable(
    conn: &Connection,
    user: UserId,
    at: Option<Timestamp>,
) -> Result<Option<User>> {
    if user != OWNER {
        conn.prepare_cached("UPDATE users SET disabled_at = ?2 WHERE id = ?1")?
            .execute(params![user.as_bytes(), at.map(millis)])?;
        revision::bump(conn)?;
    }
    one(conn, user)
}

fn one(conn: &Connection, user: UserId) -> Result<Option<User>> {
    let mut statement = conn.prepare_cached(
        "SELECT id, name, role, created_at, disabled_at, limits FROM users WHERE id = ?1",
    )?;
    let mut rows = statement.query([user.as_bytes()])?;
    rows.next()?.map(user_of).transpose()
}

/// Adds a key. Returns the key of the same device that it replaces.
pub(super) fn add_key(conn: &Connection, key: &UserKey) -> Result<Option<CredentialId>> {
    let replaced = match &key.device {
        Some(device) => key_of_device(conn, device)?.map(|(key, _)| key.id),
        None => None,
    };
    let count = "SELECT count(*) FROM user_keys WHERE user = ?1 AND revoked_at IS NULL
                 AND (expires_at IS NULL OR expires_at > ?2) AND id IS NOT ?3";
    let now = millis(key.created_at);
    let but = replaced.as_ref().map(CredentialId::as_str);
    let known: i64 =
        conn.query_row(count, params![key.user.as_bytes(), now, but], |row| row.get(0))?;
    if known >= MOST_KEYS {
        return Err(Error::TooMany("keys", MOST_KEYS as u32));
    }
    if let Some(replaced) = &replaced {
        revoke(conn, replaced, key.created_at)?;
    }
    conn.prepare_cached(
        "INSERT INTO user_keys
         (id, user, name, secret_hash, scopes, agents, models, created_at, expires_at, limits, device)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        key.id.as_str(),
        key.user.as_bytes(),
        key.name,
        key.secret.0,
        key.scopes.to_string(),
        key.agents.join("\n"),
        key.models.join("\n"),
        millis(key.created_at),
        key.expires_at.map(millis),
        limits_text(&key.limits)?,
        key.device,
    ])?;
    // What ended long ago is of no use to anybody.
    conn.prepare_cached(
        "DELETE FROM user_keys WHERE id IN (
             SELECT id FROM user_keys WHERE user = ?1 AND coalesce(revoked_at, expires_at) <= ?3
             ORDER BY coalesce(revoked_at, expires_at) DESC LIMIT -1 OFFSET ?2)",
    )?
    .execute(params![key.user.as_bytes(), ENDED_KEYS, now])?;
    revision::bump(conn)?;
    Ok(replaced)
}

const KEYS: &str = "SELECT k.id, k.user, k.name, k.secret_hash, k.scopes, k.agents, k.models, \
                    k.created_at, k.expires_at, k.revoked_at, k.last_used_at, k.limits, \
                    k.device FROM user_keys k";

/// The keys of a user, or of all, newest first.
pub(super) fn keys(conn: &Connection, user: Option<UserId>) -> Result<Vec<UserKey>> {
    let sql = format!("{KEYS} WHERE ?1 IS NULL OR k.user = ?1 ORDER BY k.created_at DESC, k.id");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![user.as_ref().map(UserId::as_bytes)])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(key_of(row)?);
    }
    Ok(keys)
}

/// The key of that id, and its user.
pub(super) fn key(conn: &Connection, id: &CredentialId) -> Result<Option<(UserKey, User)>> {
    let sql = format!("{KEYS} WHERE k.id = ?1");
    with_user(conn, conn.prepare_cached(&sql)?.query([id.as_str()])?.next()?)
}

/// The key of a device that is not revoked, and its user.
pub(super) fn key_of_device(
    conn: &Connection,
    device: &[u8; 32],
) -> Result<Option<(UserKey, User)>> {
    let sql = format!("{KEYS} WHERE k.device = ?1 AND k.revoked_at IS NULL");
    with_user(conn, conn.prepare_cached(&sql)?.query([device])?.next()?)
}

fn with_user(conn: &Connection, row: Option<&Row<'_>>) -> Result<Option<(UserKey, User)>> {
    let Some(key) = row.map(key_of).transpose()? else { return Ok(None) };
    let user = one(conn, key.user)?;
    Ok(Some((key, user.ok_or_else(|| corrupt("a key of nobody"))?)))
}

/// Revokes a key. Whether there is one that was not revoked before.
pub(super) fn revoke(conn: &Connection, id: &CredentialId, at: Timestamp) -> Result<bool> {
    let revoked = conn
        .prepare_cached(
            "UPDATE user_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
        )?
        .execute(params![id.as_str(), millis(at)])?;
    if revoked > 0 {
        revision::bump(conn)?;
    }
    Ok(revoked > 0)
}

/// Keys were used at these times.
pub(super) fn used(conn: &Connection, keys: &[(CredentialId, Timestamp)]) -> Result<()> {
    for (id, at) in keys {
        conn.prepare_cached(
            "UPDATE user_keys SET last_used_at = max(coalesce(last_used_at, 0), ?2) WHERE id = ?1",
        )?
        .execute(params![id.as_str(), millis(*at)])?;
    }
    Ok(())
}

/// Shares a session with a user; `None`: no more.
pub(super) fn share(
    conn: &Connection,
    session: SessionId,
    user: UserId,
    share: Option<Share>,
) -> Result<()> {
    let key = rows::key_of(conn, session)?.ok_or(Error::NoSession)?;
    match share {
        Some(share) => conn
            .prepare_cached(
                "INSERT INTO shares (session, user, share) VALUES (?1, ?2, ?3)
                 ON CONFLICT (session, user) DO UPDATE SET share = excluded.share",
            )?
            .execute(params![key, user.as_bytes(), share.as_str()])?,
        None => conn
            .prepare_cached("DELETE FROM shares WHERE session = ?1 AND user = ?2")?
            .execute(params![key, user.as_bytes()])?,
    };
    revision::bump(conn)
}

/// With whom a session is shared.
pub(super) fn shares(conn: &Connection, session: SessionId) -> Result<Vec<SharedSession>> {
    let Some(key) = rows::key_of(conn, session)? else { return Ok(Vec::new()) };
    let mut statement =
        conn.prepare_cached("SELECT user, share FROM shares WHERE session = ?1 ORDER BY user")?;
    let mut rows = statement.query([key])?;
    let mut shares = Vec::new();
    while let Some(row) = rows.next()? {
        let user = UserId::from_bytes(row.get(0)?);
        shares.push(SharedSession { session, user, share: share_of(row, 1)? });
    }
    Ok(shares)
}

/// How a session is shared with a user.
pub(super) fn shared_with(
    conn: &Connection,
    session: SessionId,
    user: UserId,
) -> Result<Option<Share>> {
    let mut statement = conn.prepare_cached(
        "SELECT share FROM shares WHERE user = ?2
         AND session = (SELECT key FROM sessions WHERE id = ?1)",
    )?;
    let found = statement
        .query_row(params![session.as_bytes(), user.as_bytes()], |row| {
            Ok(row.get_ref(0)?.as_str().ok().and_then(Share::named))
        })
        .optional()?;
    found.map(|share| share.ok_or_else(|| corrupt("a share"))).transpose()
}

/// Whether a user sees a session of that owner.
pub(super) fn sees(conn: &Connection, key: Key, owner: UserId, user: UserId) -> Result<bool> {
    let shared = "SELECT 1 FROM shares WHERE session = ?1 AND user = ?2";
    Ok(owner == user || conn.prepare_cached(shared)?.exists(params![key, user.as_bytes()])?)
}

/// Gives a user other limits of its own. Returns the user as it is now.
pub(super) fn limit(conn: &Connection, user: UserId, limits: &OwnLimits) -> Result<Option<User>> {
    conn.prepare_cached("UPDATE users SET limits = ?2 WHERE id = ?1")?
        .execute(params![user.as_bytes(), limits_text(limits)?])?;
    revision::bump(conn)?;
    one(conn, user)
}

fn limits_text(limits: &OwnLimits) -> Result<String> {
    serde_json::to_string(limits).map_err(|_| corrupt("limits"))
}

fn limits_of(row: &Row<'_>, at: usize) -> Result<OwnLimits> {
    let text = row.get_ref(at)?.as_str().map_err(|_| corrupt("limits"))?;
    serde_json::from_str(text).map_err(|_| corrupt("limits"))
}

fn share_of(row: &Row<'_>, at: usize) -> Result<Share> {
    let share = row.get_ref(at)?.as_str().ok().and_then(Share::named);
    share.ok_or_else(|| corrupt("a share"))
}

fn user_of(row: &Row<'_>) -> Result<User> {
    let role = row.get_ref(2)?.as_str().ok().and_then(Role::named);
    let disabled: Option<i64> = row.get(4)?;
    Ok(User {
        id: UserId::from_bytes(row.get(0)?),
        name: row.get(1)?,
        role: role.ok_or_else(|| corrupt("a role"))?,
        created_at: timestamp(row.get(3)?)?,
        disabled_at: disabled.map(timestamp).transpose()?,
        limits: limits_of(row, 5)?,
    })
}

fn key_of(row: &Row<'_>) -> Result<UserKey> {
    let text = |at: usize| -> Result<String> { Ok(row.get(at)?) };
    let time = |at: usize| -> Result<Option<Timestamp>> {
        row.get::<_, Option<i64>>(at)?.map(timestamp).transpose()
    };
    let patterns =
        |at: usize| -> Result<Vec<String>> { Ok(text(at)?.lines().map(str::to_owned).collect()) };
    Ok(UserKey {
        id: text(0)?.parse().map_err(|_| corrupt("the id of a key"))?,
        user: UserId::from_bytes(row.get(1)?),
        name: text(2)?,
        secret: TokenHash(row.get(3)?),
        scopes: text(4)?.parse().map_err(|_| corrupt("the scopes of a key"))?,
        agents: patterns(5)?,
        models: patterns(6)?,
        created_at: timestamp(row.get(7)?)?,
        expires_at: time(8)?,
        revoked_at: time(9)?,
        last_used_at: time(10)?,
        limits: limits_of(row, 11)?,
        device: row.get(12)?,
    })
}
