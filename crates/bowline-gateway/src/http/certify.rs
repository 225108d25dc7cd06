//! What the protocol's public test suite asks of a server beside the protocol: `--certify`.
//!
//! Its tests put turns into a session's Tether before they attach a surface, and suspend a session (which
//! is an ordinary call here). They count only the turns that they put there: with `--certify` an answer
//! over HTTP has its reader, as with `sbp.tether: false`.
//!
//! Invariant: without `--certify`, which is refused off loopback, this address does not exist.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use bowline_sbp::access::Action;
use bowline_sbp::error::Code;
use bowline_sbp::id::TurnId;
use bowline_sbp::message::Message;
use bowline_sbp::session::{Submit, TurnRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::ApiError;
use super::sessions::Named;
use super::{App, body, find};
use crate::auth::Credentials;
use crate::config::OFFLINE;
use crate::session::Accepted;

/// Where turns are put into a Tether. In no OpenAPI document: nobody but the suite asks there.
pub(crate) const TETHER: &str = "/v1/sbp/sessions/{id}/_test/tether";

/// Turns as the suite's tests write them.
#[derive(Debug, Deserialize)]
pub(crate) struct Preloaded {
    turns: Vec<PreloadedTurn>,
}

#[derive(Debug, Deserialize)]
struct PreloadedTurn {
    turn: PreloadedAnswer,
}

#[derive(Debug, Deserialize)]
struct PreloadedAnswer {
    content: String,
}

/// Puts turns into the session's Tether: each is a turn of the built-in agent, which says that text.
pub(crate) async fn tether(
    State(app): State<Arc<App>>,
    id: Named,
    credentials: Credentials,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let session = find(&app.engine, id.0, &credentials, Action::Talk).await?;
    let bytes = body::read(body, &app.engine.limits).await?;
    let preloaded: Preloaded = body::json(&bytes)?;
    if preloaded.turns.len() > MOST {
        return Err(ApiError::new(Code::InvalidRequest, "at most 100 turns").param("turns"));
    }
    for one in &preloaded.turns {
        let asked = Message::text("user", &format!("echo {}", one.turn.content));
        let request = Arc::new(TurnRequest::message(OFFLINE.into(), asked));
        let turn = TurnId(Uuid::now_v7());
        let submit = Submit {
            turn,
            request,
            key: None,
            resume: true,
            sender: None,
            wait: false,
            blobs: Vec::new(),
        };
        let accepted = app.sessions.handle(session.id).submit(submit).await?;
        if let Accepted::Running { outcome, .. } = accepted {
            outcome.await?;
        }
    }
    Ok(Json(json!({ "session_id": session.id, "enqueued": preloaded.turns.len() })))
}

/// How many turns one request may bring.
const MOST: usize = 100;
