//! Which session a chat continues.

use bowline_sbp::federation::ForeignRoamingClaims;
use bowline_sbp::id::SessionId;
use reqwest::Method;
use serde_json::json;

use crate::api::Api;
use crate::cli::chat::ChatArgs;
use crate::failure::Failure;
use crate::secrets;
use crate::terminal::one_line;

/// The session of a chat.
pub(super) struct ChatSession {
    pub(super) id: SessionId,
    /// Empty if it is not known.
    pub(super) token: String,
    pub(super) title: Option<String>,
    /// With it the session comes here first; `id` is its id at the other gateway.
    pub(super) roaming_token: Option<String>,
}

/// The session to continue, or a new one.
pub(super) async fn open(api: &Api, args: &ChatArgs) -> Result<ChatSession, Failure> {
    if let Some(file) = &args.roaming_token_file {
        return roaming(secrets::from_file(file, "--roaming-token-file")?);
    }
    let named = args.session.as_deref().or(args.last.then_some("last"));
    let Some(named) = named else {
        let made = api.call(Method::POST, "/v1/sessions", Some(json!({}))).await?;
        let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
        let id = parse_id(&text("session_id"))?;
        return Ok(ChatSession { id, token: text("session_token"), ..of(id) });
    };
    let token = args.token.clone().unwrap_or_default();
    // An id needs no look-up: with a session's token alone there is no list to look in.
    let id = match named.parse() {
        Ok(id) => id,
        Err(_) => parse_id(&api.session(named).await?)?,
    };
    Ok(ChatSession { token, title: title(api, id).await.ok().flatten(), ..of(id) })
}

fn of(id: SessionId) -> ChatSession {
    ChatSession { id, token: String::new(), title: None, roaming_token: None }
}

/// The session that a roaming token brings.
fn roaming(token: String) -> Result<ChatSession, Failure> {
    let claims = ForeignRoamingClaims::peek(&token).map_err(|_| {
        Failure::new("this is not a roaming token that other gateways can verify")
            .hint("gateways with federation issue such tokens: `bowline export last`")
    })?;
    Ok(ChatSession { roaming_token: Some(token), ..of(claims.session()) })
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
