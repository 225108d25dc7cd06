//! The first frames of a surface.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use crate::check::{Check, must, ours, run};
use crate::socket::{Socket, closed};
use crate::trial::{PENDING, Session, Trial, attach_frame};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L2-01",
        "a surface attaches by WebSocket with JSON text frames",
        "WebSocket /v1/sbp/ws/{session_id}; JSON text frames with `type`",
        run!(attaches),
    ),
    must(
        "SBP-L2-02",
        "anything but ATTACH_SESSION first is a PROTOCOL_ERROR, close 1003",
        "First client frame MUST be ATTACH_SESSION; anything else (or bad JSON) -> PROTOCOL_ERROR \
         frame, close 1003. session_id in the frame must equal the path's",
        run!(first_frame),
    ),
    ours(
        "SBP-L2-02b",
        "a socket that says nothing is closed after 10 s",
        "or none within 10 s (ours)",
        run!(silent),
    )
    .slow(),
    must(
        "SBP-L2-03",
        "an unknown session is 4004, a wrong token 4003",
        "Unknown session -> SESSION_NOT_FOUND, close 4004. Wrong token -> FORBIDDEN, close 4003",
        run!(refusals),
    ),
    must(
        "SBP-L2-04",
        "SESSION_ATTACHED says who and how much is waiting",
        "SESSION_ATTACHED {session_id, surface_id, device_type, queued_turns, \
         tether_turns_pending, mcp_tools_registered, sbp_version, sbp_level}",
        run!(welcome),
    ),
];

async fn attaches(t: &Trial) -> Ended {
    let session = t.session().await?;
    let (mut socket, attached) = t.attach(&session, json!({})).await?;
    attached.is(&["/session_id"], session.id.as_str())?;
    socket.send(json!({ "type": "DETACH" })).await?;
    socket.is_closed(1000).await
}

/// Expects an error frame of that type, and then that close.
async fn refused(socket: &mut Socket, kind: &str, code: u16) -> Ended {
    let frame = socket.next().await?;
    frame.holds(frame.kind() == kind, &format!("a frame {kind}, then close {code}"))?;
    socket.is_closed(code).await
}

async fn first_frame(t: &Trial) -> Ended {
    let session = t.session().await?;
    let elsewhere = Session { id: Uuid::new_v4().to_string(), ..session.clone() };
    let other = attach_frame(&elsewhere, json!({}));
    let texts = [r#"{"type":"PING"}"#.to_owned(), "{ no JSON".to_owned(), other.to_string()];
    for text in texts {
        let mut socket = t.socket(&session).await?;
        socket.send_text(&text).await?;
        refused(&mut socket, "PROTOCOL_ERROR", 1003).await?;
    }
    Ok(())
}

async fn silent(t: &Trial) -> Ended {
    let session = t.session().await?;
    let mut socket = t.socket(&session).await?;
    match socket.close_code(Duration::from_secs(20)).await? {
        Some(1003) => Ok(()),
        code => Err(Stop::broken("nothing", "close 1003", closed(code))),
    }
}

async fn refusals(t: &Trial) -> Ended {
    let session = t.session().await?;
    let unknown = Session { id: Uuid::new_v4().to_string(), ..session.clone() };
    let mut socket = t.socket(&unknown).await?;
    // An open server tells by its key, too; the session's token belongs to another session.
    let mut frame = attach_frame(&unknown, json!({}));
    if let Some(key) = t.wire.target.key() {
        frame["session_token"] = json!(key);
    }
    socket.send(frame).await?;
    refused(&mut socket, "SESSION_NOT_FOUND", 4004).await?;
    let wrong = Session { token: format!("wrong-{}", Uuid::new_v4()), ..session };
    let mut socket = t.socket(&wrong).await?;
    socket.send(attach_frame(&wrong, json!({}))).await?;
    refused(&mut socket, "FORBIDDEN", 4003).await
}

async fn welcome(t: &Trial) -> Ended {
    let session = t.session().await?;
    t.pending_turns(&session, 1).await?;
    let context = json!({ "device_type": "mobile", "surface_id": "conformance-phone" });
    let (socket, attached) = t.attach(&session, context).await?;
    attached.is(&["/session_id"], session.id.as_str())?;
    attached.text(&["/surface_id"])?;
    attached.is(&["/device_type"], "mobile")?;
    attached.holds(attached.number(PENDING)? == 1, "one turn pending")?;
    attached.list(&["/mcp_tools_registered"])?;
    attached.text(&["/sbp_version"])?;
    let level = attached.text(&["/sbp_level"])?;
    attached.holds(level.contains(char::is_numeric), "the level in `sbp_level`")?;
    socket.confirm_and_detach().await
}
