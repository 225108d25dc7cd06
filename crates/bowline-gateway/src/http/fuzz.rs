//! The parser of request bodies, for fuzzing; not part of the API.

use axum::body::Bytes;
use bowline_sbp::json::{MAX_DEPTH, within_depth};

use super::body::ChatBody;
use crate::limits::Limits;

/// How the gateway reads the body of a completion request.
#[derive(Debug)]
pub struct Body {
    /// The texts of the messages, if they can be used.
    pub messages: Option<Vec<String>>,
    /// The body that is sent to the model in pass-through.
    pub upstream: Vec<u8>,
    /// The fields that are sent to the model besides the messages.
    pub params: Vec<(String, String)>,
}

impl Body {
    /// Reads a body like a request's; `None` if it is refused at once.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if !within_depth(bytes, MAX_DEPTH) {
            return None;
        }
        let body = ChatBody::read(bytes).ok()?;
        // These may be refused, but must not panic.
        let _ = (body.model(), body.stream(), body.sbp());
        let messages = body.messages(Limits::default().messages).ok();
        Some(Self {
            messages: messages.map(|all| all.iter().map(|m| m.as_json().to_owned()).collect()),
            upstream: body.for_upstream(Bytes::copy_from_slice(bytes)).to_vec(),
            params: body.params().into_iter().map(|(n, v)| (n, v.get().to_owned())).collect(),
        })
    }
}
