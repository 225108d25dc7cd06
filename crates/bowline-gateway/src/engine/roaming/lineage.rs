//! The lineage of a session across exports, imports, forks and handoffs, and what each session and
//! each branch has cost (SBP-L3-12).

use std::collections::{HashMap, HashSet};

use bowline_sbp::api::{BranchCost, Lineage, LineageEdge, SessionCost};
use bowline_sbp::error::Failure;
use bowline_store::{Edge, EdgeKind, Member, Session};

use super::super::Engine;
use super::ancestry;

/// The most related sessions in one response.
const MOST_RELATIVES: u32 = 10_000;

impl Engine {
    /// `all`: the caller may see its user's other sessions. Others learn nothing but that it is there.
    /// Sessions of other users, and what came from them, are left out (G20).
    pub(crate) async fn lineage(&self, session: &Session, all: bool) -> Result<Lineage, Failure> {
        let (session_id, user) = (session.id, session.user);
        let me = session_id.to_string();
        let most = if all { MOST_RELATIVES } else { 1 };
        let mut family = self.store.family(me.clone(), user, most).await?;
        let exports = match all {
            true => self.exports(session_id, user).await?.exports,
            false => {
                family.edges.clear();
                family.cut = false;
                Vec::new()
            }
        };
        let of = |kind: EdgeKind, outgoing: bool| -> Vec<LineageEdge> {
            let mine = |edge: &&Edge| {
                edge.kind == kind && me == *if outgoing { &edge.origin } else { &edge.session }
            };
            family.edges.iter().filter(mine).cloned().map(edge).collect()
        };
        let origin = family.edges.iter().find(|edge| edge.session == me).cloned().map(edge);
        let mut elsewhere = Vec::new();
        if all {
            let members = family.members.iter().map(|member| member.session.as_str());
            elsewhere = self.edges_away(user, members).await?;
            elsewhere.extend(self.foreign_edges(user, &family.edges).await?);
        }
        let mut sessions = costs(&family.members, &family.edges, family.cut);
        if !all {
            sessions.retain(|cost| cost.session_id == me);
            // The branch cost includes sessions that the caller may not see.
            sessions.iter_mut().for_each(|cost| cost.branch = None);
        }
        Ok(Lineage {
            session_id,
            exports,
            outgoing_handoffs: of(EdgeKind::Handoff, true),
            incoming_handoffs: of(EdgeKind::Handoff, false),
            forks: of(EdgeKind::Fork, true),
            origin,
            truncated: family.cut,
            tree: whole(family.edges.into_iter().map(edge).collect(), elsewhere),
            sessions,
        })
    }
}

/// The tree with what other gateways know of it, each edge once.
fn whole(mut tree: Vec<LineageEdge>, elsewhere: Vec<LineageEdge>) -> Vec<LineageEdge> {
    if elsewhere.is_empty() {
        return tree;
    }
    let ends = |edge: &LineageEdge| (edge.from_session_id.clone(), edge.to_session_id.clone());
    let mut known: HashSet<_> = tree.iter().map(ends).collect();
    tree.extend(elsewhere.into_iter().filter(|edge| known.insert(ends(edge))));
    tree.sort_by_key(|edge| edge.created_at);
    tree
}

fn edge(edge: Edge) -> LineageEdge {
    let from_gateway = ancestry::gateway_of(&edge).map(|from| from.shown());
    let mut detail: serde_json::Map<_, _> = serde_json::from_str(&edge.detail).unwrap_or_default();
    detail.remove(ancestry::FROM_GATEWAY);
    LineageEdge {
        kind: edge.kind.as_str().to_owned(),
        from_session_id: edge.origin,
        to_session_id: edge.session,
        export_id: edge.export_id,
        created_at: edge.at,
        detail,
        from_gateway,
        to_gateway: None,
        said_by: None,
    }
}

/// The cost of each session, alone and with its descendants. A session counts below the first edge
/// that leads to it, so that nothing is counted twice.
fn costs(members: &[Member], edges: &[Edge], cut: bool) -> Vec<SessionCost> {
    let mut parents: HashMap<&str, &str> = HashMap::new();
    for edge in edges {
        parents.entry(&edge.session).or_insert(&edge.origin);
    }
    let mut children: HashMap<&str, usize> = HashMap::new();
    for parent in parents.values() {
        *children.entry(parent).or_default() += 1;
    }
    let own = |member: &Member| own_cost(member, !cut);
    let mut branches: HashMap<&str, BranchCost> =
        members.iter().map(|member| (member.session.as_str(), own(member))).collect();
    // From the leaves up. Imported ids can form cycles; those are never reached, so this
    // terminates.
    let is_leaf = |session: &&str| !children.contains_key(session);
    let mut done: Vec<&str> = branches.keys().copied().filter(is_leaf).collect();
    while let Some(session) = done.pop() {
        let Some(parent) = parents.get(session).copied() else { continue };
        let branch = branches.get(session).cloned();
        if let (Some(above), Some(branch)) = (branches.get_mut(parent), branch) {
            above.add(&branch);
        }
        if let Some(left) = children.get_mut(parent) {
            *left -= 1;
            if *left == 0 {
                done.push(parent);
            }
        }
    }
    let cost = |member: &Member| SessionCost {
        session_id: member.session.clone(),
        cost_usd: member.spent.map(|(usd, _)| usd),
        prompt_tokens: member.spent.map(|(_, tokens)| tokens.prompt),
        completion_tokens: member.spent.map(|(_, tokens)| tokens.completion),
        branch: branches.get(member.session.as_str()).cloned(),
    };
    members.iter().map(cost).collect()
}

fn own_cost(member: &Member, complete: bool) -> BranchCost {
    let (usd, tokens) = member.spent.unwrap_or_default();
    BranchCost {
        sessions: 1,
        cost_usd: usd,
        prompt_tokens: tokens.prompt,
        completion_tokens: tokens.completion,
        complete: complete && member.spent.is_some(),
    }
}
