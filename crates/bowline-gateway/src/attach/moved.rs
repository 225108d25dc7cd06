//! A surface of a session that moves between gateways (SBP-L6-05): one that asks where the session was is sent on,
//! and one that has a roaming token brings the session here.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::access::{Action, Credential, CredentialKind, OWNER, Relation};
use bowline_sbp::bundle::RequiredSignature;
use bowline_sbp::error::{Close, Code, Failure};
use bowline_sbp::frame::{Attach, ServerFrame};
use bowline_sbp::id::SessionId;
use uuid::Uuid;

use super::SurfaceTask;
use super::authenticate::{forbidden, not_found};
use super::rights::Rights;
use crate::auth::{Credentials, Denied};
use crate::engine::{Arriving, Deed, Identity};
use crate::http::App;
use crate::socket::{Socket, SocketEnd};

/// How often a surface that waits for its session hears that it is not forgotten.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

impl Rights {
    /// Whether it may be sent on to where its session went: what it shows there opens the session.
    fn may_follow(&self) -> bool {
        let of_device = matches!(self.identity.credential.kind, CredentialKind::Device(_));
        self.relation == Relation::Own && !of_device
    }
}

/// How the surface is sent on, if the session has moved to another gateway.
pub(super) async fn sent_on(app: &App, session: SessionId, rights: &Rights) -> Option<SocketEnd> {
    match app.engine.moved(session, rights.may_follow()).await {
        Ok(moved) => {
            let moved = ServerFrame::SessionMoved(Box::new(moved?));
            Some(SocketEnd::with(moved, Close::Moved))
        }
        Err(failure) => {
            let detail = failure.message;
            Some(SocketEnd::with(ServerFrame::ProtocolError { detail }, Close::TryAgain))
        }
    }
}

impl SurfaceTask<'_> {
    /// How this surface is sent on, if its session has moved.
    pub(super) async fn moved(&mut self) -> Option<SocketEnd> {
        sent_on(self.app, self.session_id, &self.rights).await
    }
}

/// Brings the session of a roaming token here. Returns its id here, and who attaches to it.
pub(super) async fn bring(
    app: &Arc<App>,
    socket: &mut Socket,
    path: &str,
    frame: &Attach,
    credentials: &Credentials,
) -> Result<(SessionId, Identity), SocketEnd> {
    let engine = &app.engine;
    let token = frame.roaming_token.clone().unwrap_or_default();
    let foreign = engine.foreign_token(&token).await.map_err(|failure| refused(&failure))?;
    let foreign = foreign.ok_or_else(|| not_found(path))?;
    let key = match frame.session_token.as_str() {
        "" => None,
        shown => {
            let key = engine.by_key(shown, credentials.from_loopback).await;
            key.map_err(|_| SocketEnd::Bare(Close::TryAgain))?
        }
    };
    let shown = match key {
        Some(identity) => Ok(identity),
        None => engine.identify(credentials).await,
    };
    let may = [Action::ImportSession, Action::Attach];
    let shown = shown.and_then(|identity| {
        may.iter().try_for_each(|action| identity.check(*action)).map(|()| identity)
    });
    let trusted = engine.federation.as_ref().is_some_and(|known| known.trusts(foreign.issuer()));
    let (identity, by_token_alone) = match shown {
        Ok(identity) => (identity.from(credentials), false),
        // Who it is could not be read: that is not nobody, whose session would be the owner's.
        Err(Denied::Store(_)) => return Err(SocketEnd::Bare(Close::TryAgain)),
        // As the token of a session that is the owner's.
        Err(_) if trusted => {
            let nobody = SessionId(Uuid::nil());
            (Identity::of(Credential::of_session(nobody, OWNER)).from(credentials), true)
        }
        Err(_) => {
            let why = "bringing a session here takes a key of this gateway with the scopes to import and to \
                       talk, beside the roaming token";
            return Err(forbidden(why));
        }
    };
    engine.check_import(&identity.spender()).await.map_err(|failure| refused(&failure))?;
    let asked = Arriving { token, foreign, origin_session: path.to_owned(), by_token_alone };
    let mut arriving = Box::pin(engine.arrive(&identity, asked, RequiredSignature::None));
    let (session, is_new) = loop {
        tokio::select! {
            arrived = &mut arriving => break arrived.map_err(|failure| refused(&failure))?,
            () = app.stop.cancelled() => return Err(SocketEnd::Bare(Close::ServiceRestart)),
            () = tokio::time::sleep(SIGN_OF_LIFE) => socket.send(&ServerFrame::Ping {}).await?,
        }
    };
    drop(arriving);
    if is_new {
        engine.audit.did(&identity, Deed::ImportSession, session);
    }
    let identity = match by_token_alone {
        true => Identity::of(Credential::of_session(session, OWNER)).from(credentials),
        false => identity,
    };
    Ok((session, identity))
}

/// The one table of refusals.
fn refused(failure: &Failure) -> SocketEnd {
    let detail = failure.message.clone();
    match failure.code {
        Code::TokenExpired
        | Code::TokenConsumed
        | Code::TokenInvalid
        | Code::TokenIntegrity
        | Code::Forbidden
        | Code::Unauthorized
        | Code::TooLarge => forbidden(&detail),
        _ => SocketEnd::with(ServerFrame::ProtocolError { detail }, Close::TryAgain),
    }
}
