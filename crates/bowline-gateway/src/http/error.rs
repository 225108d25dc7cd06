//! Failures as HTTP responses: one JSON shape, which OpenAI's SDKs can read, too.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_sbp::access::Scope;
use bowline_sbp::api::{ErrorBody, ErrorDetail};
use bowline_sbp::error::{Code, Failure, UpstreamError};

use crate::auth::Denied;

/// An error response: what went wrong, and what to do.
#[derive(Debug)]
pub(crate) struct ApiError {
    code: Code,
    message: String,
    detail: Option<String>,
    param: Option<&'static str>,
    /// The request's body was not read: the connection cannot be used again.
    closes: bool,
    retry_after: Option<u64>,
    /// What the upstream said. Its status and code take precedence.
    upstream: Option<Box<UpstreamError>>,
}

/// The same as `Retry-After`, in milliseconds. OpenAI's SDKs read it first.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Tells OpenAI's SDKs whether to send the request again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            message,
            detail: None,
            param: None,
            closes: false,
            retry_after: None,
            upstream: None,
        }
    }

    /// Adds what to do about it.
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Names the request field at fault.
    pub(crate) fn param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    /// Says that the connection ends: the request was refused before its body was read, and a client
    /// that sent its next request on the same connection would lose it.
    pub(crate) fn before_the_body(mut self) -> Self {
        self.closes = true;
        self
    }

    pub(crate) fn internal() -> Self {
        Self::new(Code::Internal, "internal error; the gateway's log says more")
    }

    pub(crate) fn no_session() -> Self {
        Self::new(Code::SessionNotFound, "there is no such session here")
            .detail("check the id; GET /v1/sessions lists what is here")
    }

    fn body(&self) -> ErrorBody {
        let said = self.upstream.as_ref();
        let code = said.and_then(|said| said.code.as_deref()).unwrap_or(self.code.openai_code());
        let kind = said.map_or(self.code.openai_type(), |said| said.openai_type());
        let param = said.and_then(|said| said.param.as_deref()).or(self.param);
        ErrorBody {
            error: ErrorDetail {
                code: code.into(),
                message: self.message.clone(),
                detail: self.detail.clone(),
                kind: kind.into(),
                param: param.map(str::to_owned),
            },
        }
    }

    fn status(&self) -> StatusCode {
        let status =
            self.upstream.as_ref().map_or(self.code.http_status(), |said| said.http_status());
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The error as JSON text, for the middle of a stream.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(&self.body()).expect("an error body serialises")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.body())).into_response();
        let headers = response.headers_mut();
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(said) = &self.upstream {
            if let Some(millis) = said.retry_after_ms {
                headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
            }
            // The status is a 502 because something is stored, but the upstream will refuse again.
            if said.partial && !said.may_pass() {
                headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            }
        }
        // Until the budget is renewed, every try would be refused.
        if matches!(self.code, Code::QuotaSpent | Code::QuotaSpentMidway) {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if self.code == Code::Unauthorized {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let mut error = Self::new(failure.code, failure.message);
        error.retry_after = failure.retry_after;
        error.upstream = failure.upstream;
        error
    }
}

impl From<bowline_store::Error> for ApiError {
    fn from(error: bowline_store::Error) -> Self {
        Failure::from(error).into()
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Missing => {
                Self::new(Code::Unauthorized, "this needs an API key or a session token").detail(
                    "send it as `Authorization: Bearer …`, a session token also as X-Session-Token",
                )
            }
            Denied::Wrong => Self::new(Code::Forbidden, "that key or token does not open this")
                .detail("check that it belongs to this session and this gateway"),
            Denied::Forwarded => Self::new(
                Code::Forbidden,
                "this came through a proxy, and the gateway is open only to its own machine",
            )
            .detail(
                "whoever reaches the proxy would be let in: set auth.api_keys or add a user, or say \
                 access.loopback = \"open\" if that is meant",
            ),
            Denied::Unpaired => {
                Self::new(Code::Forbidden, "this device was unpaired, or its access has expired")
                    .detail("pair it again with a new code")
            }
            Denied::Scope(scope) => {
                Self::new(Code::Forbidden, format!("this needs the scope `{scope}`")).detail(
                    match scope {
                        Scope::Admin => {
                            "use a key with that scope, or on the gateway's machine the \
                                         key in local.key of its data folder"
                        }
                        _ => "use a key that was made with that scope",
                    },
                )
            }
            Denied::NotFor(what) => {
                Self::new(Code::Forbidden, format!("that key is not for this {what}"))
                    .detail("use another key, or have one made for it")
            }
            Denied::NoSession => Self::no_session(),
            Denied::Exceeded(exceeded) => Failure::from(*exceeded).into(),
            Denied::Store(error) => error.into(),
        }
    }
}
