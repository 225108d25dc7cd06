//! What a surface's credential may do in its session, frame by frame.

use bowline_net::PeerName;
use bowline_sbp::access::{Action, Authorization, CredentialKind, Relation, may};
use bowline_sbp::error::Code;
use bowline_sbp::frame::{ClientFrame, ServerFrame, UserMessage};
use bowline_sbp::id::SessionId;
use bowline_sbp::session::Author;
use bowline_store::TokenHash;
use jiff::Timestamp;

use super::SurfaceTask;
use super::authenticate::{REVOKED_KEY, forbidden};
use crate::engine::Identity;
use crate::http::App;
use crate::socket::SocketEnd;

#[derive(Debug)]
pub(super) struct Rights {
    pub(super) identity: Identity,
    /// What the session is to the credential's user.
    pub(super) relation: Relation,
    /// The session's token when it attached.
    pub(super) token: TokenHash,
    /// Where it attached from.
    pub(super) from: Option<PeerName>,
    /// Until when what it showed is valid.
    pub(super) expires_at: Option<Timestamp>,
}

/// What a frame does; `None`: nothing that could be refused to somebody who is attached.
pub(super) fn action(frame: &ClientFrame) -> Option<Action> {
    match frame {
        ClientFrame::UserMessage(_) | ClientFrame::Cancel | ClientFrame::ToolResult { .. } => {
            Some(Action::Talk)
        }
        ClientFrame::Decide { .. } => Some(Action::Decide),
        ClientFrame::Attach(_)
        | ClientFrame::Detach
        | ClientFrame::Ping
        | ClientFrame::Pong
        | ClientFrame::Ack { .. }
        | ClientFrame::Unknown => None,
    }
}

impl Rights {
    pub(super) fn verdict(&self, action: Action) -> Authorization {
        may(&self.identity.credential, action, self.relation)
    }

    /// Whether the session is its user's own.
    pub(super) fn is_own(&self) -> bool {
        self.relation == Relation::Own
    }

    /// Who speaks on it, if it is not the session's user.
    pub(super) fn author(&self) -> Option<Author> {
        (!self.is_own()).then(|| self.identity.author())
    }

    /// Whether it showed a token. That ends by a change that all are told of.
    pub(super) fn is_by_token(&self) -> bool {
        !self.identity.is_of_user()
    }

    pub(super) fn may(&self, action: Action) -> bool {
        self.verdict(action) == Authorization::Allowed
    }

    /// The frame that refuses this one; `None` if it is allowed.
    pub(super) fn refusal(
        &self,
        frame: &ClientFrame,
        session: SessionId,
        default_model: &str,
    ) -> Option<ServerFrame> {
        if let ClientFrame::UserMessage(message) = frame
            && let model = message.model.as_deref().unwrap_or(default_model)
            && self.identity.check_model(model).is_err()
        {
            return Some(failed(message, session, "that key is not for this model"));
        }
        let action = action(frame).filter(|action| !self.may(*action))?;
        let detail = match action {
            Action::Decide => {
                "a decision needs a key with the scope `approve`; tokens of sessions and devices do \
                 not have it"
            }
            _ => "the session is not shared for talking any more",
        };
        Some(match frame {
            ClientFrame::UserMessage(message) => failed(message, session, detail),
            _ => ServerFrame::ProtocolError { detail: detail.into() },
        })
    }

    /// Whether it may still be attached, now that keys, users or shares may have changed. `None` if
    /// that cannot be known right now.
    pub(super) async fn still_hold(&mut self, app: &App, session: SessionId) -> Option<bool> {
        if !app.engine.is_valid(&self.identity.credential).await {
            return Some(false);
        }
        if let CredentialKind::Session(_) = self.identity.credential.kind {
            let now = app.engine.store.session(session).await.ok()?;
            return Some(now.is_none_or(|now| now.token_hash == self.token));
        }
        if !self.is_own() {
            self.relation = app.engine.relation(None, session, &self.identity).await.ok()?;
        }
        Some(self.may(Action::Attach))
    }
}

impl SurfaceTask<'_> {
    /// Ends the connection if its credential may not be attached any more. A key may be revoked by
    /// another process: so this is asked now and then, too.
    pub(super) async fn check_rights(&mut self) -> Result<(), SocketEnd> {
        if !self.unchecked && self.rights.is_own() && self.rights.is_by_token() {
            return Ok(());
        }
        match self.rights.still_hold(self.app, self.session_id).await {
            Some(false) => Err(forbidden(REVOKED_KEY)),
            held => {
                self.unchecked = held.is_none();
                Ok(())
            }
        }
    }

    /// What a surface of the session's user has got is delivered. What others have got is not: the
    /// user may not have seen it.
    pub(super) fn confirm(&mut self, reached: Option<u64>) {
        if self.rights.is_own() {
            self.confirming.reached(reached);
        }
    }
}

fn failed(message: &UserMessage, session: SessionId, why: &str) -> ServerFrame {
    ServerFrame::TurnFailed {
        client_turn_id: Some(message.client_turn_id.clone()),
        turn_id: None,
        session_id: session,
        code: Code::Forbidden.as_str().into(),
        message: why.into(),
    }
}
