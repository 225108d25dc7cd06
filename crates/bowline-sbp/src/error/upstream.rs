//! What a model's server said when it refused a request.
//!
//! Apart from [`Code`](super::Code), because programs that know OpenAI's API act on the server's own
//! status and code (`context_length_exceeded`, `insufficient_quota`), which differ between servers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest code, type or parameter name that is kept, in characters.
const LONGEST_NAME: usize = 128;
/// The longest message that is kept, in characters.
const LONGEST_MESSAGE: usize = 1000;
/// For an error event that names no status: the upstream failed.
const FAILED: u16 = 502;

/// The error of an upstream, in OpenAI's words. Every text is short.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamError {
    /// The HTTP status, or the one that an error event inside a stream stands for.
    pub status: u16,
    /// Its `code`, such as `context_length_exceeded`. Never one of ours.
    pub code: Option<String>,
    /// Its `type`.
    pub kind: Option<String>,
    /// The request field at fault.
    pub param: Option<String>,
    /// Its `retry-after-ms`.
    pub retry_after_ms: Option<u64>,
    /// The context size in tokens, if a field named it.
    pub context_size: Option<u64>,
    /// Part of the turn is stored. Statuses below 500 would say that nothing is (G4).
    pub partial: bool,
}

impl UpstreamError {
    /// Reads an error body and its message. Knows OpenAI's shape, the flat one of older servers, a
    /// bare text, and each of them as the only item of a list. `status`: that of the response; an
    /// error event has none, and its body may name one.
    pub fn read(status: Option<u16>, body: &Value) -> (Self, Option<String>) {
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let message = error.as_str().or_else(|| {
            ["message", "detail", "error"].iter().find_map(|name| error.get(name)?.as_str())
        });
        let name = |field: &str| error.get(field).and_then(Value::as_str).and_then(short_name);
        let (code, kind) = (name("code").filter(|code| is_theirs(code)), name("type"));
        let status = status
            .or_else(|| named_status(error))
            .or_else(|| [&code, &kind].into_iter().flatten().find_map(|name| status_of_name(name)));
        let said = Self {
            status: status.unwrap_or(FAILED),
            code,
            kind,
            param: name("param"),
            context_size: error.get("n_ctx").and_then(Value::as_u64),
            ..Self::default()
        };
        (said, message.map(|text| text.chars().take(LONGEST_MESSAGE).collect()))
    }

    /// The status for the caller.
    pub fn http_status(&self) -> u16 {
        if self.partial && self.status < 500 { FAILED } else { self.status }
    }

    /// OpenAI's `type`: the upstream's, else the usual one for its status.
    pub fn openai_type(&self) -> &str {
        let usual = match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        };
        self.kind.as_deref().unwrap_or(usual)
    }

    /// Whether the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(self.status, 408 | 409 | 429 | 500..)
    }
}

/// A code that is no number and none of ours: callers act on ours.
fn is_theirs(code: &str) -> bool {
    !code.starts_with("SBP_") && code.parse::<f64>().is_err()
}

fn short_name(text: &str) -> Option<String> {
    let is_name = !text.is_empty() && !text.contains(char::is_control);
    (is_name && text.chars().count() <= LONGEST_NAME).then(|| text.to_owned())
}

/// The status that an error names in a field. Many servers put it in `code`, as a number or as text.
fn named_status(error: &Value) -> Option<u16> {
    ["status", "status_code", "code"].iter().find_map(|name| {
        let value = error.get(name)?;
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
        u16::try_from(number).ok().filter(|status| (400..600).contains(status))
    })
}

/// The status with which servers send this code or type.
fn status_of_name(name: &str) -> Option<u16> {
    Some(match name {
        "context_length_exceeded" | "invalid_request_error" | "exceed_context_size_error" => 400,
        "invalid_api_key" | "authentication_error" => 401,
        "permission_error" => 403,
        "model_not_found" | "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_exceeded" | "rate_limit_error" | "insufficient_quota" => 429,
        "overloaded_error" => 503,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: Option<u16>, body: Value) -> (u16, Option<String>, String) {
        let (error, message) = UpstreamError::read(status, &body);
        (error.status, error.code, message.unwrap_or_default())
    }

    #[test]
    fn every_servers_shape_is_read() {
        let code = |code: &str| Some(code.to_owned());
        let message = "m".to_owned();
        for (status, body, read_as) in [
            (
                Some(404),
                json!({"error": {"message": "m", "code": "model_not_found"}}),
                (404, code("model_not_found")),
            ),
            (Some(400), json!({"error": {"message": "m", "code": 400}}), (400, None)),
            (Some(400), json!({"object": "error", "message": "m", "code": "x"}), (400, code("x"))),
            (Some(500), json!({"error": "m"}), (500, None)),
            (Some(422), json!({"detail": "m"}), (422, None)),
            (Some(429), json!([{"error": {"message": "m", "code": 429}}]), (429, None)),
            (
                Some(400),
                json!({"error": {"message": "m", "code": "SBP_TOKEN_EXPIRED"}}),
                (400, None),
            ),
            (None, json!({"error": {"message": "m", "code": 429}}), (429, None)),
            (None, json!({"error": {"message": "m", "code": "402"}}), (402, None)),
            (None, json!({"error": {"message": "m", "code": 20012}}), (502, None)),
            (
                None,
                json!({"error": {"message": "m", "code": "insufficient_quota"}}),
                (429, code("insufficient_quota")),
            ),
            (
                None,
                json!({"error": {"message": "m", "type": "invalid_request_error"}}),
                (400, None),
            ),
            (None, json!({"error": {"message": "m", "type": "server_error"}}), (502, None)),
        ] {
            assert_eq!(
                read(status, body.clone()),
                (read_as.0, read_as.1, message.clone()),
                "{body}"
            );
        }
        assert_eq!(read(Some(500), json!(null)), (500, None, String::new()));
    }

    #[test]
    fn g11_long_texts_are_cut_and_long_names_dropped() {
        let long = "é".repeat(5000);
        let body = json!({"error": {"message": long, "code": long, "type": "a\nb", "param": long}});
        let (error, message) = UpstreamError::read(Some(400), &body);
        assert_eq!(error, UpstreamError { status: 400, ..UpstreamError::default() });
        assert_eq!(message.unwrap().chars().count(), LONGEST_MESSAGE);
    }

    #[test]
    fn g4_a_refusal_after_something_was_stored_is_no_4xx() {
        for (status, partial, told) in
            [(400, false, 400), (400, true, 502), (429, true, 502), (503, true, 503)]
        {
            let error = UpstreamError { status, partial, ..UpstreamError::default() };
            assert_eq!(error.http_status(), told);
        }
    }
}
