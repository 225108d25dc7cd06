//! Lineage: one edge per import, fork or handoff, and the trees they form.

use std::collections::{BTreeMap, HashMap};

use bowline_sbp::id::{ExportId, SessionId, UserId};
use serde_json::value::RawValue;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::{Connection, Params};
use super::rows::{self, millis};
use super::text::{self, stored};
use crate::family_walk::FamilyWalk;
use crate::{Edge, EdgeKind, Family, Member, Tokens};

/// `user`: whose session the edge leads to.
pub(super) async fn add(tx: &Connection, edge: &Edge, user: UserId) -> Attempt<()> {
    tx.execute(
        "INSERT INTO edges (kind, origin, session, export_id, detail, created_at, user_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            &edge.kind.as_str(),
            &stored(&edge.origin),
            &stored(&edge.session),
            &edge.export_id.map(|export| export.0),
            &stored(&edge.detail),
            &millis(edge.at),
            &user.0,
        ],
    )
    .await
    .map(drop)
}

/// Removes labels, messages and reasons of a deleted session; its edges are kept.
pub(super) async fn forget_words(tx: &Connection, session: SessionId) -> Attempt<()> {
    let session = session.to_string();
    let sql = "SELECT number, detail FROM edges WHERE origin = $1 OR session = $1
               ORDER BY number FOR UPDATE";
    for row in tx.query(sql, &[&session]).await? {
        // Not by the database, whose JSON cannot hold every text.
        let Some(detail) = without_words(row.try_get(1)?) else { continue };
        let update = "UPDATE edges SET detail = $2 WHERE number = $1";
        tx.execute(update, &[&row.try_get::<_, i64>(0)?, &detail]).await?;
    }
    Ok(())
}

/// The detail of an edge without what somebody said; none if nothing is to be changed.
fn without_words(detail: &str) -> Option<String> {
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(detail).ok()?;
    let before = fields.len();
    fields.retain(|name, _| !["label", "handoff_message", "reason"].contains(&&**name));
    (fields.len() < before).then(|| serde_json::to_string(&fields).ok()).flatten()
}

/// The edge that created a session.
pub(super) async fn birth(db: &Connection, session: SessionId) -> Attempt<Option<Edge>> {
    let rest = "WHERE session = $1 ORDER BY number LIMIT 1";
    let found = select(db, rest, &[&session.to_string()]).await?;
    Ok(found.into_iter().next().map(|(_, edge)| edge))
}

/// The lineage tree of the session: its nearest relatives, at most `most`. Only edges that lead to
/// sessions of that user are followed. Reads a generation at a time.
pub(super) async fn family(
    db: &Connection,
    session: &str,
    user: UserId,
    most: u32,
) -> Attempt<Family> {
    let mut walk = FamilyWalk::new(session.to_owned(), most);
    loop {
        let generation: Vec<_> = std::iter::from_fn(|| walk.next()).collect();
        if generation.is_empty() {
            break;
        }
        let mut near = near(db, &generation, user, walk.children_wanted()).await?;
        for member in generation {
            let edges = near.remove(&member).unwrap_or_default();
            walk.visited(&member, edges);
        }
    }
    let (edges, cut, members) = walk.end();
    Ok(Family { edges, cut, members: spent_in(db, members, user).await? })
}

/// The edges of each of these sessions: that which created it, and up to `children` that lead from it.
async fn near(
    db: &Connection,
    sessions: &[String],
    user: UserId,
    children: i64,
) -> Attempt<HashMap<String, Vec<(i64, Edge)>>> {
    let names: Vec<_> = sessions.iter().map(|session| stored(session)).collect();
    let sql = format!(
        "SELECT {COLUMNS}, of.session FROM unnest($1::text[]) AS of (session)
         CROSS JOIN LATERAL (
             (SELECT * FROM edges WHERE session = of.session COLLATE \"C\" AND user_id = $2)
             UNION ALL
             (SELECT * FROM edges WHERE origin = of.session COLLATE \"C\" AND user_id = $2
              ORDER BY number LIMIT $3)) e"
    );
    let mut near: HashMap<_, Vec<_>> = HashMap::new();
    for row in db.query(&sql, &[&names, &user.0, &children]).await? {
        near.entry(text::read(row.try_get(7)?)).or_default().push(edge_of(&row)?);
    }
    Ok(near)
}

/// Sessions and their costs, where they are stored here and that user's.
async fn spent_in(db: &Connection, sessions: Vec<String>, user: UserId) -> Attempt<Vec<Member>> {
    let id = |session: &String| session.parse::<SessionId>().ok().map(|id| id.0);
    let ids: Vec<Uuid> = sessions.iter().filter_map(id).collect();
    let sql = "SELECT id, spent_usd, prompt_tokens, completion_tokens FROM sessions
               WHERE id = ANY ($1) AND user_id = $2";
    let mut spent = HashMap::new();
    for row in db.query(sql, &[&ids, &user.0]).await? {
        let tokens = Tokens {
            prompt: row.try_get::<_, i64>(2)? as u64,
            completion: row.try_get::<_, i64>(3)? as u64,
        };
        spent.insert(row.try_get::<_, Uuid>(0)?, (row.try_get::<_, f64>(1)?, tokens));
    }
    let member = |session: String| {
        let spent = id(&session).and_then(|id| spent.get(&id).copied());
        Member { session, spent }
    };
    Ok(sessions.into_iter().map(member).collect())
}

const COLUMNS: &str = "e.number, e.kind, e.origin, e.session, e.export_id, e.detail, e.created_at";

async fn select(db: &Connection, rest: &str, params: Params<'_>) -> Attempt<Vec<(i64, Edge)>> {
    let sql = format!("SELECT {COLUMNS} FROM edges e {rest}");
    db.query(&sql, params).await?.iter().map(edge_of).collect()
}

fn edge_of(row: &Row) -> Attempt<(i64, Edge)> {
    let kind = EdgeKind::named(row.try_get(1)?);
    let edge = Edge {
        kind: kind.ok_or_else(|| rows::corrupt("an edge of an unknown kind"))?,
        origin: text::read(row.try_get(2)?),
        session: text::read(row.try_get(3)?),
        export_id: row.try_get::<_, Option<Uuid>>(4)?.map(ExportId),
        detail: text::read(row.try_get(5)?),
        at: rows::timestamp(row.try_get(6)?)?,
    };
    Ok((row.try_get(0)?, edge))
}
