//! Request bodies: read within limits, and split into fields without changing a byte.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName};
use bowline_net::Peer;
use bowline_net::body::BodyError;
use bowline_net::forwarded::is_forwarded;
use bowline_sbp::api::SbpOptions;
use bowline_sbp::error::Code;
use bowline_sbp::id::SessionId;
use bowline_sbp::json::{MAX_DEPTH, within_depth};
use bowline_sbp::media::encoded_bytes;
use bowline_sbp::message::Message;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::error::ApiError;
use crate::auth::{Credentials, RequestNote};
use crate::limits::Limits;
use crate::model::LONGEST_NAME;

/// The largest body of a request that says an id and a token.
const SMALL: usize = 64 << 10;

pub(crate) const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-session-token");

/// Reads a whole body, bounded in size, time and depth (G11).
pub(crate) async fn read(body: Body, limits: &Limits) -> Result<Bytes, ApiError> {
    let bytes = read_within(body, limits.request_body, "limits.request_body", limits).await?;
    within_depth_too(bytes)
}

/// Reads a body that is an id and a token, of somebody who is not known before it is read.
pub(crate) async fn read_small(body: Body, limits: &Limits) -> Result<Bytes, ApiError> {
    let read = bowline_net::body::read(body, SMALL, limits.body_timeout).await;
    within_depth_too(read.map_err(|error| {
        match error {
            BodyError::TooLarge { .. } => ApiError::new(Code::TooLarge, error.to_string())
                .detail("such a request holds an id and a token; send nothing else"),
            BodyError::BrokenOff | BodyError::TooSlow => {
                ApiError::new(Code::MalformedRequest, error.to_string())
            }
        }
    })?)
}

fn within_depth_too(bytes: Bytes) -> Result<Bytes, ApiError> {
    if !within_depth(&bytes, MAX_DEPTH) {
        let message = format!("the body nests deeper than {MAX_DEPTH}");
        return Err(ApiError::new(Code::InvalidRequest, message));
    }
    Ok(bytes)
}

/// Reads the body of a request with messages: besides `limits.request_body`, it may have
/// `limits.request_images` of large images, sounds and files.
pub(crate) async fn read_chat(body: Body, limits: &Limits) -> Result<Bytes, ApiError> {
    let most = limits.request_body.saturating_add(limits.request_images);
    // A large body may take longer: a phone sends few megabits a second.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(most).min(most);
    let times = u32::try_from(announced / limits.request_body.max(1)).unwrap_or(u32::MAX);
    let within = limits.body_timeout.saturating_mul(times.saturating_add(1));
    let name = "limits.request_body, or for images limits.request_images";
    let bytes = bowline_net::body::read(body, most, within).await;
    within_depth_too(bytes.map_err(|error| refused(error, name))?)
}

/// Reads a whole body, bounded in size and time. The caller must bound the nesting depth.
pub(crate) async fn read_within(
    body: Body,
    limit: usize,
    name: &str,
    limits: &Limits,
) -> Result<Bytes, ApiError> {
    let read = bowline_net::body::read(body, limit, limits.body_timeout).await;
    read.map_err(|error| refused(error, name))
}

/// The response for a body that was not read. `name`: the limit of its size.
pub(super) fn refused(error: BodyError, name: &str) -> ApiError {
    match error {
        BodyError::TooLarge { .. } => ApiError::new(Code::TooLarge, error.to_string())
            .detail(format!("send less, or raise {name}")),
        BodyError::BrokenOff | BodyError::TooSlow => {
            ApiError::new(Code::MalformedRequest, error.to_string())
        }
    }
}

/// Reads a JSON body; an empty one counts as `{}`.
pub(crate) fn json<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, ApiError> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    let read = serde_json::from_slice(bytes).map_err(|error| {
        let code = if error.is_data() { Code::InvalidRequest } else { Code::MalformedRequest };
        ApiError::new(code, format!("the body cannot be read: {error}"))
    })?;
    if is_list(bytes) {
        return Err(ApiError::new(Code::InvalidRequest, "the body must be an object"));
    }
    Ok(read)
}

/// Serde's derived `Deserialize` also reads a list, as the fields in order; no caller means that.
fn is_list(json: &[u8]) -> bool {
    json.trim_ascii_start().starts_with(b"[")
}

/// The API key and session token of a request.
impl<S: Sync> FromRequestParts<S> for Credentials {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(credentials(&parts.headers, &parts.extensions))
    }
}

/// The API key and session token in a request's headers, and whether it came from this machine.
pub(crate) fn credentials(headers: &HeaderMap, extensions: &Extensions) -> Credentials {
    let peer: Option<&Peer> = extensions.get();
    let device = peer.and_then(|peer| peer.device.clone());
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(axum::http::header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    Credentials {
        bearer: bearer.filter(|token| !token.is_empty()),
        session_token: text(SESSION_TOKEN).filter(|t| !t.is_empty()).map(str::to_owned),
        from: peer.map(Peer::name),
        from_loopback: peer.is_some_and(Peer::is_local),
        is_forwarded: device.is_none() && is_forwarded(headers),
        device,
        note: extensions.get::<Arc<RequestNote>>().cloned().unwrap_or_default(),
    }
}

/// A completion request as a list of fields that borrow from the body.
#[derive(Debug)]
pub(crate) struct ChatBody<'b> {
    fields: Vec<(Name<'b>, &'b RawValue)>,
}

/// A field's name, copied only if it contains escapes.
#[derive(Debug, Deserialize)]
struct Name<'b>(#[serde(borrow)] Cow<'b, str>);

impl<'b> ChatBody<'b> {
    pub(crate) fn read(bytes: &'b [u8]) -> Result<Self, ApiError> {
        json(bytes)
    }

    /// How often a field is there.
    pub(crate) fn times(&self, name: &str) -> usize {
        self.fields.iter().filter(|(field, _)| field.0 == name).count()
    }

    /// Reads a body, and refuses one that is too large without its images, sounds and files.
    pub(crate) fn read_within(bytes: &'b [u8], limits: &Limits) -> Result<Self, ApiError> {
        let most = limits.request_body;
        let chat = Self::read(bytes);
        if bytes.len() <= most {
            return chat;
        }
        let media = |chat: &Self| -> Option<usize> {
            Some(chat.messages(limits.messages).ok()?.iter().map(encoded_bytes).sum())
        };
        match chat {
            Ok(chat) if bytes.len() - media(&chat).unwrap_or(0) <= most => Ok(chat),
            _ => Err(refused(BodyError::TooLarge { most }, "limits.request_body")),
        }
    }

    /// A field's JSON text. Of repeated fields the last one counts, as in most JSON parsers.
    fn field(&self, name: &str) -> Option<&'b RawValue> {
        self.fields.iter().rev().find(|(field, _)| field.0 == name).map(|(_, value)| *value)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.field(name).is_some_and(|value| value.get() != "null")
    }

    /// Whether it has a legacy `prompt` instead of messages (SBP-L1-02).
    pub(crate) fn is_prompt(&self) -> bool {
        self.has("prompt") && !self.has("messages")
    }

    pub(crate) fn model(&self) -> Result<String, ApiError> {
        let model = self.field("model").and_then(|m| serde_json::from_str::<String>(m.get()).ok());
        model.filter(|model| !model.is_empty() && model.len() <= LONGEST_NAME).ok_or_else(|| {
            ApiError::new(Code::InvalidRequest, "`model` must be a name of 1 to 256 characters")
                .param("model")
        })
    }

    pub(crate) fn stream(&self) -> bool {
        self.field("stream").is_some_and(|value| value.get() == "true")
    }

    /// The `sbp` object; its defaults if there is none.
    pub(crate) fn sbp(&self) -> Result<SbpOptions, ApiError> {
        let invalid = |message: String| ApiError::new(Code::InvalidRequest, message).param("sbp");
        let options: SbpOptions = match self.field("sbp").filter(|value| value.get() != "null") {
            None => SbpOptions::default(),
            Some(value) if is_list(value.get().as_bytes()) => {
                return Err(invalid("`sbp` must be an object".into()));
            }
            Some(value) => serde_json::from_str(value.get())
                .map_err(|error| invalid(format!("`sbp` cannot be read: {error}")))?,
        };
        if options.checkpoint_every == 0 {
            return Err(invalid("`sbp.checkpoint_every` must be at least 1".into()));
        }
        Ok(options)
    }

    /// The messages, or the legacy `prompt` as one (SBP-L1-02).
    pub(crate) fn messages(&self, limit: usize) -> Result<Vec<Message>, ApiError> {
        let invalid =
            |message: String| ApiError::new(Code::InvalidRequest, message).param("messages");
        let raw: Vec<Box<RawValue>> = match (self.field("messages"), self.field("prompt")) {
            (Some(messages), _) => serde_json::from_str(messages.get())
                .map_err(|_| invalid("`messages` must be a list of messages".into()))?,
            (None, Some(prompt)) => {
                let prompt: String = serde_json::from_str(prompt.get()).map_err(|_| {
                    ApiError::new(Code::InvalidRequest, "`prompt` must be a string").param("prompt")
                })?;
                return Ok(vec![Message::text("user", &prompt)]);
            }
            (None, None) => return Err(invalid("`messages` is missing".into())),
        };
        if raw.is_empty() || raw.len() > limit {
            return Err(invalid(format!("`messages` must hold 1 to {limit} messages")));
        }
        raw.into_iter()
            .enumerate()
            .map(|(n, raw)| {
                Message::read(raw).map_err(|error| invalid(format!("messages[{n}]: {error}")))
            })
            .collect()
    }

    /// The body as received, but without `sbp`, which is never sent to the model, not even as
    /// `null` (SBP-L1-06).
    pub(crate) fn for_upstream(&self, bytes: Bytes) -> Bytes {
        if self.field("sbp").is_none() {
            return bytes;
        }
        let fields = self.fields.iter().filter(|(name, _)| name.0 != "sbp");
        let fields = fields.map(|(name, value)| {
            let name = serde_json::to_string(&name.0).expect("a string always serialises");
            format!("{name}:{}", value.get())
        });
        Bytes::from(format!("{{{}}}", fields.collect::<Vec<_>>().join(",")))
    }

    /// The fields that are sent to the model unchanged.
    pub(crate) fn params(self) -> Vec<(String, Box<RawValue>)> {
        let ours = ["messages", "prompt", "sbp", "stream"];
        let theirs = self.fields.into_iter().filter(|(name, _)| !ours.contains(&&*name.0));
        theirs.map(|(name, value)| (name.0.into_owned(), value.to_owned())).collect()
    }
}

impl<'de> Deserialize<'de> for ChatBody<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = ChatBody<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ChatBody<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(ChatBody { fields })
            }
        }
        from.deserialize_map(Fields)
    }
}

/// A session id from a path or body.
pub(crate) fn session_id(text: &str) -> Result<SessionId, ApiError> {
    text.parse().map_err(|_| {
        ApiError::new(Code::InvalidUuid, "the session id is not a UUID")
            .detail("session ids look like 0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f")
            .param("session_id")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> ChatBody<'_> {
        ChatBody::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn sbp_l1_06_sbp_is_never_among_the_fields_that_go_upstream() {
        let body =
            body(r#"{"model":"m","sbp":{},"messages":[],"stream":true,"seed":1.0,"prompt":"x"}"#);
        let params: Vec<_> =
            body.params().into_iter().map(|(n, v)| (n, v.get().to_owned())).collect();
        assert_eq!(
            params,
            [("model".into(), "\"m\"".into()), ("seed".to_owned(), "1.0".to_owned())]
        );
    }

    #[test]
    fn sbp_l1_06_an_empty_sbp_does_not_go_upstream_either() {
        let pass = |text: &str| body(text).for_upstream(Bytes::from(text.to_owned()));
        assert_eq!(pass(r#"{"a": 1.0,"sbp":null,"b":[ ]}"#), r#"{"a":1.0,"b":[ ]}"#);
        assert_eq!(pass(r#"{ "a":1 }"#), r#"{ "a":1 }"#, "byte for byte");
    }

    #[test]
    fn wrong_types_are_named() {
        let message = |error: ApiError| error.to_json();
        assert!(message(body(r#"{"model":5}"#).model().unwrap_err()).contains("`model`"));
        assert!(message(body(r#"{"messages":5}"#).messages(9).unwrap_err()).contains("list"));
        assert!(message(body(r#"{"messages":[]}"#).messages(9).unwrap_err()).contains("1 to 9"));
        assert!(
            message(body(r#"{"messages":[{}]}"#).messages(9).unwrap_err()).contains("messages[0]")
        );
        assert!(
            message(body(r#"{"sbp":{"checkpoint_every":0}}"#).sbp().unwrap_err())
                .contains("at least 1")
        );
        assert!(message(body(r#"{"sbp":{"tether":"no"}}"#).sbp().unwrap_err()).contains("`sbp`"));
        assert!(ChatBody::read(b"[]").is_err() && ChatBody::read(b"{").is_err());
    }

    #[test]
    fn the_last_of_repeated_fields_counts() {
        assert_eq!(body(r#"{"model":"a","model":"b"}"#).model().unwrap(), "b");
        assert!(!body(r#"{"sbp":null}"#).has("sbp"));
    }
}
