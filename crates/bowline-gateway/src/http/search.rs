//! `/v1/sessions/search`: full-text search in what users and agents said.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use bowline_sbp::access::Action;
use bowline_sbp::api::{SearchHit, SearchResults};
use bowline_sbp::error::Code;
use bowline_store::Hit;
use serde::Deserialize;

use super::App;
use super::error::ApiError;
use super::sessions::bad_query;
use crate::auth::Credentials;
use crate::engine::Identity;

/// The most words of one search.
const MOST_WORDS: usize = 32;
/// How much a search indexes before it answers. What is left, a later one or the upkeep indexes.
const STEPS: u32 = 64;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
pub(crate) struct SearchQuery {
    /// Words that must all occur in a message, in any order; `word*` finds words that begin so.
    q: Option<String>,
    /// The most messages to return; default 20, at most 100.
    limit: Option<u32>,
}

/// Search in what users and agents said.
///
/// The newest session first, with at most three messages of each session.
#[utoipa::path(
    get, path = "/v1/sessions/search", tag = "sessions", params(SearchQuery),
    responses(
        (status = 200, body = SearchResults),
        (status = 401, body = bowline_sbp::api::ErrorBody),
        (status = 422, body = bowline_sbp::api::ErrorBody),
    ),
)]
pub(crate) async fn search(
    State(app): State<Arc<App>>,
    query: Result<Query<SearchQuery>, QueryRejection>,
    credentials: Credentials,
) -> Result<Json<SearchResults>, ApiError> {
    let identity = app.engine.allow(&credentials, Action::ListSessions).await?;
    let Query(query) = query.map_err(bad_query)?;
    let words: Vec<_> = query.q.iter().flat_map(|q| q.split_whitespace()).collect();
    if words.is_empty() || words.len() > MOST_WORDS {
        let message = format!("`q` needs 1 to {MOST_WORDS} words");
        return Err(ApiError::new(Code::InvalidRequest, message).param("q"));
    }
    let store = &app.engine.store;
    let complete = store.index(STEPS).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot index messages; only those indexed before are searched");
        false
    });
    let limit = query.limit.unwrap_or(20).clamp(1, 100);
    let words = words.into_iter().map(str::to_owned).collect();
    let hits = store.search(identity.user(), words, limit).await?;
    let hits = for_key(&app, &identity, hits).await?;
    Ok(Json(SearchResults { hits: hits.into_iter().map(view).collect(), complete }))
}

/// Those in sessions of agents that the caller's key is for.
async fn for_key(app: &App, identity: &Identity, hits: Vec<Hit>) -> Result<Vec<Hit>, ApiError> {
    if !identity.is_limited() {
        return Ok(hits);
    }
    let mut kept = Vec::new();
    for hit in hits {
        let session = app.engine.store.session(hit.session).await?;
        if session.is_some_and(|session| identity.check_agent(&session.agent_id).is_ok()) {
            kept.push(hit);
        }
    }
    Ok(kept)
}

fn view(hit: Hit) -> SearchHit {
    SearchHit {
        session_id: hit.session,
        title: hit.title,
        seq: hit.seq,
        role: hit.role,
        created_at: hit.created_at,
        snippet: hit.snippet,
    }
}
