//! Input over a surface's socket: `USER_MESSAGE` becomes a turn.

use bowline_sbp::error::Code;
use bowline_sbp::frame::{ServerFrame, UserMessage};
use bowline_sbp::id::SessionId;
use bowline_sbp::message::Message;
use bowline_store::IdempotencyKey;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::auth::sha256;
use crate::engine::{Origin, Submitted, Target, TurnRequest};
use crate::http::App;
use crate::hub::Failure;

/// Takes the message on and says so once it is on disk, or says why not.
pub(crate) async fn take(app: &App, session_id: SessionId, said: UserMessage) -> ServerFrame {
    let client_turn_id = said.client_turn_id.clone();
    match submit(app, session_id, said).await {
        Ok(turn_id) => ServerFrame::TurnAccepted { client_turn_id, turn_id, session_id },
        Err(failure) => ServerFrame::TurnFailed {
            client_turn_id: Some(client_turn_id),
            turn_id: None,
            session_id,
            code: failure.code.as_str().into(),
            message: failure.message,
        },
    }
}

/// More at once than one surface may have under way.
pub(crate) fn too_many(session_id: SessionId, said: UserMessage) -> ServerFrame {
    ServerFrame::TurnFailed {
        client_turn_id: Some(said.client_turn_id),
        turn_id: None,
        session_id,
        code: Code::RateLimited.as_str().into(),
        message: "too many messages at once; wait for the first to be accepted".into(),
    }
}

async fn submit(
    app: &App,
    session_id: SessionId,
    said: UserMessage,
) -> Result<bowline_sbp::id::TurnId, Failure> {
    let model = said.model.unwrap_or_else(|| app.default_model.clone());
    let body = raw(&json!({ "role": "user", "content": said.content }));
    // The same name with other words is another message, and refused.
    let key = IdempotencyKey {
        scope: session_id.to_string(),
        key: said.client_turn_id,
        body_hash: sha256(body.get()),
    };
    let request = TurnRequest {
        params: vec![("model".into(), raw(&json!(model)))],
        model,
        messages: vec![Message::read(body).expect("the message was just made with a role")],
        stream: false,
        checkpoint_every: 1,
        tether: true,
        origin: Origin::Surface,
        agent_id: None,
        recall: true,
        remember: false,
    };
    let target = Target::Existing { id: session_id, resume: true };
    let submitted = app.engine.submit(target, request, Some(key)).await?;
    Ok(match submitted {
        Submitted::Running { turn, .. } => turn.id,
        Submitted::Replayed { done, .. } => done.info.turn_id.unwrap_or_else(nobody),
        Submitted::Suspended { .. } => nobody(),
    })
}

/// A turn that cannot be: resumed sessions run, and stored results name their turn.
fn nobody() -> bowline_sbp::id::TurnId {
    bowline_sbp::id::TurnId(uuid::Uuid::nil())
}

fn raw(value: &serde_json::Value) -> Box<RawValue> {
    to_raw_value(value).expect("a JSON value always serialises")
}
