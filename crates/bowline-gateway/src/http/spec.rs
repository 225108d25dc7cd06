//! The bundle's JSON Schema, and examples of the roaming requests (SBP-L3-15).
//!
//! For authors of clients and other gateways. The files of `docs/spec` are compiled in, so what is
//! served is what the tests check.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header;
use axum::response::IntoResponse;
use bowline_sbp::error::Code;

use super::error::ApiError;

const SCHEMA: &str = include_str!("../../../../docs/spec/roaming-bundle.schema.json");

const EXAMPLES: [(&str, &str); 5] = [
    ("bundle.json", include_str!("../../../../docs/spec/examples/bundle.json")),
    ("export.json", include_str!("../../../../docs/spec/examples/export.json")),
    ("import.json", include_str!("../../../../docs/spec/examples/import.json")),
    ("handoff.json", include_str!("../../../../docs/spec/examples/handoff.json")),
    ("fork.json", include_str!("../../../../docs/spec/examples/fork.json")),
];

/// The JSON Schema of bundles.
#[utoipa::path(
    get, path = "/spec/roaming-bundle.schema.json", tag = "roaming",
    responses((status = 200, body = Object, content_type = "application/schema+json")),
)]
pub(crate) async fn schema() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/schema+json")], SCHEMA)
}

/// An example request with its response, or a bundle.
///
/// `export.json`, `import.json`, `handoff.json`, `fork.json` and `bundle.json`.
#[utoipa::path(
    get, path = "/spec/examples/{name}", tag = "roaming",
    responses((status = 200, body = Object), (status = 404, body = bowline_sbp::api::ErrorBody)),
)]
pub(crate) async fn example(
    name: Result<Path<String>, PathRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let name = name.map(|Path(name)| name).unwrap_or_default();
    let (_, text) = EXAMPLES.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known: Vec<_> = EXAMPLES.iter().map(|(name, _)| *name).collect();
        ApiError::new(Code::NotFound, "there is no such example").detail(known.join(", "))
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], *text))
}
