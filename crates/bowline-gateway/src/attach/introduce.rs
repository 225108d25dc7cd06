//! A surface's first frame: who are you, and may you? (SBP-L2-02, SBP-L2-03)
//!
//! By the session's token, a key, or a token of the device's own, which opens nothing else.

use bowline_sbp::error::Close;
use bowline_sbp::frame::{Attach as AttachFrame, ClientFrame, ServerFrame};
use bowline_sbp::id::SessionId;
use bowline_store::{Session, TokenHash};

use crate::auth::{Credentials, hash_token};
use crate::clock;
use crate::http::App;
use crate::socket::{End, Received, Socket};

pub(super) const REVOKED: &str = "this device's access was taken back or has expired";

/// The session it may attach to, and the device's own token, if that is what opened it.
pub(super) async fn introduce(
    app: &App,
    socket: &mut Socket,
    path: &str,
    shown: &Credentials,
) -> Result<(Session, AttachFrame, Option<TokenHash>), End> {
    let protocol = |detail: &str| {
        End::with(ServerFrame::ProtocolError { detail: detail.into() }, Close::Protocol)
    };
    let first = async {
        let in_time = tokio::time::timeout(app.engine.limits.attach_timeout, socket.frame());
        tokio::select! {
            first = in_time => Ok(first),
            () = app.stop.cancelled() => Err(End::Bare(Close::ServiceRestart)),
        }
    };
    // Looked up while the frame is on its way. How much is pending may change until then, and the
    // session may go: the attachment shows both. Its token never changes.
    let store = &app.engine.store;
    let found = async {
        match path.parse::<SessionId>() {
            Ok(id) => store.session(id).await,
            Err(_) => Ok(None),
        }
    };
    let (first, found) = tokio::join!(first, found);
    let frame = match first? {
        Err(_) => return Err(protocol("no ATTACH_SESSION came in time")),
        Ok(Received::Frame(ClientFrame::Attach(attach))) => attach,
        Ok(Received::Frame(_)) => return Err(protocol("the first frame must be ATTACH_SESSION")),
        Ok(Received::Unreadable(detail)) => return Err(protocol(&detail)),
        Ok(Received::Pong(_)) => return Err(protocol("the first frame must be ATTACH_SESSION")),
        Ok(Received::Gone(end)) => return Err(end),
    };
    if frame.session_id != path {
        return Err(protocol("session_id in the frame is not the one in the address"));
    }
    let session = match found {
        Ok(Some(session)) => session,
        Ok(None) => return Err(not_found(path)),
        Err(_) => return Err(End::Bare(Close::TryAgain)),
    };
    if app.engine.access.may_attach(&frame.session_token, shown, &session) {
        return Ok((session, frame, None));
    }
    let Some(token) = shown.device_token(&frame.session_token).map(hash_token) else {
        return Err(forbidden("session_token does not open this session"));
    };
    match store.device_of(session.id, token, clock::now()).await {
        Ok(Some(_)) => Ok((session, frame, Some(token))),
        Ok(None) => Err(forbidden(REVOKED)),
        Err(_) => Err(End::Bare(Close::TryAgain)),
    }
}

pub(super) fn forbidden(detail: &str) -> End {
    End::with(ServerFrame::Forbidden { detail: detail.into() }, Close::Forbidden)
}

pub(super) fn not_found(path: &str) -> End {
    let session_id: String = path.chars().take(64).collect();
    let detail = format!("there is no session {session_id} here");
    End::with(ServerFrame::SessionNotFound { session_id, detail }, Close::NotFound)
}
