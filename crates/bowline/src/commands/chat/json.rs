//! Events as lines of JSON, for `--json`.

use bowline_client::surface::Event;
use serde_json::{Value, json};

pub(super) fn as_json(event: &Event) -> Value {
    match event {
        Event::Attached { pending, sbp_level, reconnected } => json!({
            "event": "attached", "pending": pending, "sbp_level": sbp_level, "reconnected": reconnected,
        }),
        Event::Turn(turn) => json!({ "event": "turn", "turn": turn }),
        Event::Chunk { turn_id, text, restarted } => json!({
            "event": "chunk", "turn_id": turn_id, "text": text, "restarted": restarted,
        }),
        Event::Complete(complete) => json!({ "event": "complete", "turn": complete }),
        Event::Accepted { client_turn_id, turn_id } => json!({
            "event": "accepted", "client_turn_id": client_turn_id, "turn_id": turn_id,
        }),
        Event::Failed { client_turn_id, turn_id, code, message } => json!({
            "event": "failed", "client_turn_id": client_turn_id, "turn_id": turn_id, "code": code,
            "message": message,
        }),
        Event::ToolCall { call_id, tool, input, .. } => json!({
            "event": "tool_call", "call_id": call_id, "tool": tool, "input": input,
        }),
        Event::Asked { turn_id, content, surface_id, author } => json!({
            "event": "asked", "turn_id": turn_id, "content": content, "surface_id": surface_id,
            "author": author,
        }),
        Event::Surfaces(list) => json!({ "event": "surfaces", "list": list }),
        Event::ApprovalAsked(approval) => {
            json!({ "event": "approval_request", "approval": approval })
        }
        Event::Resolved { approval_id, state } => json!({
            "event": "approval_resolved", "approval_id": approval_id, "state": state,
        }),
        Event::Lost { why, retry_in } => json!({
            "event": "lost", "why": why, "retry_in_ms": retry_in.as_millis() as u64,
        }),
        Event::Moved { session, gateway, url } => json!({
            "event": "moved", "session_id": session, "gateway_id": gateway, "url": url,
        }),
        Event::Arrived { session } => json!({ "event": "arrived", "session_id": session }),
        Event::Closed(reason) => json!({ "event": "closed", "why": reason.to_string() }),
        _ => json!({ "event": "other" }),
    }
}
