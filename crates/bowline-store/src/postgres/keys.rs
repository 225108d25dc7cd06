//! Idempotency keys of requests that create a session with a history (G3).

use bowline_sbp::id::SessionId;
use bowline_sbp::session::IdempotencyKey;
use jiff::Timestamp;

use super::error::{Attempt, Fault};
use super::pool::Connection;
use super::rows::millis;
use super::sessions::{self, Known};
use super::text::stored;

/// Takes the key for a new session, before anything else is written: of several requests under one
/// key the others wait here until the first is committed, and then find what it has stored. Returns
/// what is stored for the key if it was taken before; an error if it was another request.
pub(super) async fn claim(
    tx: &Connection,
    key: &IdempotencyKey,
    session: SessionId,
    at: Timestamp,
) -> Attempt<Option<Known>> {
    let claimed = tx
        .execute(
            "INSERT INTO keys (scope, key, body_hash, session, created_at)
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (scope, key) DO NOTHING",
            &[
                &stored(&key.scope),
                &stored(&key.key),
                &key.body_hash.as_slice(),
                &session.0,
                &millis(at),
            ],
        )
        .await?;
    if claimed == 1 {
        return Ok(None);
    }
    // It may have been deleted since: then the key is free.
    Ok(Some(sessions::known_key(tx, key).await?.ok_or(Fault::Changed)?))
}

/// Stores the result of a request under the key that it has claimed.
pub(super) async fn keep_result(
    tx: &Connection,
    key: &IdempotencyKey,
    result: &str,
) -> Attempt<()> {
    let sql = "UPDATE keys SET result = $3 WHERE scope = $1 AND key = $2";
    tx.execute(sql, &[&stored(&key.scope), &stored(&key.key), &stored(result)]).await.map(drop)
}
