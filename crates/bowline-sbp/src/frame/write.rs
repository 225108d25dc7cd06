//! A surface's frames as JSON text: the inverse of [`ClientFrame::read`].

use serde_json::{Value, json};

use super::ClientFrame;

impl ClientFrame {
    /// The frame as JSON text.
    pub fn to_json(&self) -> String {
        value(self).to_string()
    }
}

fn value(frame: &ClientFrame) -> Value {
    match frame {
        ClientFrame::Attach(attach) => {
            let mut frame = json!({
                "type": "ATTACH_SESSION",
                "session_id": attach.session_id,
                "session_token": attach.session_token,
                "surface_context": attach.surface,
                "sbp_version": attach.sbp_version,
                "join": attach.join,
                "take_over": attach.take_over,
                "ack": if attach.explicit_ack { "explicit" } else { "pong" },
                "approves": attach.approves,
            });
            if let Some(token) = &attach.roaming_token {
                frame["roaming_token"] = json!(token);
            }
            frame
        }
        ClientFrame::Detach => json!({ "type": "DETACH" }),
        ClientFrame::Ping => json!({ "type": "PING" }),
        ClientFrame::Pong => json!({ "type": "PONG" }),
        ClientFrame::Ack { seq } => json!({ "type": "TETHER_ACK", "seq": seq }),
        ClientFrame::UserMessage(message) => json!({
            "type": "USER_MESSAGE",
            "content": message.content,
            "client_turn_id": message.client_turn_id,
            "model": message.model,
        }),
        ClientFrame::Cancel => json!({ "type": "CANCEL_TURN" }),
        ClientFrame::ToolResult { call_id, result, error } => json!({
            "type": "TOOL_RESULT",
            "call_id": call_id,
            "result": result,
            "error": error,
        }),
        ClientFrame::Decide { approval_id, approved, always } => json!({
            "type": "APPROVAL_DECISION",
            "approval_id": approval_id,
            "approved": approved,
            "always": always,
        }),
        // Every gateway ignores it (SBP-L2-17).
        ClientFrame::Unknown => json!({ "type": "UNKNOWN" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Attach, UserMessage};
    use crate::id::ApprovalId;
    use crate::surface::SurfaceContext;

    #[test]
    fn every_frame_reads_back_as_itself() {
        let attach = |sbp_version: Option<String>| {
            let ours = sbp_version.is_some();
            ClientFrame::Attach(Attach {
                session_id: "s".into(),
                session_token: "t\"\n".into(),
                roaming_token: sbp_version.clone(),
                surface: SurfaceContext {
                    device_type: "desktop".into(),
                    max_output_tokens: Some(7),
                    ui_capabilities: vec!["streaming".into()],
                    locale: None,
                    surface_id: Some("laptop".into()),
                    mcp_tools: vec![],
                },
                sbp_version,
                join: ours,
                take_over: !ours,
                explicit_ack: ours,
                approves: ours,
            })
        };
        let message = |model| {
            let (content, client_turn_id) = (json!("hé\n\"you\""), "c".into());
            ClientFrame::UserMessage(UserMessage { content, client_turn_id, model })
        };
        let result = |error| {
            let (call_id, result) = ("c".into(), json!({ "x": [1] }));
            ClientFrame::ToolResult { call_id, result, error }
        };
        for frame in [
            attach(None),
            attach(Some("1.2".into())),
            ClientFrame::Detach,
            ClientFrame::Ping,
            ClientFrame::Pong,
            ClientFrame::Ack { seq: u64::MAX },
            message(None),
            message(Some("m".into())),
            ClientFrame::Cancel,
            result(None),
            result(Some("no camera".into())),
            ClientFrame::Decide {
                approval_id: ApprovalId(uuid::Uuid::from_u128(7)),
                approved: false,
                always: false,
            },
            ClientFrame::Unknown,
        ] {
            assert_eq!(ClientFrame::read(&frame.to_json()), Ok(frame));
        }
    }
}
