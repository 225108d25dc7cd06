//! Images, sounds and files of messages over HTTP: taken out of a request before its turn, and read
//! back by their hash.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bowline_sbp::access::Action;
use bowline_sbp::blob::Blob;
use bowline_sbp::cid::Cid;
use bowline_sbp::error::Code;
use bowline_sbp::media::{LEAST, take_out};
use bowline_sbp::message::Message;
use bytes::Bytes;

use super::error::ApiError;
use super::{App, body, find};
use crate::auth::Credentials;

/// Messages of this size and more are read on another thread: hashing megabytes would block the
/// async runtime.
const LARGE: usize = 1 << 20;

/// Takes large blobs out of messages. One over `most` bytes is refused.
pub(super) async fn taken_out(
    messages: Vec<Message>,
    most: usize,
) -> Result<(Vec<Message>, Vec<Blob>), ApiError> {
    let sizes = messages.iter().map(|message| message.as_json().len());
    let largest = sizes.max().unwrap_or_default();
    let (messages, blobs) = match largest {
        0..LEAST => return Ok((messages, Vec::new())),
        LEAST..LARGE => all_taken_out(messages),
        _ => {
            let taken = tokio::task::spawn_blocking(|| all_taken_out(messages)).await;
            taken.map_err(|_| ApiError::internal())?
        }
    };
    match blobs.iter().find(|blob| blob.bytes.len() > most) {
        None => Ok((messages, blobs)),
        Some(blob) => {
            let size = blob.bytes.len();
            let message = format!("an image or file of {size} bytes is over {most} bytes");
            Err(ApiError::new(Code::TooLarge, message)
                .detail("send a smaller one, or raise limits.image")
                .param("messages"))
        }
    }
}

fn all_taken_out(messages: Vec<Message>) -> (Vec<Message>, Vec<Blob>) {
    let mut all: Vec<Blob> = Vec::new();
    let take = |message| {
        let (message, blobs) = take_out(message);
        for blob in blobs {
            if all.iter().all(|known| known.cid != blob.cid) {
                all.push(blob);
            }
        }
        message
    };
    let messages = messages.into_iter().map(take).collect();
    (messages, all)
}

/// Read an image, sound or file of a session's log.
///
/// A large one is stored apart: in the log stands `blob:sha256:<hash>:<bytes>` in place of its base64
/// text.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/blobs/{hash}", tag = "sessions",
    params(
        ("id" = String, Path, description = "The session's id"),
        ("hash" = String, Path, description = "The SHA-256 in the reference"),
    ),
    responses(
        (status = 200, description = "The bytes", content_type = "application/octet-stream"),
        (status = 404, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    path: Result<Path<(String, String)>, PathRejection>,
    credentials: Credentials,
) -> Result<Response, ApiError> {
    let unknown =
        || ApiError::new(Code::NotFound, "no message of this session refers to that blob");
    let Path((id, hash)) = path.map_err(|_| unknown())?;
    let id = body::session_id(&id)?;
    find(&app.engine, id, &credentials, Action::ReadSession).await?;
    let cid: Cid = hash.parse().map_err(|_| unknown())?;
    let bytes = app.engine.blob(id, cid).await?;
    // A type that a caller chose could be a page with scripts: the message says what it is.
    let plain = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable"),
    ];
    Ok((plain, Bytes::from_owner(bytes)).into_response())
}
