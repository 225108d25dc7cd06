//! Lineage: one edge per import, fork or handoff, and the trees they form.

use bowline_sbp::id::{ExportId, SessionId, UserId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::{self, millis};
use crate::family_walk::FamilyWalk;
use crate::{Edge, EdgeKind, Family, Member, Result, Tokens};

/// `user`: whose session the edge leads to.
pub(super) fn add(conn: &Connection, edge: &Edge, user: UserId) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO edges (kind, origin, session, export_id, detail, created_at, user)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        edge.kind.as_str(),
        edge.origin,
        edge.session,
        edge.export_id.as_ref().map(ExportId::as_bytes),
        edge.detail,
        millis(edge.at),
        user.as_bytes(),
    ])?;
    Ok(())
}

/// Removes labels, messages and reasons of a deleted session; its edges are kept.
pub(super) fn forget_words(conn: &Connection, session: &str) -> Result<()> {
    conn.prepare_cached(
        "UPDATE edges SET detail = json_remove(detail, '$.label', '$.handoff_message', '$.reason')
         WHERE origin = ?1 OR session = ?1",
    )?
    .execute([session])?;
    Ok(())
}

/// The edge that created a session.
pub(super) fn birth(conn: &Connection, session: &str) -> Result<Option<Edge>> {
    let found = select(conn, "WHERE session = ?1 ORDER BY number LIMIT 1", [session])?;
    Ok(found.into_iter().next().map(|(_, edge)| edge))
}

/// The lineage tree of the session: its nearest relatives, at most `most`. Only edges that lead to
/// sessions of that user are followed.
pub(super) fn family(
    conn: &Connection,
    session: String,
    user: UserId,
    most: u32,
) -> Result<Family> {
    let user = *user.as_bytes();
    let mut walk = FamilyWalk::new(session, most);
    while let Some(member) = walk.next() {
        let mut edges = select(conn, "WHERE session = ?1 AND user = ?2", params![member, user])?;
        let some = "WHERE origin = ?1 AND user = ?3 ORDER BY number LIMIT ?2";
        edges.append(&mut select(conn, some, params![member, walk.children_wanted(), user])?);
        walk.visited(&member, edges);
    }
    let (edges, cut, members) = walk.end();
    let members =
        members.iter().map(|member| spent_in(conn, member, &user)).collect::<Result<_>>()?;
    Ok(Family { edges, cut, members })
}

/// A session and its cost, if it is stored here and that user's.
fn spent_in(conn: &Connection, session: &str, user: &[u8; 16]) -> Result<Member> {
    let spent = match session.parse::<SessionId>() {
        Err(_) => None,
        Ok(id) => conn
            .prepare_cached(
                "SELECT spent_usd, prompt_tokens, completion_tokens FROM sessions
                 WHERE id = ?1 AND user = ?2",
            )?
            .query_row(params![id.as_bytes(), user], |row| {
                let number = |at| row.get::<_, i64>(at).map(|number| number as u64);
                Ok((row.get(0)?, Tokens { prompt: number(1)?, completion: number(2)? }))
            })
            .optional()?,
    };
    Ok(Member { session: session.to_owned(), spent })
}

fn select(
    conn: &Connection,
    rest: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<(i64, Edge)>> {
    let sql = format!(
        "SELECT number, kind, origin, session, export_id, detail, created_at FROM edges {rest}"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((row.get(0)?, edge_of(row)?));
    }
    Ok(found)
}

fn edge_of(row: &Row<'_>) -> Result<Edge> {
    let kind = row.get_ref(1)?.as_str().ok().and_then(EdgeKind::named);
    Ok(Edge {
        kind: kind.ok_or_else(|| rows::corrupt("an edge of an unknown kind"))?,
        origin: row.get(2)?,
        session: row.get(3)?,
        export_id: row.get::<_, Option<[u8; 16]>>(4)?.map(ExportId::from_bytes),
        detail: row.get(5)?,
        at: rows::timestamp(row.get(6)?)?,
    })
}
