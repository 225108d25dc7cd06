//! A session as callers see it: its stored row, and what lives in it now.

use std::sync::Arc;

use bowline_sbp::api::{AttachedSurface, SessionView};
use bowline_sbp::approval::ApprovalState;
use bowline_sbp::session::{LiveState, LiveSurface};
use bowline_sbp::title;
use bowline_store::Session;

use super::App;

pub(super) async fn view(app: &App, session: Session) -> SessionView {
    let live = app.sessions.look(session.id).await;
    shown(session, live.as_deref())
}

pub(super) async fn views(app: &App, sessions: Vec<Session>) -> Vec<SessionView> {
    let live = app.sessions.look_many(sessions.iter().map(|session| session.id)).await;
    let view = |session: Session| {
        let live = live.get(&session.id).map(Arc::as_ref);
        shown(session, live)
    };
    sessions.into_iter().map(view).collect()
}

fn shown(session: Session, live: Option<&LiveState>) -> SessionView {
    // The first message is stored with its answer: until then the running turn tells the title.
    let asked = || title::first_words(live?.turns.first()?.question.as_deref()?);
    SessionView {
        session_id: session.id,
        title: session.titles.shown().map(str::to_owned).or_else(asked),
        status: session.status,
        turn_running: live.is_some_and(|live| live.turns.iter().any(|turn| turn.running)),
        approvals_pending: live.map_or(0, pending),
        step_count: session.step_count,
        agent_id: session.agent_id,
        created_at: session.created_at,
        updated_at: session.updated_at,
        message_count: session.last_seq,
        cost_usd: session.cost_usd,
        tether_turns_pending: session.pending_turns,
        surface: session.surface,
        attached: live.map_or_else(Vec::new, |live| live.surfaces.iter().map(attached).collect()),
        handed_off_to: session.handed_to,
        metadata: serde_json::from_str(&session.metadata).unwrap_or_default(),
    }
}

fn pending(live: &LiveState) -> u64 {
    let all = live.approvals.iter();
    all.filter(|approval| approval.state == ApprovalState::Pending).count() as u64
}

fn attached(surface: &LiveSurface) -> AttachedSurface {
    AttachedSurface {
        surface_id: surface.context.surface_id.clone(),
        device_type: surface.context.device_type.as_str().to_owned(),
    }
}
