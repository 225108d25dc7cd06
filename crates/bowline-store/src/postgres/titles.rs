//! Which sessions a text names.

use bowline_sbp::id::{SessionId, UserId};

use super::error::Attempt;
use super::pool::Connection;
use super::rows::{self, id, select_sessions, some_told, uuid};
use super::sessions;
use crate::Session;
use crate::naming::{MOST_NAMED, Matches, folded, ids_with_prefix};

/// The sessions that a text names, newest first: by the whole id, else by the beginning of the id,
/// else by the whole title, else by its beginning. Upper and lower case are the same.
pub(super) async fn named(c: &Connection, user: UserId, text: &str) -> Attempt<Vec<Session>> {
    if let Ok(id) = text.parse::<SessionId>() {
        return match rows::session(c, id).await? {
            Some(session) if sessions::sees(c, id, session.user, user).await? => Ok(vec![session]),
            _ => Ok(Vec::new()),
        };
    }
    if let Some((first, last)) = ids_with_prefix(text) {
        let sql = select_sessions!(
            "WHERE s.id BETWEEN $1 AND $2 AND (s.user_id = $4 OR EXISTS
             (SELECT 1 FROM shares h WHERE h.session = s.id AND h.user_id = $4))
             ORDER BY s.number DESC LIMIT $3"
        );
        let (first, last) = (uuid(first.as_bytes()), uuid(last.as_bytes()));
        let user = uuid(user.as_bytes());
        let found = rows::sessions(c, sql, &[&first, &last, &(MOST_NAMED as i64), &user]).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let mut found = Vec::new();
    for id in titled(c, user, text).await? {
        found.push(rows::existing(c, id).await?);
    }
    Ok(found)
}

/// Sessions whose title is that text; if there is none, whose title begins with it. Reads all
/// titles: an index would cost every new session, and case is folded by Rust's rules.
async fn titled(c: &Connection, user: UserId, text: &str) -> Attempt<Vec<SessionId>> {
    let wanted = folded(text);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT id, coalesce(title, auto_title) AS title FROM sessions s
               WHERE (title IS NOT NULL OR auto_title IS NOT NULL) AND (user_id = $1 OR EXISTS
                   (SELECT 1 FROM shares h WHERE h.session = s.id AND h.user_id = $1))
               ORDER BY number DESC";
    let mut matches = Matches::new(wanted);
    for row in c.query(sql, &[&uuid(user.as_bytes())]).await? {
        let title = some_told(&row, "title")?.unwrap_or_default();
        matches.see(&title, SessionId::from_bytes(id(&row, "id")?));
    }
    Ok(matches.best())
}
