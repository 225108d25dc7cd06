//! Where a session was before it came from another gateway: asked of the gateways that it went through (SBP-L3-12).
//!
//! A gateway tells another one where a session was before only if the session went from here to there (G20), and
//! then no more than gateways and ids. It asks the gateway before it in turn, so that nobody has to answer those whom
//! it never met.
//!
//! Invariants
//! - What another gateway says is said to be its word. What it says of sessions of this gateway counts only if
//!   they are the same user's, and went where it says.
//! - Depth, size and time are bounded: each gateway waits a little shorter than the one that asks it.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use bowline_federation::{PeerFault, PeerRequest, ReadLimits, Target};
use bowline_sbp::api::{GatewayRef, LineageEdge};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::wire::{CameFrom, Hop, LINEAGE_PATH, MOST_HOPS};
use bowline_sbp::federation::{Allow, BaseUrl, FederationAction, GatewayId};
use bowline_sbp::id::{SessionId, UserId};
use bowline_store::{Edge, EdgeKind, Forward};
use serde::{Deserialize, Serialize};

use super::super::Engine;
use crate::federation::{AskingGateway, Federation};

/// How long one gateway may take, for each that it asks in turn.
const PATIENCE_PER_HOP: Duration = Duration::from_millis(500);
/// The largest answer.
const LARGEST_ANSWER: usize = 16 << 10;
/// The most sessions of one lineage that are traced.
const MOST_TRACED: usize = 4;
/// The most edges that other gateways add to one lineage.
const MOST_ADDED: usize = 4 * MOST_HOPS;
/// How many sessions of this gateway lie between one that came and one that went on: forks and handoffs.
const MOST_BETWEEN: usize = 64;

/// The gateway that a session came from, as its lineage edge has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CameFromGateway {
    pub(super) gateway_id: GatewayId,
    pub(super) url: BaseUrl,
}

/// The member of an edge's `detail` that names the gateway.
pub(super) const FROM_GATEWAY: &str = "from_gateway";

/// The gateway that an edge leads from, if it is another one.
pub(super) fn gateway_of(edge: &Edge) -> Option<CameFromGateway> {
    let detail: serde_json::Value = serde_json::from_str(&edge.detail).ok()?;
    serde_json::from_value(detail.get(FROM_GATEWAY)?.clone()).ok()
}

impl CameFromGateway {
    pub(super) fn shown(&self) -> GatewayRef {
        reference(&self.gateway_id, &self.url)
    }
}

pub(super) fn reference(id: &GatewayId, url: &BaseUrl) -> GatewayRef {
    GatewayRef { gateway_id: id.to_string(), url: url.to_string() }
}

impl Engine {
    /// Where a session that went from here to that peer was before.
    pub(crate) async fn came_from(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        session: SessionId,
        depth: usize,
    ) -> Result<CameFrom, Failure> {
        if federation.allows(&peer.iss) == Allow::None {
            let why = "this gateway tells that one nothing; see `federation.peers`";
            return Err(Failure::new(Code::Forbidden, why));
        }
        let unknown = || Failure::new(Code::NotFound, "no such session went from here to there");
        let went = self.store.forward(session).await?.filter(|went| went.peer == peer.iss);
        let here = self.store.session(session).await?;
        let (Some(_), Some(here)) = (went, here) else { return Err(unknown()) };
        federation.met(peer).await?;
        let mut hops = Vec::new();
        if let Some(before) = self.before(session, here.user).await? {
            let further = depth.min(MOST_HOPS).saturating_sub(1);
            let url = before.url.clone();
            let told = self.trace(federation, &before.gateway_id, &url, before.session_id, further);
            let further = told.await;
            hops.push(before);
            hops.extend(further);
        }
        hops.truncate(depth.min(MOST_HOPS));
        Ok(CameFrom { session_id: session, hops })
    }

    /// The session of another gateway from which this one came, through sessions of its user here.
    async fn before(&self, session: SessionId, user: UserId) -> Result<Option<Hop>, Failure> {
        let family = self.store.family(session.to_string(), user, MOST_BETWEEN as u32).await?;
        let mut at = session.to_string();
        for _ in 0..MOST_BETWEEN {
            let Some(edge) = family.edges.iter().find(|edge| edge.session == at) else { break };
            if let Some(CameFromGateway { gateway_id, url }) = gateway_of(edge) {
                let hop = |session_id| Hop { gateway_id, url, session_id, at: edge.at };
                return Ok(edge.origin.parse().ok().map(hop));
            }
            at.clone_from(&edge.origin);
        }
        Ok(None)
    }

    /// Where a session of another gateway was before, as that one says; nothing if it says nothing in time.
    async fn trace(
        &self,
        federation: &Federation,
        gateway: &GatewayId,
        url: &BaseUrl,
        session: SessionId,
        depth: usize,
    ) -> Vec<Hop> {
        if depth == 0 {
            return Vec::new();
        }
        let target = federation.peers.target(gateway, url);
        let asking = ask(federation, &target, session, depth);
        let patience = PATIENCE_PER_HOP * u32::try_from(depth).unwrap_or(1);
        match tokio::time::timeout(patience, asking).await {
            Ok(Ok(hops)) => hops,
            Ok(Err(fault)) => {
                tracing::debug!(%gateway, %fault, "a gateway does not say where a session came from");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// The edges of other gateways above sessions that came from them, and those that lead there.
    pub(super) async fn foreign_edges(
        &self,
        user: UserId,
        edges: &[Edge],
    ) -> Result<Vec<LineageEdge>, Failure> {
        let Some(federation) = self.federation.clone() else { return Ok(Vec::new()) };
        let came = |edge: &Edge| Some((gateway_of(edge)?, edge.origin.parse().ok()?));
        let mut waiting: VecDeque<(CameFromGateway, SessionId)> =
            edges.iter().filter_map(came).take(MOST_TRACED).collect();
        let mut traced = HashSet::new();
        let mut added: Vec<LineageEdge> = Vec::new();
        while let Some((gateway, session)) = waiting.pop_front() {
            if added.len() >= MOST_ADDED || !traced.insert(session) || traced.len() > MOST_TRACED {
                break;
            }
            let CameFromGateway { gateway_id, url } = &gateway;
            let hops = self.trace(&federation, gateway_id, url, session, MOST_HOPS).await;
            let mut below = (gateway.shown(), session);
            for hop in hops {
                let own = hop.gateway_id == federation.me().id;
                if own && !self.went(user, &hop, &below).await? {
                    break;
                }
                let from = (!own).then(|| reference(&hop.gateway_id, &hop.url));
                added.push(LineageEdge {
                    kind: EdgeKind::Import.as_str().to_owned(),
                    from_session_id: hop.session_id.to_string(),
                    to_session_id: below.1.to_string(),
                    export_id: None,
                    created_at: hop.at,
                    detail: serde_json::Map::new(),
                    from_gateway: from.clone(),
                    to_gateway: Some(below.0),
                    said_by: (!own).then(|| gateway_id.to_string()),
                });
                let Some(from) = from else {
                    // From here on this gateway knows it better.
                    if let Some(Hop { gateway_id, url, session_id, at }) =
                        self.before(hop.session_id, user).await?
                    {
                        let from = CameFromGateway { gateway_id, url };
                        added.push(own_edge(&from, session_id, hop.session_id, at));
                        waiting.push_back((from, session_id));
                    }
                    break;
                };
                below = (from, hop.session_id);
            }
        }
        Ok(added)
    }

    /// Whether a session of that user went from here to where it is said to have gone.
    async fn went(
        &self,
        user: UserId,
        hop: &Hop,
        (gateway, session): &(GatewayRef, SessionId),
    ) -> Result<bool, Failure> {
        let is_to = |to: &Forward| to.peer.as_str() == gateway.gateway_id && to.session == *session;
        let went = self.store.forward(hop.session_id).await?.is_some_and(|to| is_to(&to));
        Ok(went && self.is_of(hop.session_id, user).await?)
    }

    /// The edges from sessions of this gateway to where they went.
    pub(super) async fn edges_away(
        &self,
        user: UserId,
        sessions: impl Iterator<Item = &str>,
    ) -> Result<Vec<LineageEdge>, Failure> {
        let mut edges = Vec::new();
        if self.federation.is_none() {
            return Ok(edges);
        }
        let ids = sessions.filter_map(|id| id.parse::<SessionId>().ok());
        for id in ids.take(MOST_BETWEEN) {
            let Some(to) = self.store.forward(id).await? else { continue };
            let Some(session) = self.store.session(id).await?.filter(|one| one.user == user) else {
                continue;
            };
            edges.push(LineageEdge {
                kind: EdgeKind::Import.as_str().to_owned(),
                from_session_id: id.to_string(),
                to_session_id: to.session.to_string(),
                export_id: None,
                created_at: session.updated_at,
                detail: serde_json::Map::new(),
                from_gateway: None,
                to_gateway: Some(reference(&to.peer, &to.url)),
                said_by: None,
            });
        }
        Ok(edges)
    }
}

/// The edge of a session that came here, as this gateway knows it.
fn own_edge(
    from: &CameFromGateway,
    origin: SessionId,
    session: SessionId,
    at: jiff::Timestamp,
) -> LineageEdge {
    LineageEdge {
        kind: EdgeKind::Import.as_str().to_owned(),
        from_session_id: origin.to_string(),
        to_session_id: session.to_string(),
        export_id: None,
        created_at: at,
        detail: serde_json::Map::new(),
        from_gateway: Some(from.shown()),
        to_gateway: None,
        said_by: None,
    }
}

async fn ask(
    federation: &Federation,
    target: &Target,
    session: SessionId,
    depth: usize,
) -> Result<Vec<Hop>, PeerFault> {
    let request = PeerRequest::get(format!("{LINEAGE_PATH}/{session}?depth={depth}"));
    let (subject, limits) = (session.to_string(), ReadLimits::small(LARGEST_ANSWER));
    let peers = &federation.peers;
    let (status, text) =
        peers.ask(target, FederationAction::Lineage, &subject, request, limits).await?;
    if !status.is_success() {
        return Err(PeerFault::Status(status.as_u16()));
    }
    let told: CameFrom = serde_json::from_slice(&text).map_err(|_| PeerFault::Unreadable)?;
    if told.session_id != session {
        return Err(PeerFault::Unreadable);
    }
    let mut hops = told.hops;
    hops.truncate(depth);
    Ok(hops)
}
