//! Failures as HTTP responses: one JSON shape, which OpenAI's SDKs can read, too.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_sbp::api::{ErrorBody, ErrorDetail};
use bowline_sbp::error::{Code, Failure};

use crate::auth::Denied;

/// An error response: what went wrong, and what to do.
#[derive(Debug)]
pub(crate) struct ApiError {
    code: Code,
    message: String,
    detail: Option<String>,
    param: Option<&'static str>,
    retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None, param: None, retry_after: None }
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

    pub(crate) fn internal() -> Self {
        Self::new(Code::Internal, "internal error; the gateway's log says more")
    }

    pub(crate) fn no_session() -> Self {
        Self::new(Code::SessionNotFound, "there is no such session here")
            .detail("check the id; GET /v1/sessions lists what is here")
    }

    fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                code: self.code.as_str().into(),
                message: self.message.clone(),
                detail: self.detail.clone(),
                kind: self.code.openai_type().into(),
                param: self.param.map(str::to_owned),
            },
        }
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
        let status = StatusCode::from_u16(self.code.http_status())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
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
        }
    }
}
