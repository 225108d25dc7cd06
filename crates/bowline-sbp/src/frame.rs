//! The JSON frames between a surface and its gateway.
//!
//! What a surface sends is parsed leniently: an unknown type is ignored (SBP-L2-17), for a known
//! one with invalid fields the error names the field. What a gateway sends is one enum, used by
//! server, client and tests alike.
//!
//! Extensions of the protocol, marked "(ours)", which other implementations ignore: `TETHER_ACK`,
//! `USER_MESSAGE`, `CANCEL_TURN`, `APPROVAL_DECISION` from the surface; `TURN_ACCEPTED`,
//! `TURN_FAILED`, `TURN_RESTARTED`, `USER_TURN`, `SURFACES`, `APPROVAL_REQUEST`,
//! `APPROVAL_RESOLVED`, `SESSION_HANDED_OFF`, `SESSION_MOVED` to it.

mod v0_9;
mod write;

pub use self::v0_9::{ChunkV0_9, CompleteV0_9};

use std::borrow::Cow;

use jiff::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::approval::{self, Approval};
use crate::id::{AgentId, ApprovalId, Seq, SessionId, TurnId};
use crate::surface::SurfaceContext;

/// A frame from a surface.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientFrame {
    Attach(Attach),
    Detach,
    Ping,
    Pong,
    /// Everything up to `seq` arrived (ours).
    Ack {
        seq: Seq,
    },
    /// A user message over the socket instead of an HTTP request (ours).
    UserMessage(UserMessage),
    /// Stop the running turn (ours).
    Cancel,
    ToolResult {
        call_id: String,
        result: Value,
        error: Option<String>,
    },
    /// The person at the device approves or denies a tool call (ours).
    Decide {
        approval_id: ApprovalId,
        approved: bool,
        /// Also allow later calls of the tool by the same device in this session.
        always: bool,
    },
    /// A type we do not know: ignored.
    Unknown,
}

/// `ATTACH_SESSION`.
#[derive(Debug, Clone, PartialEq)]
pub struct Attach {
    pub session_id: String,
    /// Or an attach token of a session that moved here (SBP-L6-05).
    pub session_token: String,
    /// A roaming token of another gateway: its session comes here first (SBP-L6-05).
    pub roaming_token: Option<String>,
    pub surface: SurfaceContext,
    /// The wire version that the surface requests, if any.
    pub sbp_version: Option<String>,
    /// Attach beside the other surfaces instead of replacing them (SBP-L2-20, ours).
    pub join: bool,
    /// Close all other surfaces (ours).
    pub take_over: bool,
    /// Only `TETHER_ACK` confirms delivery: a proxy may answer pings although the text never
    /// reached the page (SBP-L2-21, ours).
    pub explicit_ack: bool,
    /// Somebody is there who can answer questions about tool calls; so it is, unless it says no (ours).
    pub approves: bool,
}

/// `USER_MESSAGE`.
#[derive(Debug, Clone, PartialEq)]
pub struct UserMessage {
    /// Text, or OpenAI's content parts.
    pub content: Value,
    /// Idempotency key chosen by the surface: a message sent twice runs once.
    pub client_turn_id: String,
    /// The model; the gateway's default if absent.
    pub model: Option<String>,
}

/// Why a frame is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the frame is not a JSON object")]
    NotAnObject,
    #[error("the frame is nested too deeply")]
    TooDeep,
    #[error("the frame has no `type`")]
    NoType,
    #[error("`{field}` of {frame} is missing or of the wrong type")]
    Field { frame: &'static str, field: &'static str },
}

impl ClientFrame {
    /// Parses a text frame.
    pub fn read(text: &str) -> Result<Self, FrameError> {
        if !crate::json::within_depth(text.as_bytes(), crate::json::MAX_DEPTH) {
            return Err(FrameError::TooDeep);
        }
        let Ok(Value::Object(mut fields)) = serde_json::from_str(text) else {
            return Err(FrameError::NotAnObject);
        };
        let Some(Value::String(kind)) = fields.remove("type") else {
            return Err(FrameError::NoType);
        };
        match kind.as_str() {
            "ATTACH_SESSION" => Ok(Self::Attach(Attach {
                session_id: text_of(&fields, "session_id")
                    .ok_or(FrameError::Field { frame: "ATTACH_SESSION", field: "session_id" })?,
                // A missing token is handled like a wrong one: the gateway answers FORBIDDEN.
                session_token: text_of(&fields, "session_token").unwrap_or_default(),
                roaming_token: text_of(&fields, "roaming_token").filter(|token| !token.is_empty()),
                surface: SurfaceContext::read(
                    ["surface_context", "surface"]
                        .into_iter()
                        .filter_map(|name| fields.get(name))
                        .find(|surface| surface.is_object()),
                ),
                sbp_version: text_of(&fields, "sbp_version"),
                join: flag_of(&fields, "join"),
                take_over: flag_of(&fields, "take_over"),
                explicit_ack: says_explicit_ack(&fields),
                approves: fields.get("approves") != Some(&Value::Bool(false)),
            })),
            "DETACH" => Ok(Self::Detach),
            "PING" => Ok(Self::Ping),
            "PONG" => Ok(Self::Pong),
            "TETHER_ACK" => fields
                .get("seq")
                .and_then(Value::as_u64)
                .map(|seq| Self::Ack { seq })
                .ok_or(FrameError::Field { frame: "TETHER_ACK", field: "seq" }),
            "USER_MESSAGE" => user_message(&mut fields).map(Self::UserMessage),
            "CANCEL_TURN" => Ok(Self::Cancel),
            "TOOL_RESULT" => Ok(Self::ToolResult {
                call_id: text_of(&fields, "call_id")
                    .ok_or(FrameError::Field { frame: "TOOL_RESULT", field: "call_id" })?,
                error: fields.remove("error").and_then(failure),
                result: fields.remove("result").unwrap_or_default(),
            }),
            "APPROVAL_DECISION" => decision(&fields),
            _ => Ok(Self::Unknown),
        }
    }
}

/// The `error` of a tool result. One that is not a string is an error, too.
fn failure(said: Value) -> Option<String> {
    match said {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

/// Only a boolean `true` approves: an invalid frame must not cause a tool call.
fn decision(fields: &Map<String, Value>) -> Result<ClientFrame, FrameError> {
    let wrong = |field| FrameError::Field { frame: "APPROVAL_DECISION", field };
    let id = text_of(fields, "approval_id").and_then(|id| id.parse().ok());
    Ok(ClientFrame::Decide {
        approval_id: id.ok_or(wrong("approval_id"))?,
        approved: fields.get("approved").and_then(Value::as_bool).ok_or(wrong("approved"))?,
        always: fields.get("always") == Some(&Value::Bool(true)),
    })
}

fn user_message(fields: &mut Map<String, Value>) -> Result<UserMessage, FrameError> {
    let wrong = |field| FrameError::Field { frame: "USER_MESSAGE", field };
    let content = match fields.remove("content") {
        Some(content @ (Value::String(_) | Value::Array(_))) => content,
        _ => return Err(wrong("content")),
    };
    let client_turn_id = text_of(fields, "client_turn_id")
        .filter(|id| (1..=128).contains(&id.len()))
        .ok_or(wrong("client_turn_id"))?;
    Ok(UserMessage { content, client_turn_id, model: text_of(fields, "model") })
}

fn flag_of(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// `ack` is accepted beside the surface context or inside it.
fn says_explicit_ack(fields: &Map<String, Value>) -> bool {
    let contexts = ["surface_context", "surface"].into_iter().filter_map(|name| fields.get(name));
    let said = contexts.map(|context| context.get("ack")).chain([fields.get("ack")]);
    said.flatten().any(|ack| ack == "explicit")
}

fn text_of(fields: &Map<String, Value>, name: &str) -> Option<String> {
    fields.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TurnStatus {
    /// The model finished its answer.
    #[default]
    Complete,
    /// Cancelled on request; the partial answer is kept.
    Cancelled,
    /// The gateway crashed or restarted twice while the turn ran.
    Interrupted,
    /// The turn failed, mostly because the upstream failed.
    Failed,
}

impl TurnStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            TurnStatus::Complete => "complete",
            TurnStatus::Cancelled => "cancelled",
            TurnStatus::Interrupted => "interrupted",
            TurnStatus::Failed => "failed",
        }
    }

    /// The status of that name; an unknown name counts as complete.
    pub fn named(text: &str) -> Self {
        [TurnStatus::Cancelled, TurnStatus::Interrupted, TurnStatus::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
            .unwrap_or_default()
    }
}

/// A frame from a gateway to a surface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ServerFrame {
    SessionAttached(SessionAttached),
    SessionNotFound {
        session_id: String,
        detail: String,
    },
    Forbidden {
        detail: String,
    },
    ProtocolError {
        detail: String,
    },
    TetherTurn(TetherTurn),
    /// More text of a running turn. `offset` is where `delta` begins, in UTF-8 bytes of the turn's
    /// text: 0 discards the text received so far.
    TurnChunk {
        chunk_id: TurnId,
        delta: String,
        session_id: SessionId,
        seq: Seq,
        offset: u64,
        /// Only for surfaces that read it.
        #[serde(flatten)]
        v0_9: Option<ChunkV0_9>,
    },
    TurnComplete(TurnComplete),
    /// The turn runs again after a crash: discard the text received so far (SBP-L1-13, ours).
    TurnRestarted {
        chunk_id: TurnId,
        turn_id: TurnId,
        session_id: SessionId,
    },
    /// A user message sent on another surface, or over HTTP (SBP-L2-20, ours).
    UserTurn {
        turn_id: TurnId,
        session_id: SessionId,
        content: String,
        /// Its log position; absent while the turn runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<Seq>,
        /// The device it was sent on, if that is attached and has a `surface_id`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        surface_id: Option<String>,
        /// The name of who said it, if it was not the session's user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        author: Option<String>,
    },
    /// The attached surfaces (SBP-L2-20, ours).
    Surfaces {
        session_id: SessionId,
        list: Vec<AttachedSurface>,
    },
    /// A `USER_MESSAGE` is stored and will be answered.
    TurnAccepted {
        client_turn_id: String,
        turn_id: TurnId,
        session_id: SessionId,
    },
    /// A `USER_MESSAGE` was refused, and nothing of it is stored. A turn that fails later appears
    /// in the log with its status.
    TurnFailed {
        client_turn_id: Option<String>,
        turn_id: Option<TurnId>,
        session_id: SessionId,
        code: String,
        message: String,
    },
    /// The agent calls a tool on the device; `TOOL_RESULT` answers it (SBP-L5-02).
    ToolCall {
        call_id: String,
        tool_name: String,
        tool_input: Value,
        /// How long the gateway waits for the result (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// A tool call waits for approval, given by `APPROVAL_DECISION` or over HTTP (ours).
    ApprovalRequest(Box<Approval>),
    /// The approval is no longer pending; `state` says why (ours).
    ApprovalResolved {
        approval_id: ApprovalId,
        session_id: SessionId,
        state: approval::ApprovalState,
    },
    /// The session was handed off while the surface was attached (ours).
    SessionHandedOff {
        session_id: SessionId,
        new_session_id: SessionId,
        to_agent_id: AgentId,
    },
    /// The session goes on at another gateway (SBP-L6-05, ours).
    SessionMoved(Box<SessionMoved>),
    Ping {},
    Pong {},
    /// A type that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// `SESSION_MOVED`: where the session goes on.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMoved {
    /// Its id here.
    pub session_id: SessionId,
    /// Its id there.
    pub new_session_id: SessionId,
    pub gateway_id: String,
    /// Where that gateway serves.
    pub url: String,
    /// Attaches there once, soon, in place of the session's token. Missing if that gateway gave none, or
    /// what the surface showed here was not enough to be sent on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_token: Option<String>,
    /// The newest messages of surfaces that became turns here: they went along and are not sent again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<AcceptedMessage>,
}

/// Without the token.
impl std::fmt::Debug for SessionMoved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionMoved")
            .field("session_id", &self.session_id)
            .field("new_session_id", &self.new_session_id)
            .field("gateway_id", &self.gateway_id)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// A message of a surface, and the turn that it became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedMessage {
    pub client_turn_id: String,
    pub turn_id: TurnId,
}

/// One surface of [`ServerFrame::Surfaces`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedSurface {
    pub surface_id: Option<String>,
    pub device_type: String,
    pub joined: bool,
    /// Whether it is the surface that receives this frame.
    pub you: bool,
}

/// `SESSION_ATTACHED`. Both counts are the same number (SBP-L2-04).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionAttached {
    pub session_id: SessionId,
    pub surface_id: Option<String>,
    pub device_type: String,
    pub queued_turns: u64,
    pub tether_turns_pending: u64,
    pub mcp_tools_registered: Vec<String>,
    pub sbp_version: String,
    pub sbp_level: String,
    /// The session's token here, if the session has come from another gateway and the surface cannot
    /// know it (SBP-L6-05).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<String>,
}

/// `TETHER_TURN`: a whole turn. On the wire flat per the specification, and once more nested in
/// `turn` for the public TypeScript client (SBP-L2-05).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TetherTurn {
    pub turn_index: u64,
    pub turn_id: TurnId,
    pub seq: Seq,
    pub role: Cow<'static, str>,
    pub content: String,
    pub model_used: Option<String>,
    pub created_at: Timestamp,
    pub session_id: SessionId,
    pub status: TurnStatus,
}

impl Serialize for TetherTurn {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Nested<'a> {
            role: &'a str,
            content: &'a RawValue,
            model_used: Option<&'a str>,
        }
        // The content is sent twice but escaped once: escaping is most of the cost of a drain.
        let content = to_raw_value(&self.content).map_err(serde::ser::Error::custom)?;
        let model_used = self.model_used.as_deref();
        let nested = Nested { role: &self.role, content: &content, model_used };
        let mut frame = to.serialize_struct("TetherTurn", 10)?;
        frame.serialize_field("turn_index", &self.turn_index)?;
        frame.serialize_field("turn_id", &self.turn_id)?;
        frame.serialize_field("seq", &self.seq)?;
        frame.serialize_field("role", &self.role)?;
        frame.serialize_field("content", &content)?;
        frame.serialize_field("model_used", &self.model_used)?;
        frame.serialize_field("created_at", &self.created_at)?;
        frame.serialize_field("session_id", &self.session_id)?;
        frame.serialize_field("status", &self.status)?;
        frame.serialize_field("turn", &nested)?;
        frame.end()
    }
}

/// `TURN_COMPLETE`: all chunks of `chunk_id` were sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnComplete {
    pub chunk_id: TurnId,
    pub session_id: SessionId,
    pub seq: Seq,
    pub turn_id: TurnId,
    pub step_count: u64,
    pub model: Option<String>,
    pub status: TurnStatus,
    /// Only for surfaces that read it.
    #[serde(flatten)]
    pub v0_9: Option<CompleteV0_9>,
}

impl ServerFrame {
    /// The frame as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("frames hold nothing JSON cannot say")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn sbp_l2_02_attach_is_read_with_either_field_name() {
        for name in ["surface", "surface_context"] {
            let text = json!({"type":"ATTACH_SESSION","session_id":"s","session_token":"t",
                              name: {"device_type":"iot"}})
            .to_string();
            let ClientFrame::Attach(attach) = ClientFrame::read(&text).unwrap() else { panic!() };
            assert_eq!((attach.session_id.as_str(), attach.session_token.as_str()), ("s", "t"));
            assert_eq!(attach.surface.device_type.as_str(), "iot");
        }
    }

    #[test]
    fn sbp_l2_17_unknown_types_are_ignored_and_unreadable_frames_are_named() {
        assert_eq!(ClientFrame::read(r#"{"type":"DANCE","x":1}"#), Ok(ClientFrame::Unknown));
        for text in ["", "nonsense", "[]", "3", "\u{0}"] {
            assert_eq!(ClientFrame::read(text), Err(FrameError::NotAnObject), "{text:?}");
        }
        assert_eq!(ClientFrame::read(r#"{"type":7}"#), Err(FrameError::NoType));
        assert_eq!(ClientFrame::read(&"[".repeat(100)), Err(FrameError::TooDeep));
        assert_eq!(
            ClientFrame::read(r#"{"type":"TETHER_ACK","seq":"9"}"#),
            Err(FrameError::Field { frame: "TETHER_ACK", field: "seq" })
        );
    }

    #[test]
    fn sbp_l5_02_an_error_that_is_no_text_is_an_error_all_the_same() {
        for (error, said) in [
            (json!("no film"), Some("no film")),
            (json!(null), None),
            (json!({"code": 7}), Some(r#"{"code":7}"#)),
            (json!(false), Some("false")),
        ] {
            let frame = json!({"type":"TOOL_RESULT","call_id":"c","error":error,"result":1});
            let read = ClientFrame::read(&frame.to_string()).unwrap();
            let error = said.map(str::to_owned);
            let call_id = "c".into();
            assert_eq!(read, ClientFrame::ToolResult { call_id, result: json!(1), error });
        }
    }

    #[test]
    fn a_user_message_needs_content_and_a_name() {
        let read = |value: Value| ClientFrame::read(&value.to_string());
        let good = json!({"type":"USER_MESSAGE","content":"hi","client_turn_id":"c1"});
        let ClientFrame::UserMessage(message) = read(good).unwrap() else { panic!() };
        assert_eq!((message.content, message.model), (json!("hi"), None));
        let wrong = |field| Err(FrameError::Field { frame: "USER_MESSAGE", field });
        assert_eq!(read(json!({"type":"USER_MESSAGE","client_turn_id":"c"})), wrong("content"));
        assert_eq!(read(json!({"type":"USER_MESSAGE","content":"x"})), wrong("client_turn_id"));
    }

    #[test]
    fn an_unreadable_decision_is_not_a_yes() {
        let id = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
        let read = |value: Value| ClientFrame::read(&value.to_string());
        let good = json!({"type":"APPROVAL_DECISION","approval_id":id,"approved":true});
        let approval_id = id.parse().unwrap();
        assert_eq!(
            read(good),
            Ok(ClientFrame::Decide { approval_id, approved: true, always: false })
        );
        for approved in [json!("true"), json!(1), Value::Null] {
            let frame = json!({"type":"APPROVAL_DECISION","approval_id":id,"approved":approved});
            let wrong = FrameError::Field { frame: "APPROVAL_DECISION", field: "approved" };
            assert_eq!(read(frame), Err(wrong));
        }
    }

    #[test]
    fn sbp_l2_05_a_tether_turn_has_flat_and_nested_fields() {
        let id = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
        let frame = ServerFrame::TetherTurn(TetherTurn {
            turn_index: 0,
            turn_id: id.parse().unwrap(),
            seq: 2,
            role: "assistant".into(),
            content: "hi".into(),
            model_used: Some("m".into()),
            created_at: Timestamp::UNIX_EPOCH,
            session_id: id.parse().unwrap(),
            status: TurnStatus::Complete,
        });
        let expected = json!({
            "type":"TETHER_TURN","turn_index":0,"turn_id":id,"seq":2,"role":"assistant",
            "content":"hi","model_used":"m","created_at":"1970-01-01T00:00:00Z","session_id":id,
            "status":"complete","turn":{"role":"assistant","content":"hi","model_used":"m"},
        });
        assert_eq!(serde_json::from_str::<Value>(&frame.to_json()).unwrap(), expected);
        assert_eq!(serde_json::from_str::<ServerFrame>(&frame.to_json()).unwrap(), frame);
    }

    #[test]
    fn a_frame_from_a_newer_gateway_is_unknown_not_an_error() {
        let frame: ServerFrame = serde_json::from_str(r#"{"type":"NEW","x":1}"#).unwrap();
        assert_eq!(frame, ServerFrame::Unknown);
    }

    proptest! {
        #[test]
        fn any_text_reads_or_fails_without_panic(text in "\\PC{0,300}") {
            let _ = ClientFrame::read(&text);
            let framed = json!({"type": "USER_MESSAGE", "content": text, "client_turn_id": text});
            let _ = ClientFrame::read(&framed.to_string());
        }
    }
}
