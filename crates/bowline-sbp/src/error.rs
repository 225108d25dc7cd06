//! The protocol's errors: codes, HTTP statuses, WebSocket close codes.
//!
//! One table for all of it. A code says what happened; `docs/errors.md` says what to do about it.

mod overflow;
mod upstream;

pub use self::upstream::UpstreamError;

use serde::{Deserialize, Serialize};

/// The codes of `{"error":{"code":…}}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Code {
    SessionNotFound,
    TokenExpired,
    TokenConsumed,
    TokenInvalid,
    TokenIntegrity,
    InvalidUuid,
    SessionConflict,
    Internal,
    /// The request cannot be read (400).
    MalformedRequest,
    /// The request can be read and asks for something impossible (422).
    InvalidRequest,
    /// The request is larger than a limit (413).
    TooLarge,
    Unauthorized,
    Forbidden,
    NotFound,
    RateLimited,
    /// A budget of the user or key is used up; nothing is stored (429).
    QuotaSpent,
    /// The same in the middle of a turn of which something is stored. A status below 500 would say
    /// that nothing is (G4).
    QuotaSpentMidway,
    /// The upstream failed or sent an invalid answer (502).
    Upstream,
    /// The upstream cannot be reached (503).
    Unavailable,
    /// The gateway is stopping, or its store cannot write right now (503).
    NotNow,
    /// The upstream did not answer in time (504).
    UpstreamTimeout,
    /// The idempotency key was used before with another request (409).
    KeyReused,
}

impl Code {
    /// Every code, for documents and tests.
    pub const ALL: [Code; 22] = [
        Code::SessionNotFound,
        Code::TokenExpired,
        Code::TokenConsumed,
        Code::TokenInvalid,
        Code::TokenIntegrity,
        Code::InvalidUuid,
        Code::SessionConflict,
        Code::Internal,
        Code::MalformedRequest,
        Code::InvalidRequest,
        Code::TooLarge,
        Code::Unauthorized,
        Code::Forbidden,
        Code::NotFound,
        Code::RateLimited,
        Code::QuotaSpent,
        Code::QuotaSpentMidway,
        Code::Upstream,
        Code::Unavailable,
        Code::NotNow,
        Code::UpstreamTimeout,
        Code::KeyReused,
    ];

    /// The name on the wire, the HTTP status and OpenAI's error `type`.
    fn row(self) -> (&'static str, u16, &'static str) {
        match self {
            Code::SessionNotFound => ("SBP_SESSION_NOT_FOUND", 404, "invalid_request_error"),
            Code::TokenExpired => ("SBP_TOKEN_EXPIRED", 410, "invalid_request_error"),
            Code::TokenConsumed => ("SBP_TOKEN_CONSUMED", 410, "invalid_request_error"),
            Code::TokenInvalid => ("SBP_TOKEN_INVALID", 422, "invalid_request_error"),
            Code::TokenIntegrity => ("SBP_TOKEN_INTEGRITY", 422, "invalid_request_error"),
            Code::InvalidUuid => ("SBP_INVALID_UUID", 422, "invalid_request_error"),
            Code::SessionConflict => ("SBP_SESSION_CONFLICT", 409, "invalid_request_error"),
            Code::Internal => ("SBP_INTERNAL", 500, "server_error"),
            Code::MalformedRequest => ("SBP_INVALID_REQUEST", 400, "invalid_request_error"),
            Code::InvalidRequest => ("SBP_INVALID_REQUEST", 422, "invalid_request_error"),
            Code::TooLarge => ("SBP_INVALID_REQUEST", 413, "invalid_request_error"),
            Code::Unauthorized => ("SBP_UNAUTHORIZED", 401, "authentication_error"),
            Code::Forbidden => ("SBP_FORBIDDEN", 403, "permission_error"),
            Code::NotFound => ("SBP_NOT_FOUND", 404, "invalid_request_error"),
            Code::RateLimited => ("SBP_RATE_LIMITED", 429, "rate_limit_error"),
            Code::QuotaSpent => ("SBP_RATE_LIMITED", 429, QUOTA),
            Code::QuotaSpentMidway => ("SBP_RATE_LIMITED", 502, QUOTA),
            Code::Upstream => ("SBP_UPSTREAM", 502, "server_error"),
            Code::Unavailable => ("SBP_UPSTREAM", 503, "server_error"),
            Code::NotNow => ("SBP_INTERNAL", 503, "server_error"),
            Code::UpstreamTimeout => ("SBP_UPSTREAM", 504, "server_error"),
            Code::KeyReused => ("SBP_SESSION_CONFLICT", 409, "invalid_request_error"),
        }
    }

    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    pub fn http_status(self) -> u16 {
        self.row().1
    }

    pub fn openai_type(self) -> &'static str {
        self.row().2
    }

    /// The `code` over HTTP: ours, but where programs that know OpenAI's API act on another one.
    pub fn openai_code(self) -> &'static str {
        match self {
            Code::QuotaSpent | Code::QuotaSpentMidway => QUOTA,
            code => code.as_str(),
        }
    }
}

/// OpenAI's `type` and `code` for a budget that is used up: its SDKs and the programs that use them
/// know that a retry is useless.
const QUOTA: &str = "insufficient_quota";

/// A failed request, as it is reported to the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: Code,
    pub message: String,
    /// Seconds after which a retry may succeed.
    pub retry_after: Option<u64>,
    /// What the upstream said, if it refused the request. Boxed: most failures have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Box<UpstreamError>>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, upstream: None }
    }

    /// The HTTP status for the caller: the upstream's if it refused, so that SDKs of OpenAI's API
    /// act on it as usual.
    pub fn http_status(&self) -> u16 {
        self.upstream.as_ref().map_or(self.code.http_status(), |said| said.http_status())
    }

    /// Whether a client that sends the request again is refused again.
    pub fn is_out_of_quota(&self) -> bool {
        matches!(self.code, Code::QuotaSpent | Code::QuotaSpentMidway)
    }

    /// The failure of a turn of which something is stored (see [`UpstreamError::partial`]).
    pub fn after_storing(mut self) -> Self {
        if let Some(said) = &mut self.upstream {
            said.partial = true;
        }
        if self.code == Code::QuotaSpent {
            self.code = Code::QuotaSpentMidway;
        }
        self
    }
}

/// Why a gateway closes a surface's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// `DETACH`, or the surface closed.
    Normal,
    /// The first frame was not a usable `ATTACH_SESSION` (SBP-L2-02).
    Protocol,
    /// The gateway is stopping or restarting; reconnect soon (G16).
    ServiceRestart,
    /// A message over the size limit (G11).
    TooBig,
    /// The gateway cannot serve the surface now; reconnect later.
    TryAgain,
    /// Wrong token (SBP-L2-03).
    Forbidden,
    /// No such session (SBP-L2-03).
    NotFound,
    /// A newer surface replaced this one (SBP-L2-16). Do not reconnect automatically.
    Replaced,
    /// The session was handed off to a new session (SBP-L3-10). The frame before it says which.
    HandedOff,
    /// The session has moved to another gateway (SBP-L6-05). The frame before it says where; without
    /// it, reconnect and ask.
    Moved,
}

impl Close {
    /// The WebSocket close code and its reason text.
    pub fn parts(self) -> (u16, &'static str) {
        match self {
            Close::Normal => (1000, ""),
            Close::Protocol => (1003, "protocol error"),
            Close::ServiceRestart => (1012, "service restart"),
            Close::TooBig => (1009, "message too big"),
            Close::TryAgain => (1013, "try again later"),
            Close::Forbidden => (4003, "forbidden"),
            Close::NotFound => (4004, "session not found"),
            Close::Replaced => (4009, "replaced"),
            Close::HandedOff => (4010, "handed off"),
            Close::Moved => (4011, "moved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocols_codes_have_the_protocols_statuses() {
        for (code, name, status) in [
            (Code::SessionNotFound, "SBP_SESSION_NOT_FOUND", 404),
            (Code::TokenExpired, "SBP_TOKEN_EXPIRED", 410),
            (Code::TokenConsumed, "SBP_TOKEN_CONSUMED", 410),
            (Code::TokenInvalid, "SBP_TOKEN_INVALID", 422),
            (Code::TokenIntegrity, "SBP_TOKEN_INTEGRITY", 422),
            (Code::InvalidUuid, "SBP_INVALID_UUID", 422),
            (Code::SessionConflict, "SBP_SESSION_CONFLICT", 409),
            (Code::Internal, "SBP_INTERNAL", 500),
        ] {
            assert_eq!((code.as_str(), code.http_status()), (name, status));
        }
    }

    #[test]
    fn a_failure_that_an_older_version_stored_is_read() {
        let old = r#"{"code":"RateLimited","message":"m","retry_after":3}"#;
        let failure: Failure = serde_json::from_str(old).unwrap();
        assert_eq!(
            failure,
            Failure { retry_after: Some(3), ..Failure::new(Code::RateLimited, "m") }
        );
        assert_eq!(
            serde_json::to_string(&failure).unwrap(),
            old,
            "and an older version reads ours"
        );
        let said =
            r#"{"code":"Upstream","message":"m","retry_after":null,"upstream":{"status":404}}"#;
        assert_eq!(serde_json::from_str::<Failure>(said).unwrap().http_status(), 404);
    }

    #[test]
    fn every_code_is_an_error_status() {
        for code in Code::ALL {
            assert!((400..600).contains(&code.http_status()), "{code:?}");
        }
    }
}
