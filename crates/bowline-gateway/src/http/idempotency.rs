//! Idempotency keys: the caller's name for a request (G3).

use axum::http::HeaderMap;
use bowline_sbp::error::Code;
use bowline_store::IdempotencyKey;

use super::error::ApiError;
use crate::auth::{Credentials, sha256};

pub(super) const KEY_HEADER: &str = "idempotency-key";

/// The scope of idempotency keys that create sessions: one per API key or device.
pub(super) fn new_scope(credentials: &Credentials) -> String {
    let who = Some(credentials.who()).filter(|who| !who.is_empty());
    let who = who.map(|who| sha256(&who)).unwrap_or_default();
    let who = who.iter().take(8).fold(String::new(), |who, byte| who + &format!("{byte:02x}"));
    IdempotencyKey::maker_scope(&who)
}

pub(super) fn named_key(
    headers: &HeaderMap,
    in_body: Option<&str>,
    scope: String,
    body_hash: [u8; 32],
) -> Result<Option<IdempotencyKey>, ApiError> {
    let in_header = headers.get(KEY_HEADER).map(|value| value.to_str().unwrap_or_default());
    let Some(key) = in_header.or(in_body) else { return Ok(None) };
    if key.is_empty() || key.len() > 255 {
        return Err(ApiError::new(
            Code::InvalidRequest,
            "an idempotency key is 1 to 255 visible characters",
        ));
    }
    Ok(Some(IdempotencyKey { scope, key: key.to_owned(), body_hash }))
}
