//! Where a session comes from and what became of it, across exports, imports, forks and handoffs
//! (SBP-L3-12).

use bowline_sbp::api::{Lineage, LineageEdge};
use bowline_sbp::id::SessionId;
use bowline_store::{Edge, EdgeKind};

use super::super::Engine;
use super::export::view;
use crate::hub::Failure;

/// The most sessions of a family that are shown.
const MOST_RELATIVES: u32 = 10_000;

impl Engine {
    pub(crate) async fn lineage(&self, session_id: SessionId) -> Result<Lineage, Failure> {
        let me = session_id.to_string();
        let family = self.store.family(me.clone(), MOST_RELATIVES).await?;
        let exports = self.store.exports(session_id).await?;
        let of = |kind: EdgeKind, outgoing: bool| -> Vec<LineageEdge> {
            let mine = |edge: &&Edge| {
                edge.kind == kind && me == *if outgoing { &edge.origin } else { &edge.session }
            };
            family.edges.iter().filter(mine).cloned().map(edge).collect()
        };
        let origin = family.edges.iter().find(|edge| edge.session == me).cloned().map(edge);
        Ok(Lineage {
            session_id,
            exports: exports.into_iter().map(view).collect(),
            outgoing_handoffs: of(EdgeKind::Handoff, true),
            incoming_handoffs: of(EdgeKind::Handoff, false),
            forks: of(EdgeKind::Fork, true),
            origin,
            truncated: family.cut,
            tree: family.edges.into_iter().map(edge).collect(),
        })
    }
}

fn edge(edge: Edge) -> LineageEdge {
    LineageEdge {
        kind: edge.kind.as_str().to_owned(),
        from_session_id: edge.origin,
        to_session_id: edge.session,
        export_id: edge.export_id,
        created_at: edge.at,
        detail: serde_json::from_str(&edge.detail).unwrap_or_default(),
    }
}
