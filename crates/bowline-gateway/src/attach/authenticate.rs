//! A surface's first frame: authentication and authorisation (SBP-L2-02, SBP-L2-03).
//!
//! A surface presents the session's token, an API key, or the device's own token, which opens this
//! session only. A paired device presents nothing: it was authenticated before.

use std::sync::Arc;

use bowline_sbp::access::{Action, Authorization, Credential};
use bowline_sbp::error::Close;
use bowline_sbp::frame::{Attach as AttachFrame, ClientFrame, ServerFrame};
use bowline_sbp::id::{SessionId, UserId};
use bowline_store::{Arrival, Session, TokenHash};

use super::moved::{bring, sent_on};
use super::rights::Rights;
use crate::auth::{Credentials, Denied, hash_token};
use crate::clock;
use crate::engine::Identity;
use crate::http::App;
use crate::socket::{Received, Socket, SocketEnd};

pub(super) const REVOKED: &str = "this device's access was revoked or has expired";
pub(super) const REVOKED_KEY: &str =
    "the key or token was revoked or replaced, or the session is no longer shared";

const USED: &str =
    "the attach token was used before or has expired; attach where the session was, to get another";

/// A surface that may attach.
pub(super) struct Authenticated {
    pub(super) arrival: Arrival,
    pub(super) frame: AttachFrame,
    /// The device's own token, if that is what opened the session.
    pub(super) device: Option<TokenHash>,
    /// What it may do.
    pub(super) rights: Box<Rights>,
    /// The session's token, if the surface cannot know it: the session came from another gateway.
    pub(super) session_token: Option<String>,
}

pub(super) async fn authenticate(
    app: &Arc<App>,
    socket: &mut Socket,
    path: &str,
    credentials: &Credentials,
) -> Result<Authenticated, SocketEnd> {
    let protocol = |detail: &str| {
        SocketEnd::with(ServerFrame::ProtocolError { detail: detail.into() }, Close::Protocol)
    };
    let first = async {
        let in_time = tokio::time::timeout(app.engine.limits.attach_timeout, socket.frame());
        tokio::select! {
            first = in_time => Ok(first),
            () = app.stop.cancelled() => Err(SocketEnd::Bare(Close::ServiceRestart)),
        }
    };
    // The session is looked up while the frame arrives. Its token may be
    // replaced meanwhile: then the surface is disconnected when it is attached. The number of pending
    // turns may change, and the session may be deleted: the attach command notices both.
    let store = &app.engine.store;
    let found = async {
        match path.parse::<SessionId>() {
            Ok(id) => store.arrival(id, None).await,
            Err(_) => Ok(None),
        }
    };
    let (first, found) = tokio::join!(first, found);
    let mut frame = match first? {
        Err(_) => return Err(protocol("no ATTACH_SESSION came in time")),
        Ok(Received::Frame(frame)) => match *frame {
            ClientFrame::Attach(attach) => attach,
            _ => return Err(protocol("the first frame must be ATTACH_SESSION")),
        },
        Ok(Received::Unreadable(detail)) => return Err(protocol(&detail)),
        Ok(Received::Pong(_)) => return Err(protocol("the first frame must be ATTACH_SESSION")),
        Ok(Received::Gone(end)) => return Err(end),
    };
    if frame.session_id != path {
        return Err(protocol("session_id in the frame is not the one in the address"));
    }
    let try_again = |_| SocketEnd::Bare(Close::TryAgain);
    let (mut arrival, shown) = match found.map_err(try_again)? {
        Some(arrival) => {
            let shown = Box::pin(shown(app, &frame, credentials, &arrival.session)).await?;
            (arrival, shown)
        }
        None if frame.roaming_token.is_some() => {
            let (id, identity) = Box::pin(bring(app, socket, path, &frame, credentials)).await?;
            let arrival = store.arrival(id, None).await.map_err(try_again)?;
            let shown = Shown { new_here: true, ..Shown::of(identity) };
            (arrival.ok_or_else(|| not_found(path))?, shown)
        }
        None => return Err(not_found(path)),
    };
    let Shown { identity, device, new_here } = shown;
    let session = &arrival.session;
    if app.engine.count_request(credentials, &identity).await.is_err() {
        return Err(SocketEnd::Bare(Close::TryAgain));
    }
    let relation = app.engine.relation(Some(session), session.id, &identity).await;
    let relation = relation.map_err(|_| SocketEnd::Bare(Close::TryAgain))?;
    let expires_at = app.engine.expires_at(&identity, session);
    let (token, from) = (session.token_hash, credentials.from.clone());
    let identity = identity.from(credentials);
    let rights = Box::new(Rights { identity, relation, token, from, expires_at });
    match rights.verdict(Action::Attach) {
        Authorization::Allowed => {}
        Authorization::NotFound => return Err(not_found(path)),
        Authorization::Forbidden => {
            let why = "attaching needs the scopes `turns` and `read`, and a session that is one's own \
                       or shared to talk";
            return Err(forbidden(why));
        }
    }
    if rights.identity.check_agent(&session.agent_id).is_err() {
        return Err(forbidden("that key is not for this agent"));
    }
    // Behind the look at what it may do: to others it is not told that there is a session, or was.
    if session.handed_to.is_some()
        && let Some(end) = Box::pin(sent_on(app, session.id, &rights)).await
    {
        return Err(end);
    }
    let may_hold_token = rights.is_own() && rights.identity.may_hand_out_tokens();
    let session_token = (new_here && may_hold_token)
        .then(|| app.engine.access.token_number(session.id, session.token_number));
    if !rights.is_own() {
        beside(&mut frame, rights.identity.user());
    }
    let (device, name) = match device {
        Some((token, name)) => (Some(token), Some(name)),
        None => (None, frame.surface.surface_id.clone()),
    };
    // A named device has a cursor of its own.
    if name.is_some() {
        let named = store.arrival(session.id, name).await;
        arrival = named.map_err(try_again)?.ok_or_else(|| not_found(path))?;
    }
    Ok(Authenticated { arrival, frame, device, rights, session_token })
}

/// Whoever a session is shared with stays beside its user's surfaces: it takes over nothing, and has
/// no device of theirs.
fn beside(frame: &mut AttachFrame, user: UserId) {
    frame.join = true;
    frame.take_over = false;
    let user = &user.0.simple().to_string()[24..];
    frame.surface.surface_id = frame.surface.surface_id.take().map(|name| format!("{user}/{name}"));
}

/// What a surface has shown.
struct Shown {
    identity: Identity,
    /// The hash of a device's own token, and the device's name.
    device: Option<(TokenHash, String)>,
    /// It has come here with its session, and does not know the session's token.
    new_here: bool,
}

impl Shown {
    fn of(identity: Identity) -> Self {
        Self { identity, device: None, new_here: false }
    }
}

/// Who attaches: by the session's token in the first frame, a key or token on the upgrade request, or as
/// the paired device that it came from. Credentials are required even if the gateway is open. For a
/// device's own token, also its hash and the device's name.
async fn shown(
    app: &App,
    frame: &AttachFrame,
    credentials: &Credentials,
    session: &Session,
) -> Result<Shown, SocketEnd> {
    let try_again = |_| SocketEnd::Bare(Close::TryAgain);
    let in_frame = Some(&frame.session_token).filter(|token| !token.is_empty());
    let on_upgrade = [&credentials.bearer, &credentials.session_token].into_iter().flatten();
    let on_upgrade = on_upgrade.filter(|_| in_frame.is_none());
    for text in in_frame.into_iter().chain(on_upgrade) {
        if app.engine.access.opens(text, session) {
            // A person's own key or device beside it may do more: approve.
            if in_frame.is_some()
                && let Ok(Some(identity)) = app.engine.by_key_or_device(credentials).await
                && identity.user() == session.user
                && identity.check(Action::Attach).is_ok()
            {
                return Ok(Shown::of(identity));
            }
            let identity = app.engine.by_session_token(session).await;
            return match identity {
                Ok(identity) => Ok(Shown::of(identity)),
                Err(Denied::Store(_)) => Err(SocketEnd::Bare(Close::TryAgain)),
                Err(_) => Err(forbidden(REVOKED)),
            };
        }
        match app.engine.use_attach_token(text, session.id).await {
            Ok(None) => {}
            Ok(Some(true)) => {
                let identity = app.engine.by_session_token(session).await;
                let identity = identity.map_err(|_| forbidden(REVOKED))?;
                return Ok(Shown { new_here: true, ..Shown::of(identity) });
            }
            Ok(Some(false)) => return Err(forbidden(USED)),
            Err(_) => return Err(SocketEnd::Bare(Close::TryAgain)),
        }
        let key = app.engine.by_key(text, credentials.from_loopback).await;
        if let Some(identity) = key.map_err(|_| SocketEnd::Bare(Close::TryAgain))? {
            return Ok(Shown::of(identity));
        }
    }
    let shows_nothing = frame.session_token.is_empty() && credentials.shows_nothing();
    if shows_nothing && let Some(device) = &credentials.device {
        return match app.engine.by_paired_device(device).await {
            Ok(identity) => Ok(Shown::of(identity)),
            Err(Denied::Store(_)) => Err(SocketEnd::Bare(Close::TryAgain)),
            Err(_) => Err(forbidden(REVOKED)),
        };
    }
    let token = credentials.device_token(&frame.session_token).map(hash_token);
    let token = token.ok_or_else(|| forbidden("session_token does not open this session"))?;
    let name = app.engine.store.device_of(session.id, token, clock::now()).await;
    let name = name.map_err(try_again)?.ok_or_else(|| forbidden(REVOKED))?;
    app.engine.by_session_token(session).await.map_err(|_| forbidden(REVOKED))?;
    let identity = Identity::of(Credential::of_device(session.id, session.user));
    Ok(Shown { device: Some((token, name)), ..Shown::of(identity) })
}

pub(super) fn forbidden(detail: &str) -> SocketEnd {
    SocketEnd::with(ServerFrame::Forbidden { detail: detail.into() }, Close::Forbidden)
}

pub(super) fn not_found(path: &str) -> SocketEnd {
    let session_id: String = path.chars().take(64).collect();
    let detail = format!("there is no session {session_id} here");
    SocketEnd::with(ServerFrame::SessionNotFound { session_id, detail }, Close::NotFound)
}
