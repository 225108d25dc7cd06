//! Requests to `/mcp` that are not JSON-RPC: answered with a JSON-RPC error, which MCP hosts can
//! read.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bowline_sbp::json::{MAX_DEPTH, within_depth};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode};
use serde::Deserialize;
use serde_json::{Value, json};

/// Why a body is not a message of JSON-RPC.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed {
    code: ErrorCode,
    message: String,
    /// The request's id, if it can be read.
    id: Value,
}

impl IntoResponse for Malformed {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.code.0, "message": self.message });
        let body = json!({ "jsonrpc": "2.0", "id": self.id, "error": error });
        (StatusCode::BAD_REQUEST, Json(body)).into_response()
    }
}

/// Checks that the body is one message of MCP.
pub(super) fn check(body: &[u8]) -> Result<(), Malformed> {
    let invalid = |message: String, id: Value| {
        Err(Malformed { code: ErrorCode::INVALID_REQUEST, message, id })
    };
    if !within_depth(body, MAX_DEPTH) {
        return invalid(format!("the body nests deeper than {MAX_DEPTH}"), Value::Null);
    }
    let request: Value = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => {
            let message = format!("the body is not JSON: {error}");
            return Err(Malformed { code: ErrorCode::PARSE_ERROR, message, id: Value::Null });
        }
    };
    if request.is_array() {
        return invalid(
            "send one message at a time: batches are not supported".into(),
            Value::Null,
        );
    }
    let id = request.get("id").filter(|id| id.is_string() || id.is_number());
    let id = id.cloned().unwrap_or_default();
    match ClientJsonRpcMessage::deserialize(request) {
        Ok(_) => Ok(()),
        Err(_) => invalid("the body is not a message of JSON-RPC 2.0".into(), id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> (i32, Value) {
        let malformed = check(body.as_bytes()).unwrap_err();
        (malformed.code.0, malformed.id)
    }

    #[test]
    fn what_is_not_json_rpc_is_called_so_with_its_id() {
        for body in ["", "{", "{\"jsonrpc\":\"2.0\",", "nonsense", "\u{1}"] {
            assert_eq!(refused(body), (-32700, Value::Null), "{body}");
        }
        for (body, id) in [
            ("7", json!(null)),
            ("null", json!(null)),
            ("[]", json!(null)),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, json!(null)),
            ("{}", json!(null)),
            (r#"{"id":3,"method":"ping"}"#, json!(3)),
            (r#"{"jsonrpc":"1.0","id":"x","method":"ping"}"#, json!("x")),
            (r#"{"jsonrpc":"2.0","id":4}"#, json!(4)),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, json!(null)),
        ] {
            assert_eq!(refused(body), (-32600, id), "{body}");
        }
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(refused(&deep).0, -32600);
        assert_eq!(check(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), Ok(()));
        assert_eq!(check(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), Ok(()));
    }
}
