//! A surface arrives: it is authenticated and attached, and told so.

use std::sync::Arc;

use bowline_sbp::access::Action;
use bowline_sbp::error::{Close, Code, Failure};
use bowline_sbp::frame::{ServerFrame, SessionAttached};
use bowline_sbp::session::Attach;
use bowline_sbp::{SBP_LEVEL, SBP_LEVEL_ALONE, SBP_VERSION, SBP_VERSION_0_9};
use bowline_store::Arrival;
use tokio::sync::watch;
use uuid::Uuid;

use super::authenticate::{Authenticated, REVOKED, authenticate, forbidden, not_found};
use super::backlog::Backlog;
use super::rights::Rights;
use crate::auth::Credentials;
use crate::http::App;
use crate::session::{Attachment, SessionHandle};
use crate::socket::{Socket, SocketEnd};
use crate::translate::Translator;

/// A surface that is attached and was sent `SESSION_ATTACHED`.
pub(super) struct Arrived {
    pub(super) handle: SessionHandle,
    pub(super) attachment: Attachment,
    pub(super) joined: bool,
    pub(super) explicit_ack: bool,
    pub(super) reads_0_9: bool,
    pub(super) pending: u64,
    pub(super) backlog: Option<Backlog>,
    pub(super) translator: Option<Box<Translator>>,
    pub(super) rights: Box<Rights>,
    pub(super) keys: watch::Receiver<u64>,
}

/// Authenticates and attaches the surface, then sends `SESSION_ATTACHED`.
pub(super) async fn arrive(
    app: &Arc<App>,
    socket: &mut Socket,
    path: String,
    credentials: Credentials,
) -> Result<Box<Arrived>, SocketEnd> {
    // Before it is looked at, so that no later revocation is missed.
    let keys = app.engine.users.watch();
    let Authenticated { arrival, frame, device, rights, session_token } =
        authenticate(app, socket, &path, &credentials).await?;
    let session_id = arrival.session.id;
    let handle = app.sessions.handle(session_id);
    let store = &app.engine.store;
    // The backlog is read while the attachment is committed.
    let backlog = (arrival.pending > 0)
        .then(|| Backlog::after(Arc::clone(store), session_id, arrival.cursor, frame.join));
    // The agent acts for the session's user, so only on devices of theirs.
    let tools = frame.surface.mcp_tools.iter().filter(|_| rights.is_own());
    let tools = tools.filter(|tool| app.engine.tools.allows(&tool.name));
    let attach = Attach {
        socket: Uuid::new_v4(),
        edge: app.sessions.me(),
        surface: frame.surface.clone(),
        tools: tools.cloned().collect(),
        device,
        join: frame.join,
        take_over: frame.take_over,
        guest: !rights.is_own(),
        approver: (frame.approves && rights.may(Action::Decide)).then(|| rights.identity.user()),
    };
    let registered = attach.tools.iter().map(|tool| tool.name.clone()).collect();
    may_serve(app)?;
    let attachment = handle.attach(attach).await.map_err(|failure| refused(&failure, &path))?;
    // The commit may have taken longer than the lease lasts.
    if let Err(end) = may_serve(app) {
        attachment.reporter().gone(end.restarts());
        return Err(end);
    }
    let pending = pending(app, &arrival, &attachment).await.map_err(|_| {
        attachment.reporter().gone(false);
        SocketEnd::Bare(Close::TryAgain)
    })?;
    let context = &attachment.attached.context;
    let translator = app.translation.translator(&arrival.session.agent_id, context);
    let hello = ServerFrame::SessionAttached(SessionAttached {
        session_id,
        surface_id: context.surface_id.clone(),
        device_type: frame.surface.device_type.as_str().to_owned(),
        queued_turns: pending,
        tether_turns_pending: pending,
        mcp_tools_registered: registered,
        sbp_version: match frame.sbp_version.as_deref() {
            Some(SBP_VERSION_0_9) => SBP_VERSION_0_9.into(),
            Some(_) => SBP_VERSION.into(),
            None => app.wire_version.as_str().into(),
        },
        sbp_level: match app.engine.federation {
            Some(_) => SBP_LEVEL.into(),
            None => SBP_LEVEL_ALONE.into(),
        },
        session_token,
    });
    if let Err(end) = socket.send(&hello).await {
        attachment.reporter().gone(end.restarts());
        return Err(end);
    }
    Ok(Box::new(Arrived {
        handle,
        attachment,
        joined: frame.join,
        explicit_ack: frame.explicit_ack,
        reads_0_9: frame.reads_0_9(),
        pending,
        backlog,
        translator,
        rights,
        keys,
    }))
}

/// The number of turns pending for the surface. The count from before the attach is used if the
/// cursor and the log are unchanged since.
async fn pending(
    app: &App,
    arrival: &Arrival,
    attachment: &Attachment,
) -> bowline_store::Result<u64> {
    let attached = &attachment.attached;
    if (arrival.cursor, arrival.session.last_seq) == (attached.cursor, attached.head) {
        return Ok(arrival.pending);
    }
    let device = attached.context.surface_id.clone();
    let now = app.engine.store.arrival(arrival.session.id, device).await?;
    Ok(now.map_or(0, |now| now.pending))
}

/// Whether this replica serves surfaces. One that may have lost its lease does not: as those that are
/// attached, the surface finds another replica.
fn may_serve(app: &App) -> Result<(), SocketEnd> {
    if app.sessions.gate.is_open() { Ok(()) } else { Err(SocketEnd::Bare(Close::ServiceRestart)) }
}

/// The close frame for a refused attach.
fn refused(failure: &Failure, path: &str) -> SocketEnd {
    match failure.code {
        Code::SessionNotFound => not_found(path),
        Code::Forbidden => forbidden(REVOKED),
        Code::RateLimited => {
            let detail = failure.message.clone();
            SocketEnd::with(ServerFrame::ProtocolError { detail }, Close::TryAgain)
        }
        _ => SocketEnd::Bare(Close::TryAgain),
    }
}
