//! Memories of agents, with full-text search.
//!
//! Apart from the index of words: an agent has at most some thousand memories, so those that match
//! are found and ranked by reading the words of all of them. The words are in the memory's row, and
//! go with it.

use bowline_sbp::cid::Cid;
use bowline_sbp::id::{MemoryId, SessionId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::{Connection, Params};
use super::rows::{self, millis};
use super::text::stored;
use super::words::words_of;
use super::{Postgres, locks, phrases};
use crate::memory::MOST;
use crate::{Error, Memories, Memory, MemoryKind, MemoryOwner, NewMemory, Result, TurnMemories};

#[async_trait::async_trait]
impl Memories for Postgres {
    async fn remember(
        &self,
        agent: MemoryOwner,
        memories: Vec<NewMemory>,
        instead: bool,
    ) -> Result<Vec<Memory>> {
        let (agent, memories) = (&agent, &memories);
        self.pool
            .write(move |tx| async move {
                match instead {
                    true => replace(&tx, agent, memories).await,
                    false => remember(&tx, agent, memories).await,
                }
            })
            .await
    }

    async fn memories(
        &self,
        agent: MemoryOwner,
        before: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Memory>> {
        let agent = &agent;
        self.pool.read(move |db| async move { list(&db, agent, before, limit).await }).await
    }

    async fn recall(
        &self,
        agent: MemoryOwner,
        words: Vec<String>,
        limit: u32,
    ) -> Result<Vec<Memory>> {
        let (agent, words) = (&agent, &words);
        self.pool.read(move |db| async move { recall(&db, agent, words, limit).await }).await
    }

    async fn memories_for_turn(
        &self,
        agent: MemoryOwner,
        words: Vec<String>,
        limit: u32,
    ) -> Result<TurnMemories> {
        let (agent, words) = (&agent, &words);
        if !self.rememberers.has(agent).await? {
            return Ok(TurnMemories::default());
        }
        self.pool.snapshot(move |db| async move { for_turn(&db, agent, words, limit).await }).await
    }

    async fn forget(&self, agent: MemoryOwner, memory: Option<MemoryId>) -> Result<u64> {
        let agent = &agent;
        self.pool.write(move |tx| async move { forget(&tx, agent, memory).await }).await
    }
}

/// The columns of memories to be stored.
struct Columns {
    ids: Vec<Uuid>,
    kinds: Vec<&'static str>,
    texts: Vec<String>,
    hashes: Vec<[u8; 32]>,
    sessions: Vec<Option<Uuid>>,
    times: Vec<i64>,
    words: Vec<String>,
}

impl Columns {
    fn of(memories: &[NewMemory]) -> Self {
        let each = memories.iter();
        Self {
            ids: each.clone().map(|memory| memory.id.0).collect(),
            kinds: each.clone().map(|memory| memory.kind.as_str()).collect(),
            texts: each.clone().map(|memory| stored(&memory.text).into_owned()).collect(),
            hashes: each.clone().map(|memory| hash_of(&memory.text)).collect(),
            sessions: each.clone().map(|memory| memory.session_id.map(|id| id.0)).collect(),
            times: each.clone().map(|memory| millis(memory.at)).collect(),
            words: each.map(|memory| words_of(&memory.text)).collect(),
        }
    }

    fn hashes(&self) -> Vec<&[u8]> {
        self.hashes.iter().map(<[u8; 32]>::as_slice).collect()
    }
}

/// By which a memory is the same one: its text may be longer than an index takes.
fn hash_of(text: &str) -> [u8; 32] {
    *Cid::of_bytes(text.as_bytes()).as_bytes()
}

/// Adds memories. Checks the limit before it writes: if not all fit, none is added.
pub(super) async fn remember(
    tx: &Connection,
    of: &MemoryOwner,
    memories: &[NewMemory],
) -> Attempt<Vec<Memory>> {
    if memories.is_empty() {
        return Ok(Vec::new());
    }
    let new = Columns::of(memories);
    count_room(tx, of, &new).await?;
    add(tx, of, &new).await
}

/// Whether those that the agent does not have yet fit.
pub(super) async fn check_room(
    tx: &Connection,
    of: &MemoryOwner,
    memories: &[NewMemory],
) -> Attempt<()> {
    match memories.is_empty() {
        true => Ok(()),
        false => count_room(tx, of, &Columns::of(memories)).await,
    }
}

async fn count_room(tx: &Connection, of: &MemoryOwner, new: &Columns) -> Attempt<()> {
    // One at a time, so that they can be counted.
    locks::memories(tx, of.user.0, of.agent.as_str()).await?;
    let (agent, user) = (of.agent.as_str(), of.user.0);
    let row = tx
        .query_one(
            "SELECT (SELECT count(*) FROM memories WHERE user_id = $1 AND agent_id = $2),
                    (SELECT count(*) FROM unnest($3::text[], $4::bytea[]) AS n (kind, text_hash)
                     WHERE NOT EXISTS (SELECT 1 FROM memories m
                         WHERE m.user_id = $1 AND m.agent_id = $2 AND m.kind = n.kind
                           AND m.text_hash = n.text_hash))",
            &[&user, &agent, &new.kinds, &new.hashes()],
        )
        .await?;
    let (known, to_come): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    // One that has more than the limit, from a copied database, keeps them.
    match to_come > (i64::from(MOST) - known).max(0) {
        true => Err(Error::MemoryFull(MOST).into()),
        false => Ok(()),
    }
}

/// Replaces all memories of the agent.
async fn replace(
    tx: &Connection,
    of: &MemoryOwner,
    memories: &[NewMemory],
) -> Attempt<Vec<Memory>> {
    if memories.len() > MOST as usize {
        return Err(Error::MemoryFull(MOST).into());
    }
    locks::memories(tx, of.user.0, of.agent.as_str()).await?;
    forget(tx, of, None).await?;
    add(tx, of, &Columns::of(memories)).await
}

/// Adds those that are not there yet, and returns all.
async fn add(tx: &Connection, of: &MemoryOwner, new: &Columns) -> Attempt<Vec<Memory>> {
    let (agent, user) = (of.agent.as_str(), of.user.0);
    tx.execute(
        "INSERT INTO memories
             (user_id, agent_id, id, kind, text, text_hash, session_id, created_at, words)
         SELECT $1, $2, id, kind, text, text_hash, session_id, created_at,
                array_to_tsvector(string_to_array(words, ' '))
         FROM unnest($3::uuid[], $4::text[], $5::text[], $6::bytea[], $7::uuid[], $8::bigint[],
                     $9::text[]) WITH ORDINALITY
              AS n (id, kind, text, text_hash, session_id, created_at, words, nth)
         ORDER BY nth
         ON CONFLICT (user_id, agent_id, kind, text_hash) DO NOTHING",
        &[
            &user,
            &agent,
            &new.ids,
            &new.kinds,
            &new.texts,
            &new.hashes(),
            &new.sessions,
            &new.times,
            &new.words,
        ],
    )
    .await?;
    let rest = "JOIN unnest($3::text[], $4::bytea[]) WITH ORDINALITY AS n (kind, text_hash, nth)
                    ON n.kind = m.kind AND n.text_hash = m.text_hash
                WHERE m.user_id = $1 AND m.agent_id = $2 ORDER BY n.nth";
    select(tx, rest, &[&user, &agent, &new.kinds, &new.hashes()]).await
}

async fn list(
    db: &Connection,
    of: &MemoryOwner,
    before: Option<MemoryId>,
    limit: u32,
) -> Attempt<Vec<Memory>> {
    let rest = "WHERE m.user_id = $1 AND m.agent_id = $2 AND ($3::uuid IS NULL OR m.number <
                    (SELECT b.number FROM memories b WHERE b.id = $3 AND b.user_id = $1))
                ORDER BY m.number DESC LIMIT $4";
    let before = before.map(|id| id.0);
    select(db, rest, &[&of.user.0, &of.agent.as_str(), &before, &i64::from(limit)]).await
}

/// Those that have any of the words, best first: by BM25 among the memories of this agent, where
/// a word counts once for each memory.
async fn recall(
    db: &Connection,
    of: &MemoryOwner,
    words: &[String],
    limit: u32,
) -> Attempt<Vec<Memory>> {
    // What was given as one word may be several, all of which are needed.
    let queries: Vec<String> = words
        .iter()
        .map(|word| {
            let words = phrases::words(word).map(|word| format!("'{}'", word.folded));
            words.collect::<Vec<_>>().join(" & ")
        })
        .filter(|query| !query.is_empty())
        .collect();
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let rest = "JOIN (
            WITH mine AS MATERIALIZED (
                SELECT number, words, length(words)::float8 AS length FROM memories
                WHERE user_id = $1 AND agent_id = $2),
            whole AS (
                SELECT count(*)::float8 AS n, greatest(avg(length), 1) AS mean FROM mine),
            word AS (
                SELECT q.query, ln(1 + (w.n - c.n + 0.5) / (c.n + 0.5)) AS weight
                FROM (SELECT DISTINCT text::tsquery AS query FROM unnest($3::text[]) AS t (text)) q
                CROSS JOIN whole w
                CROSS JOIN LATERAL (
                    SELECT count(*)::float8 AS n FROM mine WHERE words @@ q.query) c)
            SELECT d.number,
                   sum(q.weight * 2.2 / (1 + 1.2 * (0.25 + 0.75 * d.length / w.mean))) AS score
            FROM mine d JOIN word q ON d.words @@ q.query CROSS JOIN whole w
            GROUP BY d.number ORDER BY score DESC, d.number LIMIT $4) best
        ON best.number = m.number ORDER BY best.score DESC, m.number";
    select(db, rest, &[&of.user.0, &of.agent.as_str(), &queries, &i64::from(limit)]).await
}

/// The memories for one turn.
async fn for_turn(
    db: &Connection,
    of: &MemoryOwner,
    words: &[String],
    limit: u32,
) -> Attempt<TurnMemories> {
    let rest = "WHERE m.user_id = $1 AND m.agent_id = $2 AND m.kind = $3
                ORDER BY m.number LIMIT $4";
    let kind = MemoryKind::Procedural.as_str();
    let params = [&of.user.0 as _, &of.agent.as_str() as _, &kind as _, &i64::from(limit) as _];
    Ok(TurnMemories {
        rules: select(db, rest, &params).await?,
        matching: recall(db, of, words, limit).await?,
        newest: list(db, of, None, limit).await?,
    })
}

async fn forget(tx: &Connection, of: &MemoryOwner, memory: Option<MemoryId>) -> Attempt<u64> {
    tx.execute(
        "DELETE FROM memories WHERE user_id = $1 AND agent_id = $2 AND ($3::uuid IS NULL OR id = $3)",
        &[&of.user.0, &of.agent.as_str(), &memory.map(|id| id.0)],
    )
    .await
}

async fn select(db: &Connection, rest: &str, params: Params<'_>) -> Attempt<Vec<Memory>> {
    let sql =
        format!("SELECT m.id, m.kind, m.text, m.session_id, m.created_at FROM memories m {rest}");
    db.query(&sql, params).await?.iter().map(memory_of).collect()
}

fn memory_of(row: &Row) -> Attempt<Memory> {
    let kind = MemoryKind::named(rows::column(row, "kind")?);
    Ok(Memory {
        id: MemoryId::from_bytes(rows::id(row, "id")?),
        kind: kind.ok_or_else(|| rows::corrupt("a memory of an unknown kind"))?,
        text: rows::told(row, "text")?,
        session_id: rows::some_id(row, "session_id")?.map(SessionId::from_bytes),
        created_at: rows::time(row, "created_at")?,
    })
}
