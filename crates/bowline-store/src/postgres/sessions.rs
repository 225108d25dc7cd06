//! Creates, finds and deletes sessions; idempotency keys.

use std::sync::Arc;

use bowline_sbp::access::OWNER;
use bowline_sbp::id::{SessionId, TurnId, UserId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::{AttachmentRow, Commit, CommitError, KnownKey, Loaded, TokenHash};
use jiff::Timestamp;
use uuid::Uuid;

use super::error::{Attempt, Fault};
use super::pool::Connection;
use super::rows::{self, column, id, millis, select_sessions, some_id, some_told, uuid};
use super::{Postgres, blobs, exports, lineage, load, text, titles, trunks};
use crate::{Created, Error, IdempotencyKey, NewSession, Page, Result, Session, Sessions};

#[async_trait::async_trait]
impl Sessions for Postgres {
    async fn create_session(
        &self,
        session: NewSession,
        key: Option<IdempotencyKey>,
    ) -> Result<Created> {
        let (session, key) = (&session, key.as_ref());
        self.pool.write(move |c| async move { create(&c, session, key).await }).await
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        self.pool.read(move |c| async move { rows::session(&c, id).await }).await
    }

    async fn session_by_token(&self, token: TokenHash) -> Result<Option<Session>> {
        let find = move |c: Arc<Connection>| async move {
            let sql = select_sessions!("WHERE s.token_hash = $1 AND s.token_listed");
            Ok(rows::sessions(&c, sql, &[&&token.0[..]]).await?.pop())
        };
        self.pool.read(find).await
    }

    async fn sessions(&self, page: Page) -> Result<Vec<Session>> {
        self.pool.snapshot(move |c| async move { list(&c, &page).await }).await
    }

    async fn named(&self, user: UserId, text: String) -> Result<Vec<Session>> {
        let text = &text;
        self.pool.snapshot(move |c| async move { titles::named(&c, user, text).await }).await
    }

    async fn attached(&self, id: SessionId) -> Result<Vec<AttachmentRow>> {
        self.pool.read(move |c| async move { load::attachments(&c, id).await }).await
    }

    async fn known(&self, key: IdempotencyKey) -> Result<Option<(SessionId, KnownKey)>> {
        let key = &key;
        self.pool.read(move |c| async move { known(&c, key).await }).await
    }

    async fn load(&self, id: SessionId) -> Result<Option<Loaded>> {
        self.pool.snapshot(move |c| async move { load::load(&c, id).await }).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<(), CommitError> {
        self.committer.commit(commit).await
    }
}

async fn create(
    c: &Connection,
    new: &NewSession,
    key: Option<&IdempotencyKey>,
) -> Attempt<Created> {
    let created = Created { session: Session::made(new, Status::Idle), replayed: false };
    let Some(key) = key else {
        insert(c, new, Status::Idle).await?;
        return Ok(created);
    };
    if let Some(known) = known_key(c, key).await? {
        return Ok(Created { session: rows::existing(c, known.session).await?, replayed: true });
    }
    insert(c, new, Status::Idle).await?;
    remember_key(c, key, &Known { session: new.id, turn_id: None, result: None }, new.at).await?;
    Ok(created)
}

/// Creates a session; an error if its token belongs to another one.
pub(super) async fn insert(c: &Connection, new: &NewSession, status: Status) -> Attempt<()> {
    let inserted = c
        .execute(
            "INSERT INTO sessions (id, token_hash, token_listed, agent_id, status, metadata,
                                   created_at, updated_at, user_id)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8) ON CONFLICT DO NOTHING",
            &[
                &uuid(new.id.as_bytes()),
                &&new.token_hash.0[..],
                &new.listed,
                &new.agent_id.as_str(),
                &status.as_str(),
                &text::stored(&new.metadata),
                &millis(new.at),
                &uuid(new.user.as_bytes()),
            ],
        )
        .await?;
    // Session ids are random: a conflict means that the token exists.
    if inserted == 0 { Err(Error::TokenTaken.into()) } else { Ok(()) }
}

/// Whether a session of `owner` is that user's, or shared with it.
pub(super) async fn sees(
    c: &Connection,
    id: SessionId,
    owner: UserId,
    user: UserId,
) -> Attempt<bool> {
    let shared = "SELECT 1 FROM shares WHERE session = $1 AND user_id = $2";
    Ok(owner == user
        || c.query_opt(shared, &[&uuid(id.as_bytes()), &uuid(user.as_bytes())]).await?.is_some())
}

async fn list(c: &Connection, page: &Page) -> Attempt<Vec<Session>> {
    let before = match page.before {
        None => i64::MAX,
        // Where another user's session is in the list is nobody else's business.
        Some(id) => {
            let sql = "SELECT number, user_id FROM sessions WHERE id = $1";
            let row = c.query_opt(sql, &[&uuid(id.as_bytes())]).await?.ok_or(Error::NoSession)?;
            let owner = UserId::from_bytes(rows::id(&row, "user_id")?);
            if !sees(c, id, owner, page.user).await? {
                return Err(Error::NoSession.into());
            }
            column(&row, "number")?
        }
    };
    // Most sessions are the owner's: they are found in order. Those of others are few, by index.
    let sql = match page.user == OWNER {
        true => select_sessions!(
            "WHERE s.number < $1 AND ($2::text IS NULL OR s.status = $2) AND (s.user_id = $4
             OR EXISTS (SELECT 1 FROM shares h WHERE h.session = s.id AND h.user_id = $4))
             ORDER BY s.number DESC LIMIT $3"
        ),
        false => select_sessions!(
            "WHERE s.id IN (SELECT o.id FROM sessions o WHERE o.user_id = $4
                            UNION SELECT h.session FROM shares h WHERE h.user_id = $4)
             AND s.number < $1 AND ($2::text IS NULL OR s.status = $2)
             ORDER BY s.number DESC LIMIT $3"
        ),
    };
    let status = page.status.map(Status::as_str);
    let (limit, user) = (i64::from(page.limit), uuid(page.user.as_bytes()));
    rows::sessions(c, sql, &[&before, &status, &limit, &user]).await
}

/// Deletes a session and everything in it; forks keep the log entries they share.
pub(super) async fn forget(c: &Connection, id: SessionId) -> Attempt<()> {
    let key = uuid(id.as_bytes());
    for sql in [
        "DELETE FROM turns WHERE session = $1",
        "DELETE FROM keys WHERE session = $1",
        "DELETE FROM carried WHERE session = $1",
        "DELETE FROM instructions WHERE session = $1",
        "DELETE FROM surfaces WHERE session = $1",
        "DELETE FROM attachments WHERE session = $1",
        "DELETE FROM approvals WHERE session = $1",
        "DELETE FROM grants WHERE session = $1",
        "DELETE FROM shares WHERE session = $1",
        "DELETE FROM forwards WHERE session_id = $1",
    ] {
        c.execute(sql, &[&key]).await?;
    }
    exports::forget(c, id).await?;
    blobs::release(c, id).await?;
    lineage::forget_words(c, id).await?;
    trunks::leave(c, id).await
}

/// What is stored for an idempotency key.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) session: SessionId,
    pub(super) turn_id: Option<TurnId>,
    pub(super) result: Option<String>,
}

/// What is stored for this idempotency key; an error if it was another request (G3).
pub(super) async fn known_key(c: &Connection, key: &IdempotencyKey) -> Attempt<Option<Known>> {
    match known(c, key).await? {
        None => Ok(None),
        Some((_, known)) if !known.same_body => Err(Error::KeyReused.into()),
        Some((session, KnownKey { turn_id, result, .. })) => {
            Ok(Some(Known { session, turn_id, result }))
        }
    }
}

/// What is stored for an idempotency key, and the session it belongs to (G3).
async fn known(c: &Connection, key: &IdempotencyKey) -> Attempt<Option<(SessionId, KnownKey)>> {
    let sql = "SELECT body_hash, turn_id, result, session FROM keys WHERE scope = $1 AND key = $2";
    let found = c.query_opt(sql, &[&text::stored(&key.scope), &text::stored(&key.key)]).await?;
    let Some(row) = found else { return Ok(None) };
    let known = KnownKey {
        same_body: rows::hash(&row, "body_hash")? == key.body_hash,
        turn_id: some_id(&row, "turn_id")?.map(TurnId::from_bytes),
        result: some_told(&row, "result")?,
    };
    Ok(Some((SessionId::from_bytes(id(&row, "session")?), known)))
}

/// Stores an idempotency key. If another request stores it at the same time, the transaction is run
/// again and finds it.
pub(super) async fn remember_key(
    c: &Connection,
    key: &IdempotencyKey,
    known: &Known,
    at: Timestamp,
) -> Attempt<()> {
    let turn: Option<Uuid> = known.turn_id.as_ref().map(|turn| uuid(turn.as_bytes()));
    let inserted = c
        .execute(
            "INSERT INTO keys (scope, key, body_hash, session, turn_id, result, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
            &[
                &text::stored(&key.scope),
                &text::stored(&key.key),
                &&key.body_hash[..],
                &uuid(known.session.as_bytes()),
                &turn,
                &known.result.as_deref().map(text::stored),
                &millis(at),
            ],
        )
        .await?;
    if inserted == 0 { Err(Fault::Changed) } else { Ok(()) }
}
