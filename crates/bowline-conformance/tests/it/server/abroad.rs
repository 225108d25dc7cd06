//! What this server asks of other gateways.

use axum::response::Response;
use bowline_conformance::keys::{Key, content_id, peek};
use futures_util::StreamExt;
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use uuid::Uuid;

use super::exports::now;
use super::http::error;
use super::{Fault, ID, State, text};

type Asked<T> = Result<T, Box<Response>>;

fn refusal<T>(status: u16, code: &str) -> Asked<T> {
    Err(Box::new(error(status, code)))
}

/// The key of a gateway of the configuration.
pub(crate) async fn key_of(state: &State, id: &str) -> Option<Key> {
    let url = state.peers.get(id)?;
    let answer = state.http.get(format!("{url}/.well-known/sbp")).send().await.ok()?;
    Key::from_spki(text(&answer.json::<Value>().await.ok()?, "public_key"))
}

/// The bundle of a roaming token of another gateway.
pub(crate) async fn fetched(state: &State, token: &str) -> Asked<Value> {
    let (_, claims) = peek(token).expect("it was read before");
    let (id, cid) = (text(&claims, "iss"), text(&claims, "cid"));
    let Some(key) = key_of(state, id).await else { return refusal(422, "SBP_TOKEN_INVALID") };
    if key.claims(token).is_none() && !state.has(Fault::ForeignAnySignature) {
        return refusal(422, "SBP_TOKEN_INVALID");
    }
    if state.has(Fault::ForeignReused)
        && let Some(kept) = state.federation.lock().unwrap().kept.get(cid)
    {
        return Ok(kept.clone());
    }
    let bundle = download(state, id, cid, token).await?;
    let fits = content_id(&bundle).as_deref() == Some(cid);
    if !fits && !state.has(Fault::ForeignAnyBundle) {
        return refusal(422, "SBP_TOKEN_INTEGRITY");
    }
    let Ok(bundle) = serde_json::from_str::<Value>(&bundle) else {
        return refusal(422, "SBP_TOKEN_INTEGRITY");
    };
    state.federation.lock().unwrap().kept.insert(cid.to_owned(), bundle.clone());
    Ok(bundle)
}

/// The text of a bundle, up to a limit.
async fn download(state: &State, id: &str, cid: &str, roaming: &str) -> Asked<String> {
    let follow =
        if state.has(Fault::FollowsRedirects) { Policy::limited(3) } else { Policy::none() };
    let http = reqwest::Client::builder().no_proxy().redirect(follow).build().unwrap();
    let lasts = if state.has(Fault::LongFederationTokens) { 3600 } else { 60 };
    let claims = json!({
        "iss": ID, "url": state.url, "aud": id, "iat": now(), "exp": now() + lasts,
        "jti": Uuid::new_v4().to_string(), "act": "bundle", "ref": cid,
    });
    let request = http.get(format!("{}/v1/sbp/bundles/{cid}", state.peers[id]));
    let request = request.bearer_auth(state.identity.token("sbp-fed+jwt", &claims));
    let answer = request.header("SBP-Roaming-Token", roaming).send().await;
    let Ok(answer) = answer else { return refusal(502, "SBP_UPSTREAM") };
    match answer.status().as_u16() {
        200 => {}
        410 => return refusal(410, "SBP_TOKEN_CONSUMED"),
        _ => return refusal(502, "SBP_UPSTREAM"),
    }
    let (mut pieces, mut body, mut read) = (answer.bytes_stream(), Vec::new(), 0);
    while let Some(Ok(piece)) = pieces.next().await {
        read += piece.len();
        if read <= LARGEST {
            body.extend_from_slice(&piece);
        } else if !state.has(Fault::ReadsEndless) {
            return refusal(502, "SBP_UPSTREAM");
        }
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// What goes wrong with a session that has come from another gateway.
pub(crate) fn arrived(state: &State, session: &str) {
    let mut sessions = state.sessions();
    let Some(session) = sessions.get_mut(session) else { return };
    if state.has(Fault::ForeignStepsLost) {
        session.steps = 0;
    }
    if state.has(Fault::ForeignForgets) {
        session.messages.clear();
    }
}

/// The largest bundle, in bytes.
const LARGEST: usize = 8 << 20;
