//! Titles of sessions, and which sessions a text names.

use std::sync::Arc;

use bowline_sbp::id::{SessionId, UserId};
use bowline_sbp::title::{self, Titles};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, Key, select_sessions};
use super::{history, users};
use crate::naming::{MOST_NAMED, Matches, folded, ids_with_prefix};
use crate::{Error, Result, Session};

/// How many of the first entries a migration looks at, and how many at once.
const LOOKED_AT: u64 = 64;
const PAGE: u32 = 4;

/// Writes the titles of a session that is created by an import, fork or handoff. Those of a live
/// session are written with its head.
pub(super) fn write(conn: &Connection, key: Key, titles: &Titles) -> Result<()> {
    conn.prepare_cached("UPDATE sessions SET title = ?2, auto_title = ?3 WHERE key = ?1")?
        .execute(params![key, titles.given.as_deref(), titles.automatic.as_deref()])?;
    Ok(())
}

/// The sessions that a text names, newest first: by the whole id, else by the beginning of the id,
/// else by the whole title, else by its beginning. Upper and lower case are the same.
pub(super) fn named(conn: &Connection, user: UserId, text: &str) -> Result<Vec<Session>> {
    if let Ok(id) = text.parse::<SessionId>() {
        return match rows::session(conn, id)? {
            Some((key, session)) if users::sees(conn, key, session.user, user)? => {
                Ok(vec![session])
            }
            _ => Ok(Vec::new()),
        };
    }
    if let Some((first, last)) = ids_with_prefix(text) {
        let found = rows::sessions(
            conn,
            select_sessions!(
                "WHERE id BETWEEN ?1 AND ?2 AND (user = ?4 OR EXISTS
                 (SELECT 1 FROM shares WHERE shares.session = key AND shares.user = ?4))
                 ORDER BY key DESC LIMIT ?3"
            ),
            params![first.as_bytes(), last.as_bytes(), MOST_NAMED as i64, user.as_bytes()],
        )?;
        if !found.is_empty() {
            return Ok(found.into_iter().map(|(_, session)| session).collect());
        }
    }
    let keys = titled(conn, user, text)?;
    keys.into_iter().map(|key| rows::with_key(conn, key)).collect()
}

/// Sessions whose title is that text; if there is none, whose title begins with it. Reads all
/// titles: an index would cost every new session, and SQLite folds the case of ASCII alone.
fn titled(conn: &Connection, user: UserId, text: &str) -> Result<Vec<Key>> {
    let wanted = folded(text);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = conn.prepare_cached(
        "SELECT key, coalesce(title, auto_title) FROM sessions
         WHERE (title IS NOT NULL OR auto_title IS NOT NULL) AND (user = ?1 OR EXISTS
             (SELECT 1 FROM shares WHERE shares.session = key AND shares.user = ?1))
         ORDER BY key DESC",
    )?;
    let mut rows = statement.query([user.as_bytes()])?;
    let mut matches = Matches::new(wanted);
    while let Some(row) = rows.next()? {
        matches.see(row.get_ref(1)?.as_str().unwrap_or_default(), row.get(0)?);
    }
    Ok(matches.best())
}

/// Gives titles to the sessions of an older schema: the label of their import or fork, and the
/// first words of the user. A log that cannot be read does not keep the others from migrating.
pub(super) fn give_to_all(conn: &Connection) -> Result<()> {
    let mut statement = conn.prepare("SELECT key, id FROM sessions WHERE length(id) = 16")?;
    let ids = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, [u8; 16]>(1)?)))?;
    let ids: Vec<(Key, [u8; 16])> = ids.collect::<Result<_, _>>()?;
    for (key, id) in ids {
        let id = SessionId::from_bytes(id);
        let automatic = match first_words(conn, id) {
            Err(Error::Corrupt(_)) => None,
            found => found?,
        };
        let titles = Titles { given: label(conn, id)?, automatic };
        if titles != Titles::default() {
            write(conn, key, &titles)?;
        }
    }
    Ok(())
}

fn label(conn: &Connection, id: SessionId) -> Result<Option<Arc<str>>> {
    let label: Option<Option<String>> = conn
        .prepare_cached(
            "SELECT json_extract(detail, '$.label') FROM edges WHERE session = ?1
             ORDER BY number LIMIT 1",
        )?
        .query_row([id.to_string()], |row| row.get(0))
        .optional()?;
    Ok(label.flatten().and_then(|label| title::given(&label).ok().flatten()))
}

fn first_words(conn: &Connection, id: SessionId) -> Result<Option<Arc<str>>> {
    let mut titles = Titles::default();
    let mut after = 0;
    while titles.automatic.is_none() && after < LOOKED_AT {
        let page = history::after(conn, id, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        page.iter().for_each(|entry| titles.see(entry.kind, &entry.message));
    }
    Ok(titles.automatic)
}
