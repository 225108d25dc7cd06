//! Why a request is refused, with status, code and text in one table.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bowline_federation::PeerFault;
use bowline_net::body::BodyError;
use bowline_net::rate::TooOften;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::RegistryError;
use serde_json::json;

use crate::registry;

/// Why a request is refused. The texts hold nothing from the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(
        "an announcement has gateway_id, url, cids (cid, expires_at), withdraw, issued_at and signature, \
         and nothing else: a tracker takes no content"
    )]
    NotAnAnnouncement,
    #[error(transparent)]
    Announcement(#[from] RegistryError),
    #[error("this tracker takes announcements of its own peers only")]
    NotAPeer,
    #[error("the announcer's key could not be verified at its address: {0}")]
    Announcer(#[source] PeerFault),
    #[error("what is at the announcer's address is another gateway, or names another address")]
    Elsewhere,
    #[error("a content id is 64 lower-case hexadecimal digits")]
    BadCid,
    #[error("the body is over {0} bytes")]
    TooLarge(usize),
    #[error("the body broke off or took too long")]
    BrokenOff,
    #[error("too many requests; wait before the next one")]
    TooOften(TooOften),
    #[error("{0}")]
    Registry(#[source] registry::Error),
    #[error("there is nothing at this address")]
    Nowhere,
    #[error("this address does not take that method")]
    WrongMethod,
}

impl RequestError {
    fn code(&self) -> Code {
        match self {
            Self::NotAnAnnouncement | Self::BadCid => Code::InvalidRequest,
            Self::Announcement(RegistryError::Unreadable) => Code::MalformedRequest,
            Self::Announcement(RegistryError::Limits) => Code::InvalidRequest,
            Self::Announcement(_) => Code::Unauthorized,
            Self::NotAPeer | Self::Elsewhere => Code::Forbidden,
            Self::Announcer(PeerFault::Target(_) | PeerFault::NotPublic(_)) => Code::Forbidden,
            Self::Announcer(PeerFault::BackedOff { .. } | PeerFault::Unreachable(_)) => {
                Code::Unavailable
            }
            Self::Announcer(PeerFault::Late(_)) => Code::UpstreamTimeout,
            Self::Announcer(_) => Code::Upstream,
            Self::TooLarge(_) => Code::TooLarge,
            Self::BrokenOff => Code::MalformedRequest,
            Self::TooOften(_) => Code::RateLimited,
            Self::Registry(registry::Error::GatewayFull(_)) => Code::Forbidden,
            Self::Registry(registry::Error::Full) => Code::NotNow,
            Self::Registry(_) => Code::Internal,
            Self::Nowhere | Self::WrongMethod => Code::NotFound,
        }
    }
}

impl From<TooOften> for RequestError {
    fn from(error: TooOften) -> Self {
        Self::TooOften(error)
    }
}

impl From<BodyError> for RequestError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { most } => Self::TooLarge(most),
            BodyError::BrokenOff | BodyError::TooSlow => Self::BrokenOff,
        }
    }
}

impl From<registry::Error> for RequestError {
    fn from(error: registry::Error) -> Self {
        if matches!(error, registry::Error::Database(_) | registry::Error::Closed) {
            tracing::error!(%error, "the registry failed");
        }
        Self::Registry(error)
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let failure = Failure::new(self.code(), self.to_string());
        let message = match failure.code {
            Code::Internal => "the registry could not do it; the log says more",
            _ => failure.message.as_str(),
        };
        let error = json!({ "code": failure.code.as_str(), "message": message, "detail": null });
        let status = match self {
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            _ => StatusCode::from_u16(failure.code.http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        let mut response = (status, Json(json!({ "error": error }))).into_response();
        let headers = response.headers_mut();
        match self {
            Self::TooOften(TooOften(wait)) => {
                // Rounded up, so that a retry after this time is accepted.
                let seconds = wait.as_millis().div_ceil(1000).max(1) as u64;
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            Self::Registry(registry::Error::Full) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(3600));
            }
            _ => {}
        }
        response
    }
}
