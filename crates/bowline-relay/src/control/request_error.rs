//! Why a request is refused, with HTTP status, code and text in one table.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_net::rate::TooOften;
use bowline_sbrp::api::{BadBody, Refusal, RefusalDetail};

use super::http::Counted;
use super::registry;
use crate::metrics_access::METRICS_REFUSED;

/// Why a request is refused. The texts hold nothing from the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("this needs an API key: send it as `Authorization: Bearer …`")]
    NoKey,
    #[error("that API key does not open anything here")]
    WrongKey,
    #[error("the daemon does not know this device; pair it, or wait until it is registered")]
    UnknownDevice,
    #[error("the request is signed for another time: sign it again with {now}, this server's time")]
    ClockSkew { now: u64 },
    #[error("{METRICS_REFUSED}")]
    NoMetrics,
    #[error("there is no such daemon")]
    NoDaemon,
    #[error("the daemon was revoked; it needs a new identity to be registered again")]
    DaemonRevoked,
    #[error("another process of the daemon registered later; this one has to wait for its end")]
    Replaced,
    #[error("no relay takes new daemons now; come again later")]
    NoActiveRelay,
    #[error("a user may have {0} daemons; revoke one first")]
    TooManyDaemons(u32),
    #[error("a user may register {0} new daemons a day; register the known ones again instead")]
    TooManyNewDaemons(u32),
    #[error(transparent)]
    Body(#[from] BadBody),
    #[error("the body is over {0} bytes")]
    TooLarge(usize),
    #[error("the body broke off or took too long")]
    BrokenOff,
    #[error("too many requests; wait before the next one")]
    TooOften(Duration),
    #[error("there is nothing at this address")]
    Nowhere,
    #[error("this address does not take that method")]
    WrongMethod,
    #[error("the registry could not do it; the log says more")]
    Registry,
}

impl RequestError {
    fn table(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoKey | Self::WrongKey | Self::NoMetrics => {
                (StatusCode::UNAUTHORIZED, "unauthorized")
            }
            Self::UnknownDevice => (StatusCode::UNAUTHORIZED, RefusalDetail::UNKNOWN_DEVICE),
            Self::ClockSkew { .. } => (StatusCode::UNAUTHORIZED, RefusalDetail::CLOCK_SKEW),
            Self::NoDaemon | Self::Nowhere => (StatusCode::NOT_FOUND, "not_found"),
            Self::DaemonRevoked | Self::TooManyDaemons(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::Replaced => (StatusCode::CONFLICT, RefusalDetail::REPLACED),
            Self::NoActiveRelay => (StatusCode::SERVICE_UNAVAILABLE, RefusalDetail::NO_RELAY),
            Self::Body(_) | Self::BrokenOff => (StatusCode::BAD_REQUEST, "invalid_request"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "invalid_request"),
            Self::WrongMethod => (StatusCode::METHOD_NOT_ALLOWED, "invalid_request"),
            Self::TooOften(_) | Self::TooManyNewDaemons(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_limited")
            }
            Self::Registry => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }

    /// A stable code for clients, metrics and the audit log.
    pub fn code(&self) -> &'static str {
        self.table().1
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let (status, code) = self.table();
        let now = match self {
            Self::ClockSkew { now } => Some(now),
            _ => None,
        };
        let error = RefusalDetail { code: code.to_owned(), message: self.to_string(), now };
        let mut response = (status, Json(Refusal { error })).into_response();
        response.extensions_mut().insert(Counted(code));
        let headers = response.headers_mut();
        match self {
            _ if status == StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::TooManyNewDaemons(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(3600));
            }
            Self::TooOften(wait) => {
                // Rounded up, so that a retry after this time is accepted.
                let seconds = wait.as_millis().div_ceil(1000).max(1) as u64;
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            _ => {}
        }
        response
    }
}

impl From<TooOften> for RequestError {
    fn from(TooOften(wait): TooOften) -> Self {
        Self::TooOften(wait)
    }
}

impl From<registry::Error> for RequestError {
    fn from(error: registry::Error) -> Self {
        use registry::Error;
        match error {
            Error::UnknownKey => Self::WrongKey,
            Error::UnknownDevice => Self::UnknownDevice,
            Error::NoDaemon => Self::NoDaemon,
            Error::Replaced => Self::Replaced,
            Error::NoActiveRelay => Self::NoActiveRelay,
            Error::DaemonRevoked => Self::DaemonRevoked,
            Error::TooManyDaemons(most) => Self::TooManyDaemons(most),
            Error::TooManyNewDaemons(most) => Self::TooManyNewDaemons(most),
            Error::NoUser
            | Error::NameTaken
            | Error::BadName
            | Error::NoRelay
            | Error::RelayTaken
            | Error::BadRelayName
            | Error::BadRelayUrl
            | Error::LastRelay
            | Error::RelayInUse(_)
            | Error::Database(_)
            | Error::Closed => {
                tracing::error!(%error, "the registry failed");
                Self::Registry
            }
        }
    }
}
