//! The reader of request bodies, for those who throw random bytes at it; no part of the API.

use axum::body::Bytes;
use bowline_sbp::json::{MAX_DEPTH, within_depth};

use super::body::ChatBody;
use crate::limits::Limits;

/// What the gateway makes of the body of a completion call.
#[derive(Debug)]
pub struct Body {
    /// The texts of the messages, if they can be used.
    pub messages: Option<Vec<String>>,
    /// What goes to the model if no session is wanted.
    pub upstream: Vec<u8>,
    /// What goes to the model beside the messages.
    pub params: Vec<(String, String)>,
}

impl Body {
    /// Reads a body as a request's would be; nothing if it is refused at once.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if !within_depth(bytes, MAX_DEPTH) {
            return None;
        }
        let body = ChatBody::read(bytes).ok()?;
        // Refused or not, these answer.
        let _ = (body.model(), body.stream(), body.sbp());
        let messages = body.messages(Limits::default().messages).ok();
        Some(Self {
            messages: messages.map(|all| all.iter().map(|m| m.as_json().to_owned()).collect()),
            upstream: body.for_upstream(Bytes::copy_from_slice(bytes)).to_vec(),
            params: body.params().into_iter().map(|(n, v)| (n, v.get().to_owned())).collect(),
        })
    }
}
