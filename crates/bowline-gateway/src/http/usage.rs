//! `GET /v1/usage`: what users and keys have used, by UTC day.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use bowline_sbp::access::{Action, Scope};
use bowline_sbp::api::{DayUsage, UsageReport, UserUsage};
use bowline_sbp::budget::Day;
use bowline_sbp::id::UserId;
use bowline_store::{DayOfUse, User};
use serde::Deserialize;

use super::App;
use super::error::ApiError;
use super::sessions::bad_query;
use super::users::named;
use crate::auth::{Credentials, Denied};
use crate::clock;

/// How many days are shown if nothing is said, and at most: they are kept no longer.
const USUAL_DAYS: u32 = 7;
pub(crate) const MOST_DAYS: u32 = 400;

#[derive(Debug, Deserialize)]
pub(crate) struct UsageQuery {
    user: Option<String>,
    days: Option<u32>,
}

/// What was used, day by day.
///
/// One's own usage; with the scope `admin` as well, that of all users.
#[utoipa::path(
    get, path = "/v1/usage", tag = "users",
    params(
        ("user" = Option<String>, Query, description = "Only this user; another than oneself takes `admin`"),
        ("days" = Option<u32>, Query, description = "How many UTC days, today included; 7 if not given"),
    ),
    responses((status = 200, body = UsageReport)),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    query: Result<Query<UsageQuery>, QueryRejection>,
    credentials: Credentials,
) -> Result<Json<UsageReport>, ApiError> {
    let store = &app.engine.store;
    let identity = app.engine.allow(&credentials, Action::ReadUsage).await?;
    let Query(query) = query.map_err(bad_query)?;
    let users = store.users().await?;
    let is_own = |user: &User| user.id == identity.user();
    let wanted: Vec<User> = match &query.user {
        // Who may not manage users does not learn which there are.
        Some(name) if !identity.has(Scope::Admin) => {
            let own = users.into_iter().filter(is_own);
            let own: Vec<_> = own.filter(|user| user.name.eq_ignore_ascii_case(name)).collect();
            if own.is_empty() {
                return Err(Denied::Scope(Scope::Admin).into());
            }
            own
        }
        Some(name) => vec![named(&app, name).await?],
        None if identity.has(Scope::Admin) => users,
        None => users.into_iter().filter(is_own).collect(),
    };
    let days = query.days.unwrap_or(USUAL_DAYS).clamp(1, MOST_DAYS);
    let since = Day::of(clock::now()).before(days - 1);
    store.settle().await?;
    let only = if let [one] = &wanted[..] { Some(one.id) } else { None };
    let mut by_user: HashMap<UserId, Vec<DayUsage>> = HashMap::new();
    for day in store.days_of_use(since, only).await? {
        by_user.entry(day.user).or_default().push(view(day));
    }
    let mut report = UsageReport { since: since.to_string(), users: Vec::new() };
    for user in wanted {
        let stored_bytes = store.stored_bytes(user.id).await?;
        let days = by_user.remove(&user.id).unwrap_or_default();
        let User { name, limits, .. } = user;
        report.users.push(UserUsage { user: name, limits, stored_bytes, days });
    }
    Ok(Json(report))
}

fn view(day: DayOfUse) -> DayUsage {
    let spent = day.spent;
    DayUsage {
        day: day.day.to_string(),
        key: day.key,
        turns: spent.turns,
        model_calls: spent.model_calls,
        prompt_tokens: spent.prompt_tokens,
        completion_tokens: spent.completion_tokens,
        usd: spent.usd_micros as f64 / 1e6,
        exports: spent.exports,
    }
}
