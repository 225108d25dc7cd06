//! Import over HTTP: a session from a roaming token or a bundle (SBP-L3-05).

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use bowline_pyjson::{Object, Value};
use bowline_sbp::access::Action;
use bowline_sbp::api::Imported;
use bowline_sbp::bundle::{OpenError, Opened, RequiredSignature};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::gateway_key::BadFingerprint;
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::idempotency::{named_key, new_scope};
use super::roaming::agent_id;
use super::{App, body};
use crate::auth::Credentials;
use crate::engine::{Deed, Import, Source};

type Api<T> = Result<T, ApiError>;

/// Create a session from a bundle.
///
/// With a `roaming_token` of this gateway, or with the `bundle` itself. Nothing is written unless
/// the token is valid and the bundle matches its content id and its signature.
#[utoipa::path(
    post, path = "/v1/sbp/sessions/import", tag = "roaming",
    request_body(content = Object, description = "`roaming_token` or `bundle`; `target_agent_id`; \
        `allow_reuse`: fork, and do not consume the token; `with_memory`: write the bundle's memory \
        into the agent's; `require_signature`: `true`, or the fingerprint of the gateway that must \
        have signed it"),
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key and body gets the same session")),
    responses(
        (status = 201, body = Imported),
        (status = 403, description = "The export has memory that the caller may not read", body = bowline_sbp::api::ErrorBody),
        (status = 410, description = "The token has expired or was used", body = bowline_sbp::api::ErrorBody),
        (status = 422, description = "The token, the bundle or its signature is invalid", body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    credentials: Credentials,
    body: Body,
) -> Api<(StatusCode, Json<Imported>)> {
    let engine = &app.engine;
    let identity = engine.allow(&credentials, Action::ImportSession).await?;
    engine.check_import(&identity.spender()).await?;
    let limits = &engine.limits;
    let bytes = body::read_within(body, limits.import_body, "limits.import_body", limits).await?;
    // Reading and hashing a long history would block the async runtime.
    let asked = tokio::task::spawn_blocking(move || {
        let hash: [u8; 32] = Sha256::digest(&bytes).into();
        read(&bytes).map(|asked| (asked, hash))
    });
    let (asked, hash) = asked.await.map_err(|_| ApiError::internal())??;
    let key = named_key(&headers, None, new_scope(&credentials), hash)?;
    let ImportAsked { source, agent, reuse, with_memory, signature } = asked;
    if with_memory {
        identity.check(Action::WriteMemory)?;
    }
    let agent = agent.map(|agent| agent_id(&app, &agent, "target_agent_id")).transpose()?;
    agent.iter().try_for_each(|agent| identity.check_agent(agent))?;
    let import = Import { source, agent, reuse, with_memory, signature, by_token_alone: false };
    let foreign = match &import.source {
        Source::Token(token) if !reuse => {
            engine.foreign_token(token).await?.map(|foreign| (token.clone(), foreign))
        }
        _ => None,
    };
    let imported = match foreign {
        Some((token, foreign)) => {
            engine.import_from_peer(&identity, token, foreign, import, key).await?
        }
        None => engine.import(&identity, import, key).await?,
    };
    engine.audit.did(&identity, Deed::ImportSession, imported.session_id);
    Ok((StatusCode::CREATED, Json(imported)))
}

struct ImportAsked {
    source: Source,
    agent: Option<String>,
    reuse: bool,
    with_memory: bool,
    signature: RequiredSignature,
}

/// Parses the request like a bundle, which may contain what only Python accepts as JSON.
fn read(bytes: &[u8]) -> Api<ImportAsked> {
    let body = Value::parse_bytes(bytes).map_err(|e| Failure::from(OpenError::NotJson(e)))?;
    let Value::Object(mut body) = body else { return Err(invalid("the body must be an object")) };
    let token = text(&mut body, "roaming_token")?;
    let agent = text(&mut body, "target_agent_id")?;
    let reuse = flag(&mut body, "allow_reuse")?;
    let with_memory = flag(&mut body, "with_memory")?;
    let signature = required_signature(&mut body)?;
    let bundle = body.remove("bundle").filter(|bundle| !bundle.is_null());
    let source = match (token, bundle) {
        (Some(token), None) => Source::Token(token),
        (None, Some(bundle)) => {
            Source::Bundle(Box::new(Opened::of_value(bundle).map_err(Failure::from)?))
        }
        _ => return Err(invalid("send a `roaming_token` or a `bundle`").param("roaming_token")),
    };
    Ok(ImportAsked { source, agent, reuse, with_memory, signature })
}

fn text(body: &mut Object<'_>, name: &'static str) -> Api<Option<String>> {
    match body.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.to_string_lossy().into_owned())),
        Some(_) => Err(invalid(&format!("`{name}` must be a string")).param(name)),
    }
}

fn flag(body: &mut Object<'_>, name: &'static str) -> Api<bool> {
    match body.remove(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(_) => Err(invalid(&format!("`{name}` must be true or false")).param(name)),
    }
}

/// `true`, or a fingerprint.
fn required_signature(body: &mut Object<'_>) -> Api<RequiredSignature> {
    const NAME: &str = "require_signature";
    match body.remove(NAME) {
        None | Some(Value::Null | Value::Bool(false)) => Ok(RequiredSignature::None),
        Some(Value::Bool(true)) => Ok(RequiredSignature::OfAnyone),
        Some(Value::String(text)) => {
            let wrong = |why: BadFingerprint| invalid(&format!("`{NAME}`: {why}")).param(NAME);
            let fingerprint = text.to_string_lossy().parse().map_err(wrong)?;
            Ok(RequiredSignature::Of(fingerprint))
        }
        Some(_) => {
            Err(invalid(&format!("`{NAME}` must be true, false or a fingerprint")).param(NAME))
        }
    }
}

fn invalid(what: &str) -> ApiError {
    ApiError::new(Code::InvalidRequest, what.to_owned())
}
