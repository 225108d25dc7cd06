//! Full-text search in what users and agents said.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_sbp::id::{Seq, SessionId, UserId};
use uuid::Uuid;

use super::error::Attempt;
use super::phrases::{Phrase, has_all, phrases, snippet};
use super::pool::Connection;
use super::{Postgres, locks, rows, words};
use crate::words::{HITS_OF_ONE, LOOKED_AT};
use crate::{Hit, Result, Search};

#[async_trait::async_trait]
impl Search for Postgres {
    async fn index(&self, steps: u32) -> Result<bool> {
        let mut left = steps;
        loop {
            let mut logs =
                self.pool.read(move |db| async move { words::backlog(&db).await }).await?;
            if logs.is_empty() {
                return Ok(true);
            }
            while !logs.is_empty() {
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                let chosen = &logs;
                let step = move |tx: Arc<Connection>| async move {
                    let mine = locks::try_words(&tx).await?;
                    Ok(if mine { Some(words::index(&tx, chosen.clone()).await?) } else { None })
                };
                // Another replica does it, and goes on with it.
                let Some(rest) = self.pool.write(step).await? else { return Ok(false) };
                logs = rest;
            }
        }
    }

    async fn search(&self, user: UserId, words: Vec<String>, limit: u32) -> Result<Vec<Hit>> {
        let phrases = phrases(&words);
        if phrases.is_empty() {
            return Ok(Vec::new());
        }
        // A search of a large index takes long: one at a time, so that other reads go on.
        let _one = self.searching.lock().await;
        let phrases = &phrases;
        self.pool
            .snapshot(move |db| async move { search(&db, user, phrases, limit as usize).await })
            .await
    }
}

/// Messages that contain all phrases: the newest session first, the newest message first.
async fn search(
    db: &Connection,
    user: UserId,
    phrases: &[Phrase],
    limit: usize,
) -> Attempt<Vec<Hit>> {
    let mut owners = Owners { user, sessions: HashMap::new(), trunks: HashMap::new() };
    let mut count: HashMap<SessionId, usize> = HashMap::new();
    let mut hits = Vec::new();
    // The index finds each word; it does not know which of them are beside each other.
    let are_words = phrases.iter().all(|phrase| phrase.words.len() == 1);
    for row in matching(db, user, phrases).await? {
        if hits.len() >= limit {
            break;
        }
        let (log, seq): (Uuid, i64) = (row.try_get(0)?, row.try_get(1)?);
        let Some((session, title)) = owners.of(db, log, seq as Seq).await? else { continue };
        if count.get(&session).is_some_and(|count| *count >= HITS_OF_ONE) {
            continue;
        }
        let Some((role, text, created_at)) = words::read(db, log, seq).await? else { continue };
        if !are_words && !has_all(&text, phrases) {
            continue;
        }
        *count.entry(session).or_default() += 1;
        let snippet = snippet(&text, phrases);
        hits.push(Hit { session, title, seq: seq as Seq, role, created_at, snippet });
    }
    Ok(hits)
}

/// Log and position of the entries that have all words: those in logs of that user's, and in logs
/// that sessions which are shared with it have in them.
async fn matching(
    db: &Connection,
    user: UserId,
    phrases: &[Phrase],
) -> Attempt<Vec<tokio_postgres::Row>> {
    let query = phrases.iter().map(query).collect::<Vec<_>>().join(" & ");
    db.query(
        "WITH RECURSIVE shared (log) AS (
             SELECT session FROM shares WHERE user_id = $2
             UNION SELECT l.base FROM shared h JOIN (
                 SELECT id, base FROM sessions UNION ALL SELECT id, base FROM trunks) l
                 ON l.id = h.log
             WHERE l.base IS NOT NULL)
         SELECT log, seq FROM entry_words
         WHERE words @@ $1::text::tsquery
           AND (user_id = $2 OR log IN (SELECT log FROM shared))
         ORDER BY number DESC, seq DESC LIMIT $3",
        &[&query, &user.0, &(LOOKED_AT as i64)],
    )
    .await
}

/// The words of a phrase as a query of PostgreSQL's. They are letters and digits: quoted, nothing in
/// them is an operator.
fn query(phrase: &Phrase) -> String {
    let last = phrase.words.len() - 1;
    let words = phrase.words.iter().enumerate().map(|(nth, word)| {
        let star = if nth == last && phrase.is_prefix { ":*" } else { "" };
        format!("'{word}'{star}")
    });
    words.collect::<Vec<_>>().join(" & ")
}

/// A session and its title.
type Titled = (SessionId, Option<String>);

/// The sessions that hits belong to.
struct Owners {
    /// Only sessions that this user sees.
    user: UserId,
    /// By the id of the log; none: there is such a session, and the user does not see it.
    sessions: HashMap<Uuid, Option<Titled>>,
    /// Of a trunk: the sessions that share it, the oldest first, each up to a position.
    trunks: HashMap<Uuid, Vec<(Seq, Titled)>>,
}

impl Owners {
    /// The session to name for this entry. If that was deleted, the oldest that shares the entry.
    async fn of(&mut self, db: &Connection, log: Uuid, seq: Seq) -> Attempt<Option<Titled>> {
        if let Some(known) = self.sessions.get(&log) {
            return Ok(known.clone());
        }
        if !self.trunks.contains_key(&log) {
            let sql = "SELECT coalesce(s.title, s.auto_title) AS title, s.user_id = $2 OR EXISTS
                           (SELECT 1 FROM shares h WHERE h.session = $1 AND h.user_id = $2) AS seen
                       FROM sessions s WHERE s.id = $1";
            if let Some(row) = db.query_opt(sql, &[&log, &self.user.0]).await? {
                let title = (SessionId(log), rows::some_told(&row, "title")?);
                let seen = rows::column::<bool>(&row, "seen")?.then_some(title);
                self.sessions.insert(log, seen.clone());
                return Ok(seen);
            }
            self.trunks.insert(log, self.sharing(db, log).await?);
        }
        let sharing = &self.trunks[&log];
        let oldest = sharing.iter().find(|(up_to, _)| *up_to >= seq);
        Ok(oldest.map(|(_, titled)| titled.clone()))
    }

    /// The sessions of this user that share entries of a trunk.
    async fn sharing(&self, db: &Connection, trunk: Uuid) -> Attempt<Vec<(Seq, Titled)>> {
        let sql = "
            WITH RECURSIVE logs (id, base, base_seq) AS NOT MATERIALIZED (
                SELECT id, base, base_seq FROM sessions
                UNION ALL SELECT id, base, base_seq FROM trunks),
            heirs (id, up_to) AS (
                SELECT id, base_seq FROM logs WHERE base = $1
                UNION SELECT l.id, h.up_to FROM heirs h JOIN logs l ON l.base = h.id)
            SELECT h.up_to, s.id, coalesce(s.title, s.auto_title) AS title
            FROM heirs h JOIN sessions s ON s.id = h.id
            WHERE s.user_id = $2 OR EXISTS
                (SELECT 1 FROM shares x WHERE x.session = s.id AND x.user_id = $2)
            ORDER BY s.number";
        let titled = |row: &tokio_postgres::Row| -> Attempt<(Seq, Titled)> {
            let id = SessionId(rows::column(row, "id")?);
            Ok((rows::number(row, "up_to")?, (id, rows::some_told(row, "title")?)))
        };
        db.query(sql, &[&trunk, &self.user.0]).await?.iter().map(titled).collect()
    }
}
