//! Which session a chat continues.

use bowline_sbp::id::SessionId;
use reqwest::Method;
use serde_json::json;

use crate::api::Api;
use crate::cli::ChatArgs;
use crate::failure::Failure;
use crate::terminal::one_line;

/// The session of a chat.
pub(super) struct ChatSession {
    pub(super) id: SessionId,
    /// Empty if it is not known.
    pub(super) token: String,
    pub(super) title: Option<String>,
}

/// The session to continue, or a new one.
pub(super) async fn open(api: &Api, args: &ChatArgs) -> Result<ChatSession, Failure> {
    let named = args.session.as_deref().or(args.last.then_some("last"));
    let Some(named) = named else {
        let made = api.call(Method::POST, "/v1/sessions", Some(json!({}))).await?;
        let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
        let id = parse_id(&text("session_id"))?;
        return Ok(ChatSession { id, token: text("session_token"), title: None });
    };
    let token = args.token.clone().unwrap_or_default();
    // An id needs no look-up: with a session's token alone there is no list to look in.
    let id = match named.parse() {
        Ok(id) => id,
        Err(_) => parse_id(&api.session(named).await?)?,
    };
    Ok(ChatSession { id, token, title: title(api, id).await.ok().flatten() })
}

fn parse_id(text: &str) -> Result<SessionId, Failure> {
    text.parse().map_err(|error| {
        Failure::new(format!("`{text}` is not a session id: {error}"))
            .hint("`bowline sessions list` shows them")
    })
}

pub(super) async fn title(api: &Api, id: SessionId) -> Result<Option<String>, Failure> {
    let session = api.get(&format!("/v1/sessions/{id}")).await?;
    Ok(session["title"].as_str().map(one_line))
}
