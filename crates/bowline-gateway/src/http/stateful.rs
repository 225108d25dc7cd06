//! Paths of OpenAI's API under which a server keeps things: files, batches, responses.
//!
//! All callers share the gateway's key for an upstream, so each would see what others stored there.
//! They are off unless the configuration of an upstream names them.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bowline_sbp::error::Code;

use super::App;
use super::error::ApiError;
use super::forward::{authorise, send};
use super::meter::{Estimate, Meter};
use super::upload::Upload;
use crate::auth::Denied;
use crate::config::STATEFUL_PATHS;

/// Any request to such a path or below it.
pub(crate) async fn pass(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let engine = &app.engine;
    let (head, body) = request.into_parts();
    // Which models are used there is not known.
    let identity = authorise(engine, &head).await?;
    if identity.has_model_limits() {
        return Err(Denied::NotFor("path").into());
    }
    let path = head.uri.path();
    let prefix = allowed_prefix(path)?;
    let upstream = engine.models.stateful(prefix).ok_or_else(|| {
        ApiError::new(
            Code::Forbidden,
            format!(
                "{prefix} is off: the server keeps what is sent there, and all callers of this \
                 gateway share its key, so each could read and delete what others stored"
            ),
        )
        .detail(format!(
            "the gateway's owner can allow it for one upstream: stateful_paths = [\"{prefix}\"] \
             in [upstream.NAME]"
        ))
    })?;
    // A request without a body must not become one with an empty body.
    let upload = match body.is_end_stream() {
        true => None,
        false => Some(Upload::new(&head.headers, body, &engine.limits)?),
    };
    let query = head.uri.query();
    let spender = identity.spender();
    engine.check_model_call(&spender).await?;
    let meter = Meter::new(engine, spender, String::new(), Estimate::Nothing, 0);
    let mut response =
        send(upstream, meter, head.method, path, query, &head.headers, upload).await?;
    // A stored file may be a web page; it must not run as a page of the gateway.
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    Ok(response)
}

/// The stateful path that an address is at or below. Addresses that a server could read as another
/// path are refused.
fn allowed_prefix(path: &str) -> Result<&'static str, ApiError> {
    let prefix = STATEFUL_PATHS.iter().find(|prefix| {
        let below = path.strip_prefix(**prefix);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    });
    match prefix {
        Some(prefix) if is_plain(path) => Ok(prefix),
        _ => Err(ApiError::new(
            Code::MalformedRequest,
            "the address has `.` or `..`, an empty part, `;`, or an encoded slash, dot or percent sign",
        )),
    }
}

/// Whether every server reads the path in the same way.
fn is_plain(path: &str) -> bool {
    let mut segments = path.trim_start_matches('/').trim_end_matches('/').split('/');
    let parts = segments.all(|segment| !matches!(segment, "" | "." | ".."));
    let plain = |byte: u8| !byte.is_ascii_control() && !b"\\#?;".contains(&byte);
    let mut rest = path.as_bytes();
    let mut escapes = true;
    while let [byte, more @ ..] = rest {
        rest = more;
        escapes &= match (byte, more) {
            (b'%', [high, low, ..]) => {
                let byte = std::str::from_utf8(&[*high, *low])
                    .ok()
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                byte.is_some_and(|byte| plain(byte) && !b"/.%".contains(&byte))
            }
            (b'%', _) => false,
            (byte, _) => plain(*byte),
        };
    }
    parts && escapes && !path.contains("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_cannot_leave_its_prefix() {
        for (path, prefix) in [
            ("/v1/files", Some("/v1/files")),
            ("/v1/files/", Some("/v1/files")),
            ("/v1/files/file-1/content", Some("/v1/files")),
            ("/v1/files/a%20b.txt", Some("/v1/files")),
            ("/v1/files/a..b", Some("/v1/files")),
            ("/v1/vector_stores/v/files", Some("/v1/vector_stores")),
            ("/v1/filesystem", None),
            ("/v1/files/../models", None),
            ("/v1/files/..", None),
            ("/v1/files/./x", None),
            // Some servers read `..;` as `..`.
            ("/v1/files/..;/batches", None),
            ("/v1/files/x;y", None),
            ("/v1/files/..%3b/batches", None),
            ("/v1/files//x", None),
            ("//v1/files", None),
            ("/v1/files/%2e%2e/models", None),
            ("/v1/files/%2E./models", None),
            ("/v1/files/..%2fmodels", None),
            ("/v1/files/a%2Fb", None),
            ("/v1/files/a%5cb", None),
            ("/v1/files/a\\b", None),
            ("/v1/files/%252e%252e", None),
            ("/v1/files/%00", None),
            ("/v1/files/%0d%0a", None),
            ("/v1/files/%3fx", None),
            ("/v1/files/%", None),
            ("/v1/files/%2", None),
            ("/v1/files/%zz", None),
            ("/v1/files/%+f", None),
            ("/v1/chat/completions", None),
        ] {
            assert_eq!(allowed_prefix(path).ok(), prefix, "{path}");
        }
    }
}
