//! The OpenAPI document, generated from the code.

use serde_json::Value;
use utoipa::OpenApi;

use super::{
    approvals, audit, blobs, completions, devices, forward, import, mcp, memory, models, ops,
    replicas, roaming, search, session_token, sessions, shares, spec, surfaces, usage, user_keys,
    users,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Bowline gateway",
        description = "Durable agent sessions: SBP over HTTP. A surface attaches by WebSocket at \
                       /v1/sbp/ws/{session_id}; see the frames in docs/frames.md.",
        license(name = "Apache-2.0"),
    ),
    paths(
        completions::chat,
        completions::legacy,
        models::list,
        models::show,
        forward::embeddings,
        forward::moderations,
        forward::images_generations,
        forward::images_edits,
        forward::images_variations,
        forward::audio_speech,
        forward::audio_transcriptions,
        forward::audio_translations,
        sessions::create,
        sessions::list,
        sessions::show,
        sessions::rename,
        search::search,
        sessions::delete,
        sessions::patch_status,
        sessions::cancel,
        sessions::turns,
        sessions::messages,
        blobs::show,
        surfaces::list,
        surfaces::add,
        surfaces::forget,
        approvals::list,
        approvals::decide,
        roaming::export,
        roaming::exports,
        roaming::bundle,
        import::import,
        roaming::inspect,
        roaming::handoff,
        roaming::fork,
        roaming::lineage,
        roaming::rotate,
        roaming::identity,
        users::add,
        users::list,
        users::patch,
        user_keys::make,
        user_keys::list,
        user_keys::revoke,
        devices::offer,
        devices::list,
        devices::revoke,
        session_token::rotate,
        session_token::revoke,
        usage::show,
        audit::show,
        shares::list,
        shares::share,
        shares::unshare,
        spec::schema,
        spec::example,
        memory::list,
        memory::replace,
        memory::add,
        memory::forget_all,
        memory::forget,
        ops::healthz,
        ops::readyz,
        ops::metrics,
        mcp::servers,
        mcp::accept,
        replicas::list,
        mcp::library::prompts,
        mcp::library::prompt,
        mcp::library::resources,
        mcp::library::resource,
        mcp::library::templates,
    ),
    components(schemas(bowline_sbp::api::SbpOptions, bowline_sbp::api::SbpInfo))
)]
struct ApiDocument;

/// The OpenAPI document.
pub fn document() -> Value {
    serde_json::to_value(ApiDocument::openapi()).expect("the document serialises")
}
