//! What a surface's credential may do in its session, frame by frame.

use bowline_sbp::access::{Action, Credential, Relation, Verdict, may};
use bowline_sbp::error::Code;
use bowline_sbp::frame::{ClientFrame, ServerFrame};
use bowline_sbp::id::SessionId;

use crate::engine::Identity;
use crate::http::App;

#[derive(Debug)]
pub(super) struct Rights {
    pub(super) credential: Credential,
    /// What the session is to the credential's user.
    pub(super) relation: Relation,
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
    pub(super) fn verdict(&self, action: Action) -> Verdict {
        may(&self.credential, action, self.relation)
    }

    pub(super) fn may(&self, action: Action) -> bool {
        self.verdict(action) == Verdict::Allowed
    }

    /// The frame that refuses this one; `None` if it is allowed.
    pub(super) fn refusal(&self, frame: &ClientFrame, session: SessionId) -> Option<ServerFrame> {
        let action = action(frame).filter(|action| !self.may(*action))?;
        let detail = match action {
            Action::Decide => {
                "a decision needs a key with the scope `approve`; tokens of sessions and devices do \
                 not have it"
            }
            _ => "this surface may read and not talk",
        };
        Some(match frame {
            ClientFrame::UserMessage(message) => ServerFrame::TurnFailed {
                client_turn_id: Some(message.client_turn_id.clone()),
                turn_id: None,
                session_id: session,
                code: Code::Forbidden.as_str().into(),
                message: detail.into(),
            },
            _ => ServerFrame::ProtocolError { detail: detail.into() },
        })
    }

    /// Whether the credential may still see the session, now that keys, users or shares changed.
    pub(super) async fn still_hold(&mut self, app: &App, session: SessionId) -> bool {
        if !app.engine.is_valid(&self.credential).await {
            return false;
        }
        if self.relation == Relation::Own {
            return true;
        }
        let identity = Identity::of(self.credential.clone());
        match app.engine.relation(None, session, &identity).await {
            Ok(relation) => self.relation = relation,
            // While the store cannot be read, nobody is cut off.
            Err(_) => return true,
        }
        self.may(Action::ReadSession)
    }
}
