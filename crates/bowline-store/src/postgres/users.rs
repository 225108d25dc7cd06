//! Users, their keys, and shared sessions.

use std::sync::Arc;

use bowline_sbp::access::{OWNER, Role, Share};
use bowline_sbp::budget::OwnLimits;
use bowline_sbp::id::{SessionId, UserId};
use bowline_sbp::session::TokenHash;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::Postgres;
use super::error::Attempt;
use super::locks;
use super::pool::Connection;
use super::revision;
use super::rows::{self, corrupt, millis};
use super::text::stored;
use crate::user::{ENDED_KEYS, MOST_KEYS, MOST_USERS};
use crate::{CredentialId, Error, Result, SharedSession, User, UserKey, Users};

#[async_trait::async_trait]
impl Users for Postgres {
    async fn access_revision(&self) -> Result<u64> {
        self.pool.read(move |db| async move { revision::read(&db).await }).await
    }

    async fn add_user(&self, user: User) -> Result<()> {
        let user = &user;
        self.pool.write(move |tx| async move { add(&tx, user).await }).await
    }

    async fn users(&self) -> Result<Vec<User>> {
        self.pool.read(move |db| async move { list(&db).await }).await
    }

    async fn disable_user(&self, user: UserId, at: Option<Timestamp>) -> Result<Option<User>> {
        self.pool.write(move |tx| async move { disable(&tx, user, at).await }).await
    }

    async fn limit_user(&self, user: UserId, limits: OwnLimits) -> Result<Option<User>> {
        let limits = &limits;
        self.pool.write(move |tx| async move { limit(&tx, user, limits).await }).await
    }

    async fn add_key(&self, key: UserKey) -> Result<Option<CredentialId>> {
        let key = &key;
        self.pool.write(move |tx| async move { add_key(&tx, key).await }).await
    }

    async fn keys(&self, user: Option<UserId>) -> Result<Vec<UserKey>> {
        self.pool.read(move |db| async move { keys(&db, user).await }).await
    }

    async fn key(&self, id: CredentialId) -> Result<Option<(UserKey, User)>> {
        let id = &id;
        self.pool.read(move |db| async move { key(&db, id).await }).await
    }

    async fn key_of_device(&self, device: [u8; 32]) -> Result<Option<(UserKey, User)>> {
        let device = &device;
        self.pool.read(move |db| async move { key_of_device(&db, device).await }).await
    }

    async fn revoke_key(&self, id: CredentialId, at: Timestamp) -> Result<bool> {
        let id = &id;
        let revoke = move |tx: Arc<Connection>| async move {
            let revoked = revoke(&tx, id, at).await?;
            if revoked {
                revision::bump(&tx).await?;
            }
            Ok(revoked)
        };
        self.pool.write(revoke).await
    }

    async fn keys_used(&self, keys: Vec<(CredentialId, Timestamp)>) -> Result<()> {
        let keys = &keys;
        self.pool.write(move |tx| async move { used(&tx, keys).await }).await
    }

    async fn share(&self, session: SessionId, user: UserId, with: Option<Share>) -> Result<()> {
        self.pool.write(move |tx| async move { share(&tx, session, user, with).await }).await
    }

    async fn shares(&self, session: SessionId) -> Result<Vec<SharedSession>> {
        self.pool.read(move |db| async move { shares(&db, session).await }).await
    }

    async fn replace_token(
        &self,
        session: SessionId,
        before: u64,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<bool> {
        self.pool
            .write(move |tx| async move { replace_token(&tx, session, before, token, at).await })
            .await
    }

    async fn shared_with(&self, session: SessionId, user: UserId) -> Result<Option<Share>> {
        self.pool.read(move |db| async move { shared_with(&db, session, user).await }).await
    }
}

async fn add(tx: &Connection, user: &User) -> Attempt<()> {
    // One at a time, so that they can be counted.
    lock(tx, OWNER).await?;
    let known: i64 = tx.query_one("SELECT count(*) FROM users", &[]).await?.try_get(0)?;
    if known >= MOST_USERS {
        return Err(Error::TooMany("users", MOST_USERS as u32).into());
    }
    let added = tx
        .execute(
            "INSERT INTO users (id, name, folded_name, role, created_at, limits)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT DO NOTHING",
            &[
                &user.id.0,
                &stored(&user.name),
                &stored(&user.name.to_ascii_lowercase()),
                &user.role.as_str(),
                &millis(user.created_at),
                &limits_text(&user.limits)?,
            ],
        )
        .await?;
    if added == 1 { revision::bump(tx).await } else { Err(Error::NameTaken.into()) }
}

/// Locks a user's row until the end of the transaction.
async fn lock(tx: &Connection, user: UserId) -> Attempt<()> {
    tx.query_opt("SELECT 1 FROM users WHERE id = $1 FOR NO KEY UPDATE", &[&user.0]).await?;
    Ok(())
}

const USERS: &str = "SELECT id, name, role, created_at, disabled_at, limits FROM users";

/// All users, the owner first.
async fn list(db: &Connection) -> Attempt<Vec<User>> {
    let sql = format!("{USERS} ORDER BY created_at, name COLLATE \"C\"");
    db.query(&sql, &[]).await?.iter().map(user_of).collect()
}

/// Disables a user, or enables it again. The owner cannot be disabled.
async fn disable(tx: &Connection, user: UserId, at: Option<Timestamp>) -> Attempt<Option<User>> {
    if user != OWNER {
        let sql = "UPDATE users SET disabled_at = $2 WHERE id = $1";
        tx.execute(sql, &[&user.0, &at.map(millis)]).await?;
        revision::bump(tx).await?;
    }
    one(tx, user).await
}

async fn one(db: &Connection, user: UserId) -> Attempt<Option<User>> {
    let found = db.query_opt(&format!("{USERS} WHERE id = $1"), &[&user.0]).await?;
    found.as_ref().map(user_of).transpose()
}

/// Adds a key. Returns the key of the same device that it replaces.
pub(super) async fn add_key(tx: &Connection, key: &UserKey) -> Attempt<Option<CredentialId>> {
    let mut replaced = None;
    if let Some(device) = &key.device {
        // Of two that pair one device at once, the second replaces the first.
        locks::device(tx, device).await?;
        replaced = key_of_device(tx, device).await?.map(|(key, _)| key.id);
    }
    lock(tx, key.user).await?;
    let now = millis(key.created_at);
    let row = tx
        .query_one(
            "SELECT count(*) FROM user_keys WHERE user_id = $1 AND revoked_at IS NULL
         AND (expires_at IS NULL OR expires_at > $2) AND id IS DISTINCT FROM $3",
            &[&key.user.0, &now, &replaced.as_ref().map(CredentialId::as_str)],
        )
        .await?;
    let known: i64 = row.try_get(0)?;
    if known >= MOST_KEYS {
        return Err(Error::TooMany("keys", MOST_KEYS as u32).into());
    }
    if let Some(replaced) = &replaced {
        revoke(tx, replaced, key.created_at).await?;
    }
    tx.execute(
        "INSERT INTO user_keys (id, user_id, name, secret_hash, scopes, agents, models, created_at,
                                expires_at, limits, device)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        &[
            &key.id.as_str(),
            &key.user.0,
            &stored(&key.name),
            &key.secret.0.as_slice(),
            &key.scopes.to_string(),
            &stored(&key.agents.join("\n")),
            &stored(&key.models.join("\n")),
            &now,
            &key.expires_at.map(millis),
            &limits_text(&key.limits)?,
            &key.device.as_ref().map(<[u8; 32]>::as_slice),
        ],
    )
    .await?;
    // What ended long ago is of no use to anybody.
    tx.execute(
        "DELETE FROM user_keys WHERE id IN (
             SELECT id FROM user_keys WHERE user_id = $1 AND coalesce(revoked_at, expires_at) <= $3
             ORDER BY coalesce(revoked_at, expires_at) DESC OFFSET $2)",
        &[&key.user.0, &ENDED_KEYS, &now],
    )
    .await?;
    revision::bump(tx).await?;
    Ok(replaced)
}

const KEYS: &str = "SELECT k.id, k.user_id, k.name, k.secret_hash, k.scopes, k.agents, k.models, \
                    k.created_at, k.expires_at, k.revoked_at, k.last_used_at, k.limits, \
                    k.device FROM user_keys k";

/// The keys of a user, or of all, newest first.
async fn keys(db: &Connection, user: Option<UserId>) -> Attempt<Vec<UserKey>> {
    let sql = format!(
        "{KEYS} WHERE $1::uuid IS NULL OR k.user_id = $1
         ORDER BY k.created_at DESC, k.id COLLATE \"C\""
    );
    db.query(&sql, &[&user.map(|user| user.0)]).await?.iter().map(key_of).collect()
}

/// The key of that id, and its user.
async fn key(db: &Connection, id: &CredentialId) -> Attempt<Option<(UserKey, User)>> {
    let found = db.query_opt(&format!("{KEYS} WHERE k.id = $1"), &[&id.as_str()]).await?;
    with_user(db, found).await
}

/// The key of a device that is not revoked, and its user.
async fn key_of_device(db: &Connection, device: &[u8; 32]) -> Attempt<Option<(UserKey, User)>> {
    let sql = format!("{KEYS} WHERE k.device = $1 AND k.revoked_at IS NULL");
    with_user(db, db.query_opt(&sql, &[&device.as_slice()]).await?).await
}

async fn with_user(db: &Connection, row: Option<Row>) -> Attempt<Option<(UserKey, User)>> {
    let Some(key) = row.as_ref().map(key_of).transpose()? else { return Ok(None) };
    let user = one(db, key.user).await?;
    Ok(Some((key, user.ok_or_else(|| corrupt("a key of nobody"))?)))
}

/// Revokes a key. Whether there is one that was not revoked before.
async fn revoke(db: &Connection, id: &CredentialId, at: Timestamp) -> Attempt<bool> {
    let sql = "UPDATE user_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";
    Ok(db.execute(sql, &[&id.as_str(), &millis(at)]).await? > 0)
}

/// Keys were used at these times.
async fn used(db: &Connection, keys: &[(CredentialId, Timestamp)]) -> Attempt<()> {
    let (ids, times): (Vec<_>, Vec<_>) =
        keys.iter().map(|(id, at)| (id.as_str(), millis(*at))).unzip();
    // Rows are locked in one order, so that replicas do not wait for each other in a circle.
    db.execute(
        "UPDATE user_keys k SET last_used_at = greatest(coalesce(k.last_used_at, 0), u.at)
         FROM (SELECT k.id, max(u.at) AS at FROM (
                   SELECT id FROM user_keys WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE) k
               JOIN unnest($1::text[], $2::bigint[]) AS u (id, at) ON u.id = k.id
               GROUP BY k.id) u
         WHERE k.id = u.id",
        &[&ids, &times],
    )
    .await?;
    Ok(())
}

/// Shares a session with a user; `None`: no more.
async fn share(
    tx: &Connection,
    session: SessionId,
    user: UserId,
    share: Option<Share>,
) -> Attempt<()> {
    // Until the commit the session cannot be deleted, which would leave this row behind.
    tx.query_opt("SELECT 1 FROM sessions WHERE id = $1 FOR KEY SHARE", &[&session.0])
        .await?
        .ok_or(Error::NoSession)?;
    match share {
        Some(share) => {
            let sql = "INSERT INTO shares (session, user_id, share) VALUES ($1, $2, $3)
                       ON CONFLICT (session, user_id) DO UPDATE SET share = excluded.share";
            tx.execute(sql, &[&session.0, &user.0, &share.as_str()]).await?
        }
        None => {
            let sql = "DELETE FROM shares WHERE session = $1 AND user_id = $2";
            tx.execute(sql, &[&session.0, &user.0]).await?
        }
    };
    revision::bump(tx).await
}

/// With whom a session is shared.
async fn shares(db: &Connection, session: SessionId) -> Attempt<Vec<SharedSession>> {
    let sql = "SELECT user_id, share FROM shares WHERE session = $1 ORDER BY user_id";
    let mut shares = Vec::new();
    for row in db.query(sql, &[&session.0]).await? {
        let user = UserId(row.try_get(0)?);
        shares.push(SharedSession { session, user, share: share_of(&row)? });
    }
    Ok(shares)
}

/// How a session is shared with a user.
async fn shared_with(db: &Connection, session: SessionId, user: UserId) -> Attempt<Option<Share>> {
    let sql = "SELECT share FROM shares WHERE session = $1 AND user_id = $2";
    let found = db.query_opt(sql, &[&session.0, &user.0]).await?;
    found.map(|row| share_of(&row)).transpose()
}

/// Gives a user other limits of its own. Returns the user as it is now.
async fn limit(tx: &Connection, user: UserId, limits: &OwnLimits) -> Attempt<Option<User>> {
    let sql = "UPDATE users SET limits = $2 WHERE id = $1";
    tx.execute(sql, &[&user.0, &limits_text(limits)?]).await?;
    revision::bump(tx).await?;
    one(tx, user).await
}

/// Replaces a session's token. It contains its session's id, whatever the one before was: it needs no
/// index.
async fn replace_token(
    db: &Connection,
    id: SessionId,
    before: u64,
    token: TokenHash,
    at: Timestamp,
) -> Attempt<bool> {
    let sql = "UPDATE sessions SET token_hash = $3, token_number = $2 + 1, token_at = $4,
                   token_listed = false
               WHERE id = $1 AND token_number = $2";
    let params = [&id.0 as _, &(before as i64) as _, &token.0.as_slice() as _, &millis(at) as _];
    let replaced = db.execute(sql, &params).await? == 1;
    if replaced {
        revision::bump(db).await?;
    }
    Ok(replaced)
}

fn limits_text(limits: &OwnLimits) -> Result<String> {
    serde_json::to_string(limits).map_err(|_| corrupt("limits"))
}

fn limits_of(row: &Row) -> Attempt<OwnLimits> {
    let limits = serde_json::from_str(rows::column(row, "limits")?);
    Ok(limits.map_err(|_| corrupt("limits"))?)
}

fn share_of(row: &Row) -> Attempt<Share> {
    let share = Share::named(rows::column(row, "share")?);
    Ok(share.ok_or_else(|| corrupt("a share"))?)
}

fn user_of(row: &Row) -> Attempt<User> {
    let role = Role::named(rows::column(row, "role")?);
    Ok(User {
        id: UserId(rows::column(row, "id")?),
        name: rows::told(row, "name")?,
        role: role.ok_or_else(|| corrupt("a role"))?,
        created_at: rows::time(row, "created_at")?,
        disabled_at: rows::some_time(row, "disabled_at")?,
        limits: limits_of(row)?,
    })
}

fn key_of(row: &Row) -> Attempt<UserKey> {
    let patterns = |name: &str| -> Attempt<Vec<String>> {
        Ok(rows::told(row, name)?.lines().map(str::to_owned).collect())
    };
    Ok(UserKey {
        id: rows::parsed(row, "id", "the id of a key")?,
        user: UserId(rows::column(row, "user_id")?),
        name: rows::told(row, "name")?,
        secret: TokenHash(rows::hash(row, "secret_hash")?),
        scopes: rows::parsed(row, "scopes", "the scopes of a key")?,
        agents: patterns("agents")?,
        models: patterns("models")?,
        created_at: rows::time(row, "created_at")?,
        expires_at: rows::some_time(row, "expires_at")?,
        revoked_at: rows::some_time(row, "revoked_at")?,
        last_used_at: rows::some_time(row, "last_used_at")?,
        limits: limits_of(row)?,
        device: rows::some_hash(row, "device")?,
    })
}
